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
from dataclasses import dataclass
from typing import Any

from interlingua.protocols.dialect import Repeats
from interlingua.protocols.wire import Buffer
from interlingua.runtime.upstream.counts import UpstreamCounts
from interlingua.runtime.upstream.pool import Member
from interlingua.runtime.upstream.signature import KnownSignature, UpstreamSignature
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import Context


class SentCall:
    """A ``SentWaiter`` of a call that ``member`` was sent on ``path``; its client knows it by ``handle``. The
    request that takes it over gets the outcome from :meth:`send`, as from a client, once it has ``taken``
    the call. ``began`` is a ``time.monotonic_ns()``."""

    __slots__ = ("_future", "_outcome", "began", "handle", "member", "path", "taken")

    member: Member
    handle: Any

    def __init__(self, path: UpstreamFastPath) -> None:
        self.path = path
        self.began = time.monotonic_ns()
        self.taken = False
        self._future: asyncio.Future[None] | None = None
        self._outcome: Any = None

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
            self.member.end(False)


@dataclass(slots=True, eq=False)
class UpstreamFastPath:
    """Sends messages that repeat one that fits ``known``, the signature of ``version``: ``repeats`` is what
    they repeat, ``call`` a call with its headers, ``read`` reads a reply as ``Passthrough.answer``.
    ``target`` is the model, ``batch_size`` the batch elements of a message."""

    target: Any
    upstream: Upstream
    signatures: UpstreamSignature
    counts: UpstreamCounts
    known: KnownSignature
    version: str
    repeats: Repeats
    call: Any
    read: Callable[[Any], Any]
    batch_size: int
    _client: Any = None
    _prepared: Any = None

    def begin(self, message: Buffer, context: Context, sent: SentCall) -> bool:
        """Send ``message``, which repeats, for a request with ``context``. False if its usual path might not,
        or might wait. Raises as a client."""
        if self.signatures.known(self.version) is not self.known:
            return False
        upstream = self.upstream
        pool = upstream.pool
        members, turn = pool.members, pool.turn
        if len(members) == 1:
            member: Member | None = members[0]
        else:
            member = None if pool.differ else pool.choose(())
        if member is None or member.open:
            pool.turn = turn
            return False
        client = member.client
        if client is not self._client:
            self._client, self._prepared = client, client.prepare(self.call)
        deadline = sent.began / 1e9 + upstream.timeout
        if context.deadline is not None and context.deadline < deadline:
            deadline = context.deadline
        handle = client.begin(self._prepared, message, deadline, sent)
        if handle is None:
            pool.turn = turn  # the usual path makes the same choice, and connects
            return False
        sent.member, sent.handle = member, handle
        member.running += 1
        member.requests += 1
        return True
