"""The fork server: a process with the modules of front ends and of the runtime process, which it forks.

A fork takes milliseconds, the imports a second or more, and forked processes share the memory of modules. A
fork is safe only in a process with one thread (POSIX.1-2017, ``fork``), so this one starts none: it has no
event loop, and imports no engine.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import orjson

MESSAGE_BYTES = 4096
"""The longest message between the supervisor and the fork server."""

_MODULES = ("front_end", "runtime_process")
_LATER = ("uvloop",)
"""What every process imports later, where it is installed."""

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def main(descriptor: int) -> None:
    """Serve the supervisor at the other end of the socket ``descriptor``, until it has exited. Returns in
    each forked process too, after its own ``main``."""
    # the supervisor ends this process; a terminal sends its signals to all
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # a collection would write to memory that is shared after a fork
    gc.disable()
    mains = _imported()
    gc.freeze()
    _call("fork server")
    forked = _serve(socket.socket(fileno=descriptor))
    if forked is not None:
        module, name, control = forked
        _call(name)
        gc.enable()
        mains[module](control)


def _call(name: str) -> None:
    """Name this process, as ``top`` and ``ps -o comm`` show it: proc(5), 15 characters at most."""
    Path("/proc/self/comm").write_text(name)


def _imported() -> dict[str, Callable[[int], None]]:
    """The ``main`` of each kind of process."""
    before = os.environ.get(_BLAS_THREADS)
    # NumPy's OpenBLAS starts its threads when it is imported, and nothing here multiplies matrices
    os.environ[_BLAS_THREADS] = "1"
    try:
        found = {name: import_module(f"interlingua.translator.workers.{name}").main for name in _MODULES}
    finally:
        del os.environ[_BLAS_THREADS]
        if before is not None:
            os.environ[_BLAS_THREADS] = before
    for name in _LATER:
        try:
            import_module(name)
        except ImportError:
            continue
    return found


def _serve(sock: socket.socket) -> tuple[str, str, int] | None:
    """Fork and reap processes. Returns in a forked process what to run there, its name and its control
    socket; None when the supervisor has exited."""
    with sock:
        while True:
            message, descriptors, _, _ = socket.recv_fds(sock, MESSAGE_BYTES, 1)
            if not message:
                return None
            kind, *arguments = orjson.loads(message)
            reply: int | str | None
            try:
                reply = os.fork() if kind == "fork" else _reaped(*arguments)
            except OSError as error:
                reply = str(error)
            if reply == 0 and kind == "fork":
                return arguments[0], arguments[1], descriptors[0]
            for each in descriptors:
                os.close(each)
            sock.send(orjson.dumps(reply))


def _reaped(pid: int) -> int | None:
    """The exit code of a process that has exited; None if another fork server has started it."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return None
