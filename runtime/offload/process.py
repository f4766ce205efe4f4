"""An offload process, as the thread that it belongs to sees it."""

from __future__ import annotations

import logging
import socket
import subprocess
from collections.abc import Callable
from typing import Any

from interlingua.runtime import interpreter
from interlingua.runtime.offload.frames import receive, send
from interlingua.schemas import ErrorCode, InferenceError
from interlingua.schemas.offload import DecodingLimits

_log = logging.getLogger(__name__)

_WORKER = "interlingua.runtime.offload.worker"

_END_SECS = 5.0


class OffloadProcess:
    """Carries out calls of one thread. The process starts with the first call, and again after it has
    exited."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket | None = None
        self._killed = False

    def __call__(
        self, limits: DecodingLimits, function: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> Any:
        """The result of ``function(*arguments)``. Blocks. Raises as ``function``; INTERNAL if the process has
        exited, CANCELLED after :meth:`kill`."""
        # a large bytes object would be copied into the pickle
        shared = tuple([memoryview(each) if type(each) is bytes else each for each in arguments])
        if self._killed:
            self._end()
        try:
            sock = self._sock or self._start()
            send(sock, (limits, function, shared))
            result, error = receive(sock)
        except (OSError, EOFError) as failure:
            self._end()
            if self._killed:
                raise InferenceError(ErrorCode.CANCELLED, "the caller is gone") from failure
            _log.error("offload process exited", extra={"facts": {"reason": str(failure)}})
            raise InferenceError(
                ErrorCode.INTERNAL, "the process that decodes long messages has exited"
            ) from failure
        if error is not None:
            raise error
        return result

    def kill(self) -> None:
        """End the running call, from another thread: its result is not needed."""
        self._killed = True
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._end()

    def _start(self) -> socket.socket:
        parent_end, child_end = socket.socketpair()
        with child_end:
            self._process = interpreter.start(_WORKER, [child_end.fileno()])
        self._sock, self._killed = parent_end, False
        return parent_end

    def _end(self) -> None:
        """Free the process and its socket."""
        sock, self._sock = self._sock, None
        process, self._process = self._process, None
        if sock is not None:
            sock.close()
        if process is not None:
            interpreter.end(process, _END_SECS)
