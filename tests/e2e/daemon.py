"""The real daemon as a process of its own, on free ports of 127.0.0.1."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
START_SECS = 60
WORKERS = int(os.environ.get("DAEMON_WORKERS", "0"))
"""The front ends of every daemon: the same tests hold for a server of several processes."""


@dataclass
class Daemon:
    """A running daemon. ``addresses`` are those it bound, in the order of the configured listeners."""

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
    def begin(cls, folder: Path, config: dict[str, Any]) -> Daemon:
        """Start on ``config`` and wait for nothing."""
        server = {"log_format": "json", "drain_secs": 0.0, "workers": WORKERS, **config.get("server", {})}
        config = {**config, "server": server}
        path = folder / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        process = subprocess.Popen(
            [sys.executable, "-m", "interlingua", "serve", "-c", str(path)],
            cwd=ROOT,
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
        code = self.process.wait(30)
        self.kill()
        return code

    def kill(self) -> None:
        """Make sure that nothing is left of it; its log is complete then."""
        self.process.kill()
        self.process.wait()
        self.reader.join(10)
