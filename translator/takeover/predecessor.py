"""The daemon that runs already, as its successor sees it."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from interlingua.protocols.transport.address import parse_address
from interlingua.protocols.transport.listening_socket import ListeningSocket
from interlingua.translator.takeover.messages import (
    REPLY_SECS,
    VERSION,
    TakeoverError,
    peer_of,
    receive,
    receive_state,
    send,
)
from interlingua.translator.takeover.state import Changes, later, read

_AGAIN_SECS = 0.1

_log = logging.getLogger(__name__)


class Predecessor:
    """The daemon at the unix socket ``path``. ``sockets`` are its listening sockets, from which it goes on to
    accept until :meth:`release`; ``changes`` is what clients have changed there. Raises
    ``TakeoverError``."""

    def __init__(self, path: str) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # nothing else runs yet
        self._sock.settimeout(REPLY_SECS)
        try:
            self._sock.connect(path)
            # the process that first listened there: its user counts, its id is out of date after a hand-over
            peer_of(self._sock)
            send(self._sock, {"version": VERSION})
            found, _ = receive(self._sock)
            if "refused" in found:
                raise PermissionError(found["refused"])
            self.sockets = self._receive(found["sockets"])
            self.changes: Changes = read(receive_state(self._sock))
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._sock.close()
            reason = getattr(error, "strerror", None) or error
            raise TakeoverError(f"the daemon at {path} cannot be taken over: {reason}") from error
        # the files are the predecessor's until it is released
        self._removes = [bool(each["removes"]) for each in found["sockets"]]
        self.pid: int = found["pid"]
        self.was_ready: bool = found["ready"]
        self.watchdog_secs: float = found["watchdog_secs"]

    def _receive(self, described: list[dict[str, Any]]) -> list[ListeningSocket]:
        descriptors: list[int] = []
        while len(descriptors) < len(described):
            descriptors += receive(self._sock)[1]
        return [
            ListeningSocket(
                socket.socket(fileno=descriptor),
                parse_address(each["configured"]),
                each["name"],
                removes=False,
            )
            for descriptor, each in zip(descriptors, described, strict=True)
        ]

    async def until_matched(
        self, readiness: Callable[[], Awaitable[dict[str, Any]]], failed: Sequence[str], secs: float
    ) -> None:
        """Wait until this process is as ready as its predecessor was. Raises ``TakeoverError`` if it does not
        become so within ``secs``: required models have ``failed``, or upstreams are not ready."""
        if not self.was_ready:
            return
        deadline = asyncio.get_running_loop().time() + (0.0 if failed else secs)
        while not (found := await readiness())["ready"]:
            if asyncio.get_running_loop().time() >= deadline:
                reasons = "; ".join(found["reasons"])
                raise TakeoverError(f"not ready, which the daemon {self.pid} is: {reasons}")
            await asyncio.sleep(_AGAIN_SECS)

    async def release(self) -> Changes:
        """Have it accept nothing more, drain and exit: this process accepts. Returns what clients have
        changed there in the meantime."""
        changed: Changes = ()
        facts: dict[str, object] = {"pid": self.pid}
        try:
            send(self._sock, {"serving": True})
            now = read(await asyncio.to_thread(receive_state, self._sock))
            changed = later(self.changes, now)
        except (OSError, ValueError, KeyError, TypeError) as error:
            facts["reason"] = str(error)
            _log.warning("hand-over unconfirmed", extra={"facts": facts})
        else:
            _log.info("took over", extra={"facts": facts})
        finally:
            self._sock.close()
            for each, removes in zip(self.sockets, self._removes, strict=True):
                each.removes = removes
        return changed
