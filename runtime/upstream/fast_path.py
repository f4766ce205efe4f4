"""Messages that repeat all but the contents of their tensors: sent to an upstream from the callback that has
received them, without a task.

Contract: a message is sent here only if its usual path would send it at once, unobserved, to a server that
works. An answer that passes as it is ends the request here. After anything else the request takes its usual
path, on which ``SentCall`` is the client of the first attempt: no message is sent twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from interlingua.protocols.dialect import Repeats
from interlingua.protocols.splice import Splice
from interlingua.protocols.wire import ArrivingMessage, Headers
from interlingua.runtime.upstream.counts import UpstreamCounts
from interlingua.runtime.upstream.pool import Member
from interlingua.runtime.upstream.signature import KnownSignature, UpstreamSignature
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import Context


class SentCall:
    """A ``SentWaiter`` of a call that ``member`` was sent on ``path``; its client knows it by ``handle``. The
    request that takes it over gets the outcome from :meth:`send`, as from a client, once it has ``taken``
    the call. ``began`` is a ``time.monotonic_ns()``, as is when its message was ``translated``, if it was."""

    __slots__ = ("_future", "_outcome", "began", "handle", "member", "path", "taken", "translated")

    member: Member
    translated: int
    handle: Any

    def __init__(self, path: UpstreamFastPath) -> None:
        self.path = path
        self.began = time.monotonic_ns()
        self.taken = False
        self._future: asyncio.Future[None] | None = None
        self._outcome: Any = None

    @property
    def translates(self) -> bool:
        """Whether it is the first attempt of a request that is decoded."""
        return not self.taken and self.path.splice is not None

    def done(self) -> bool:
        """See ``SentWaiter``."""
        return self._outcome is not None

    def set_result(self, reply: Any) -> None:
        """See ``SentWaiter``."""
        self._outcome, self.handle = reply, None  # which refers to this call
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def set_exception(self, fault: Exception) -> None:
        """See ``SentWaiter``."""
        self.set_result(fault)

    def answer_begins(self, message: ArrivingMessage) -> Any:
        """See ``SentWaiter``."""
        return None

    async def send(self, message: Any) -> Any:
        """The reply to ``message``, which is sent already. Raises as a client."""
        if self._outcome is None:
            self._future = asyncio.get_running_loop().create_future()
            try:
                await self._future
            except BaseException:
                self.cancel()
                raise
        return await self.member.client.finish(message, self._outcome)

    def cancel(self) -> None:
        """End the call, unless it has ended."""
        if self._outcome is None:
            self.member.client.cancel(self.handle, self)

    def close(self) -> None:
        """No request will take it over, unless one has."""
        if not self.taken:
            self.taken = True
            self.cancel()
            rest = getattr(self._outcome, "rest", None)  # an error has none
            if rest is not None:
                rest.close()
            self.member.end(False)


@dataclass(slots=True, eq=False)
class UpstreamFastPath:
    """Sends messages that repeat one that fits ``known``, the signature of ``version``: ``repeats`` is what
    they repeat, ``call`` a call without its message, ``sent_size`` the
    size in bytes of every message that is sent, ``read`` reads a reply as ``Passthrough.answer``.
    ``target`` is the model, ``batch_size`` the batch elements of a message. A message to a server of another
    dialect is translated by ``splice``; one that passes has none, and may be sent on once ``lead`` bytes of
    it are here, if that is not 0. ``numbered`` is that of the caller's action. No message is sent here once
    it is known to be ``unfit`` for their answers."""

    target: Any
    upstream: Upstream
    signatures: UpstreamSignature
    counts: UpstreamCounts
    known: KnownSignature
    version: str
    repeats: Repeats
    call: Any
    sent_size: int
    read: Callable[[Any], Any]
    batch_size: int
    splice: Splice | None = None
    numbered: Callable[[Headers, Context], Headers] | None = None
    unfit: bool = False
    lead: int = 0
    _prepared: dict[Any, Any] = field(default_factory=dict)

    def begin(self, message: Any, context: Context, sent: SentCall) -> bool:
        """Send ``message``, which repeats, for a request with ``context``. False if its usual path might not,
        or might wait. Raises as a client."""
        if self.unfit or self.signatures.known(self.version) is not self.known:
            return False
        upstream = self.upstream
        pool, members = upstream.pool, upstream.pool.members
        turn = pool.turn
        member = members[0] if len(members) == 1 else pool.choose(())
        if member is None:
            return False
        handle = None
        if not member.open:
            if self.splice is not None:
                message = self.splice.of(message)
                sent.translated = time.monotonic_ns()
            deadline = sent.began / 1e9 + upstream.timeout
            if context.deadline is not None and context.deadline < deadline:
                deadline = context.deadline
            prepared = self._prepared.get(member.client) or self._prepare(member.client)
            handle = member.client.begin(prepared, message, deadline, sent)
        if handle is None:
            if len(members) > 1:
                pool.undo(turn)  # the usual path makes the same choice, and connects
            return False
        sent.member, sent.handle = member, handle
        member.running += 1
        member.requests += 1
        return True

    def _prepare(self, client: Any) -> Any:
        """What ``client`` needs to know of the calls; each has its own host. Raises as a client."""
        if len(self._prepared) >= len(self.upstream.pool.members):  # servers have left
            self._prepared.clear()
        found = self._prepared[client] = client.prepare(self.call, self.sent_size)
        return found
