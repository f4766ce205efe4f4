"""The real daemon as a process of its own, on free ports of 127.0.0.1."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
import requests
import yaml

from tests.e2e.one_process import needs_one
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
STOP_SECS = 60
"""More than shutdown_timeout_secs, after which requests in flight are cut."""
START_SECS = 120
WAIT_SECS = 60
"""The deadline of states that follow at once, except on a machine that does much other work."""


@dataclass
class Daemon:
    """A running daemon. ``addresses`` are those it bound, in the order of the configured listeners. ``workers`` is the
    number of front ends of a daemon whose configuration does not state one."""

    workers: ClassVar[int] = int(os.environ.get("DAEMON_WORKERS", "0"))
    process: subprocess.Popen[str]
    addresses: list[str] = field(default_factory=list)
    log: list[dict[str, Any]] = field(default_factory=list)
    reader: threading.Thread = field(init=False)

    @classmethod
    def start(cls, folder: Path, config: dict[str, Any]) -> Daemon:
        """Start on ``config`` and wait until every listener is bound. Listeners should ask for port 0."""
        daemon = cls.begin(folder, config)
        daemon.until("serving")
        daemon.addresses = [line["address"] for line in daemon.log if line["event"] == "listening"]
        return daemon

    @classmethod
    def begin(
        cls,
        folder: Path,
        config: dict[str, Any],
        *arguments: str,
        launcher: Sequence[str] = (),
        pass_fds: Sequence[int] = (),
    ) -> Daemon:
        """Start on ``config`` and wait for nothing. ``arguments`` are further ones of ``serve``. The command
        ``launcher`` gets that of the daemon, and the descriptors ``pass_fds``."""
        why = needs_one(config)
        if cls.workers and why is not None and "workers" not in config.get("server", {}):
            pytest.skip(why)
        server = {"log_format": "json", "drain_secs": 0.0, "workers": cls.workers, **config.get("server", {})}
        config = {**config, "server": server}
        path = folder / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        process = subprocess.Popen(
            [*launcher, sys.executable, "-m", "interlingua", "serve", "-c", str(path), *arguments],
            cwd=ROOT,
            pass_fds=pass_fds,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        daemon = cls(process)
        daemon.reader = threading.Thread(target=daemon._read, daemon=True)
        daemon.reader.start()
        return daemon

    def until(self, event: str) -> dict[str, Any]:
        """Wait until the daemon has logged ``event``; that line."""
        deadline = time.monotonic() + START_SECS
        while True:
            for line in self.log:
                if line["event"] == event:
                    return line
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the daemon did not start: {self.log}")
            time.sleep(0.02)

    @property
    def admin(self) -> str:
        """The URL of the admin address."""
        return f"http://{self.until('admin listening')['address']}"

    def until_metric(self, line: str) -> None:
        """Wait until the metrics contain ``line``."""
        url = f"{self.admin}/metrics"
        eventually(lambda: line in requests.get(url, timeout=WAIT_SECS).text.splitlines())

    def until_in_flight(self, count: int) -> None:
        """Wait until ``count`` requests of all listeners are in flight."""

        def in_flight() -> float:
            lines = requests.get(f"{self.admin}/metrics", timeout=WAIT_SECS).text.splitlines()
            name = "interlingua_requests_in_flight{"
            return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

        eventually(lambda: in_flight() == count)

    def until_queued(self, model: str, count: int) -> None:
        """Wait until ``count`` requests are in the queue of ``model``."""
        self.until_metric(f'nv_inference_pending_request_count{{model="{model}",version="1"}} {count}')

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                try:
                    self.log.append(json.loads(line))
                except ValueError:
                    self.log.append({"event": line.rstrip(), "level": "unparsed"})

    def stop(self) -> int:
        """Ask it to stop with SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(STOP_SECS)
        self.kill()
        return code

    def kill(self) -> None:
        """Make sure that nothing is left of it; its log is complete then."""
        self.process.kill()
        self.process.wait()
        self.reader.join(10)
