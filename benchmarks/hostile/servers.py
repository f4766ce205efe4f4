"""The servers that are attacked: the daemon on either engine, and nghttpd, which echoes over HTTP/2."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.cases import CONFIG, MODEL
from benchmarks.processes import Server
from interlingua.protocols.registry import DIALECTS

ENGINES = ("native", "library")
NGHTTPD = "nghttpd"

STRINGS = "identity_bytes"
"""The identity of strings."""

_START_SECS = 10.0


def _every_dialect(transport: str) -> dict[str, Any]:
    dialects = [name for name, dialect in DIALECTS.items() if transport in dialect.bindings]
    return {"listen": "127.0.0.1:0", "transport": transport, "dialects": dialects}


def config(engine: str) -> dict[str, Any]:
    """Every transport, with every dialect that it carries, and limits by default."""
    strings = {
        "inputs": [{"name": "INPUT0", "datatype": "BYTES", "shape": [-1, -1]}],
        "outputs": [{"name": "OUTPUT0", "datatype": "BYTES", "shape": [-1, -1]}],
    }
    return {
        "server": CONFIG["server"],
        "listeners": [
            {**_every_dialect("http"), "engine": engine},
            {**_every_dialect("grpc"), "engine": engine},
            {"listen": "127.0.0.1:0", "transport": "brpc"},
            {"listen": "127.0.0.1:0", "transport": "tcp", "default_model": MODEL},
        ],
        "admin": {"listen": "127.0.0.1:0"},
        "models": {**CONFIG["models"], STRINGS: {"backend": "identity", "signature": strings}},
    }


def started(name: str, folder: Path) -> AbstractContextManager[Server]:
    """The server of that name: an engine's daemon, or nghttpd."""
    if name == NGHTTPD:
        return _nghttpd(folder)
    return processes.daemon(folder, config(name))


def installed() -> bool:
    """Whether nghttpd is."""
    return shutil.which(NGHTTPD) is not None


@contextmanager
def _nghttpd(folder: Path) -> Iterator[Server]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [NGHTTPD, "--no-tls", "--echo-upload", "-a", "127.0.0.1", "-d", str(folder), str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            began = time.monotonic()
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except ConnectionRefusedError:
                    if process.poll() is not None or time.monotonic() - began > _START_SECS:
                        raise
                    time.sleep(0.02)
            yield Server(process.pid, {"grpc": f"127.0.0.1:{port}"})
        finally:
            process.kill()
