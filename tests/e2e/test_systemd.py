"""A service of systemd: sockets that another process has opened, and notifications to its socket."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interlingua.protocols.transport.listening_socket import ListeningSocket
from interlingua.translator.config import parse
from interlingua.translator.systemd.activation import activated_sockets
from interlingua.translator.takeover.messages import TakeoverError
from interlingua.translator.takeover.socket_plan import SocketPlan
from tests.e2e.daemon import ROOT, WAIT_SECS, Daemon
from tests.e2e.test_takeover import ECHO, infer
from tests.waiting import eventually

LAUNCHER = """
import fcntl, os, sys
given, names, *command = sys.argv[1:]
high = [fcntl.fcntl(int(each), fcntl.F_DUPFD, 100) for each in given.split(",")]
for number, each in enumerate(high):
    os.dup2(each, 3 + number)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(high)), LISTEN_FDNAMES=names)
os.execv(command[0], command)
"""
"""What systemd does before it runs a service: sockets from descriptor 3 on, and the process id of the service."""


class Manager:
    """The socket that a service manager listens to, and what has arrived."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.messages: list[dict[str, str]] = []
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.bind(str(path))
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while text := self._sock.recv(4096).decode():
            self.messages.append(dict(line.split("=", 1) for line in text.split("\n")))

    def has(self, name: str, value: str = "1") -> bool:
        return any(each.get(name) == value for each in self.messages)

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ending:
            ending.sendto(b"", str(self.path))
        self._thread.join(WAIT_SECS)
        self._sock.close()


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    found = Manager(tmp_path / "notify.sock")
    monkeypatch.setenv("NOTIFY_SOCKET", str(found.path))
    try:
        yield found
    finally:
        found.close()


def config(*listens: str, **server: Any) -> dict[str, Any]:
    return {
        "server": {"drain_secs": 0.0, **server},
        "listeners": [{"listen": listen, "transport": "http"} for listen in listens],
        "models": {"echo": ECHO},
    }


def activated(
    folder: Path,
    settings: dict[str, Any],
    *sockets: tuple[socket.socket, str],
    arguments: tuple[str, ...] = (),
) -> Daemon:
    """A daemon that is started with ``sockets``, each with its name."""
    descriptors = [sock.fileno() for sock, _ in sockets]
    names = ":".join(name for _, name in sockets)
    command = [sys.executable, "-c", LAUNCHER, ",".join(map(str, descriptors)), names]
    return Daemon.begin(folder, settings, launcher=command, pass_fds=descriptors)


def test_sockets_of_systemd(tmp_path: Path) -> None:
    """By address, unix path and name. What connects before the start is answered; nothing closes with the service."""
    path = tmp_path / "http.sock"
    with (
        socket.create_server(("127.0.0.1", 0)) as by_address,
        socket.create_server(("127.0.0.1", 0)) as by_name,
        socket.create_server(("127.0.0.1", 0)) as admin,
        socket.socket(socket.AF_UNIX) as unix,
    ):
        unix.bind(str(path))
        unix.listen()
        port = by_address.getsockname()[1]
        settings = config(f"127.0.0.1:{port}", f"unix:{path}", "127.0.0.1:1")
        settings["admin"] = {"listen": "127.0.0.1:2"}
        early = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECS)
        early.request("GET", "/v2/health/live")
        given = ((by_name, "http"), (unix, "x"), (by_address, "y"), (admin, "admin"))
        daemon = activated(tmp_path, settings, *given)
        try:
            daemon.until("serving")
            assert early.getresponse().status == 200
            bound = ["{}:{}".format(*each.getsockname()) for each in (by_address, by_name, admin)]
            for address in (bound[0], f"unix:{path}", bound[1]):
                assert infer(address) == 1.5
            assert daemon.admin == f"http://{bound[2]}"
            assert daemon.stop() == 0
        finally:
            daemon.kill()
            early.close()
        assert path.exists()
        socket.create_connection(by_address.getsockname()).close()


def test_a_socket_without_a_listener_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unknown:
        text = json.dumps({"listeners": [{"listen": "127.0.0.1:0", "transport": "http"}]})
        place = "{}:{}".format(*unknown.getsockname())
        with pytest.raises(TakeoverError, match=f"{place} \\(metrics\\)"):
            SocketPlan(parse(text), [ListeningSocket(unknown, name="metrics")])


def test_sockets_of_another_process_are_not_taken() -> None:
    environment = {"LISTEN_PID": "1", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "http", "HOME": "/"}
    assert activated_sockets(environment) == []
    assert environment == {"HOME": "/"}


def test_a_descriptor_that_does_not_listen_is_an_error(tmp_path: Path) -> None:
    program = (
        "import os; from interlingua.translator.systemd.activation import activated_sockets\n"
        "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1')\n"
        "os.dup2(os.open('/dev/null', os.O_RDONLY), 3)\n"
        "activated_sockets(os.environ)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert "descriptor 3 of systemd" in ended.stderr


def test_notifications(manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ready, alive, taken over, stopping; a process that is stopped is alive no more."""
    monkeypatch.setenv("WATCHDOG_USEC", "100000")
    settings = config("127.0.0.1:0", workers=0, handover_socket=str(tmp_path / "handover.sock"))
    old = Daemon.begin(tmp_path, settings)
    try:
        eventually(lambda: manager.has("READY"))
        assert manager.has("STATUS", "serving 1 of 1 models")
        eventually(lambda: manager.has("WATCHDOG"))
        old.process.send_signal(signal.SIGHUP)
        eventually(lambda: any("RELOADING" in each for each in manager.messages))
        began = next(each for each in manager.messages if "RELOADING" in each)
        assert 0 < int(began["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
        eventually(lambda: [each.get("READY") for each in manager.messages].count("1") == 2)
        os.kill(old.process.pid, signal.SIGSTOP)
        time.sleep(0.2)
        manager.messages.clear()
        time.sleep(0.5)
        assert not manager.messages
        os.kill(old.process.pid, signal.SIGCONT)
        manager.messages.clear()
        new = Daemon.begin(tmp_path, settings, "--take-over")
        try:
            assert old.process.wait(WAIT_SECS) == 0
            assert manager.has("MAINPID", str(new.process.pid))
            assert not manager.has("STOPPING")
            new.until("took over")
            assert new.stop() == 0
            eventually(lambda: manager.has("STOPPING"))
        finally:
            new.kill()
    finally:
        old.kill()
