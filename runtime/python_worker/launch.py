"""Starts and ends the process of a worker."""

from __future__ import annotations

import logging
import signal
import socket
import subprocess

from interlingua.runtime import interpreter

_WORKER = "interlingua.runtime.python_worker.worker"

_STOP_SECS = 10.0
"""How long a model may take to finalize."""

_log = logging.getLogger(__name__)


def start(descriptors: list[int]) -> subprocess.Popen[bytes]:
    """A fresh interpreter that runs the worker's ``main`` on ``descriptors``."""
    return interpreter.start(_WORKER, descriptors)


def end(process: subprocess.Popen[bytes], sock: socket.socket) -> None:
    """End the process, kill it after a while, and free it. Blocks."""
    try:
        sock.shutdown(socket.SHUT_WR)
    except OSError:
        _log.debug("worker exited before the stop request")
    interpreter.end(process, _STOP_SECS)
    sock.close()


def how_ended(process: subprocess.Popen[bytes]) -> str:
    """How the process ended, whose side of the socket is closed; kills it if it has not."""
    try:
        code = process.wait(0.1)
    except subprocess.TimeoutExpired:
        process.kill()
        return "it closed its connection"
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
