"""The fork server, as the supervisor sees it."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Sequence
from typing import Any

import orjson

from interlingua.runtime import interpreter
from interlingua.translator.workers import fork_server

_RESTART_SECS = 0.5
"""The interval until it starts again after it has exited."""

_REAP_SECS = 1.0
"""How long a fork server that is stopped delays the restart of a process."""

_log = logging.getLogger(__name__)


class ForkServerError(Exception):
    """The fork server has exited before it replied, or could not fork."""


class ForkServer:
    """A fresh interpreter that forks the other processes. After it has exited, it starts again; the
    processes that it has forked are not affected. Use on one event loop. Raises ``OSError``."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._replies: deque[asyncio.Future[Any]] = deque()
        self._restart: asyncio.TimerHandle | None = None
        self._sock: socket.socket | None = None
        self._start()

    async def fork(self, module: str, name: str, control: socket.socket) -> int:
        """The id of a new process that runs ``main`` of ``translator.workers.MODULE`` with the socket
        ``control``. Raises ``ForkServerError``, ``OSError``."""
        pid = await self._request(["fork", module, name], [control.fileno()])
        if not isinstance(pid, int):
            raise ForkServerError(pid)
        return pid

    async def reap(self, pid: int) -> int | None:
        """The exit code of a process that has exited, negative for a signal; None if it is not known."""
        try:
            async with asyncio.timeout(_REAP_SECS):
                code: int | None = await self._request(["reap", pid])
        except (TimeoutError, ForkServerError, OSError):
            return None
        return code

    def close(self) -> None:
        """End it."""
        if self._restart is not None:
            self._restart.cancel()
        self._end()

    async def _request(self, message: Any, descriptors: Sequence[int] = ()) -> Any:
        if self._sock is None:
            raise ForkServerError("the fork server has exited")
        try:
            socket.send_fds(self._sock, [orjson.dumps(message)], descriptors)
        except ConnectionError as error:  # _read has not been called yet
            raise ForkServerError("the fork server has exited") from error
        reply: asyncio.Future[Any] = self._loop.create_future()
        self._replies.append(reply)
        return await reply

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._popen = interpreter.start(fork_server.__name__, [theirs.fileno()])
        ours.setblocking(False)
        self._sock = ours
        self._loop.add_reader(ours.fileno(), self._read, ours)

    def _read(self, sock: socket.socket) -> None:
        try:
            message = sock.recv(fork_server.MESSAGE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if message:
            reply = self._replies.popleft()
            if not reply.done():
                reply.set_result(orjson.loads(message))
            return
        self._end()
        _log.error("process exited", extra={"facts": {"process": "fork server"}})
        self._restart = self._loop.call_later(_RESTART_SECS, self._start_again)

    def _start_again(self) -> None:
        try:
            self._start()
        except OSError as error:
            facts = {"process": "fork server", "reason": str(error)}
            _log.error("process not started", extra={"facts": facts})
            self._restart = self._loop.call_later(_RESTART_SECS, self._start_again)

    def _end(self) -> None:
        if self._sock is None:
            return
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()
        self._sock = None
        # it holds no state
        self._popen.kill()
        self._popen.wait()
        while self._replies:
            reply = self._replies.popleft()
            if not reply.done():
                reply.set_exception(ForkServerError("the fork server has exited"))
