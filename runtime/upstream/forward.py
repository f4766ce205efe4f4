"""Messages that a plan sends to an upstream from the callback that has received them, without a task.

Contract: a message is sent here only if the pipeline would send it at once to a server that works. A reply
that the plan can use ends the request here. After anything else the pipeline goes on with it, and
``SentCall`` is the client of its first attempt: no message is sent twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from interlingua.protocols.dialect import Opened
from interlingua.protocols.splice import Splice
from interlingua.protocols.templates import MessageTemplate
from interlingua.protocols.wire import NO_CONTEXT, NO_PARAMS, ArrivingMessage, Buffer, Headers
from interlingua.runtime.upstream.counts import UpstreamCounts
from interlingua.runtime.upstream.pool import Member
from interlingua.runtime.upstream.signature import KnownSignature, UpstreamSignature
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import Context


class ReceivedMessage(NamedTuple):
    """A ``message`` of a caller, for ``model`` in ``version``. ``open`` opens one like it. ``context`` is not
    that of a request."""

    message: Buffer
    open: Callable[[Buffer], Opened[Any]]
    model: str
    version: str
    context: Context


class SentCall:
    """A ``SentWaiter`` of a call that ``forward`` has sent to ``member``, for the ``model``; its client knows
    it by ``handle``. The request that takes it over gets the outcome from :meth:`send`, as from a client,
    once it has ``taken`` the call. ``began`` is a ``time.monotonic_ns()``, as is when its message was
    ``translated``, if it was."""

    __slots__ = (
        "_future",
        "_outcome",
        "began",
        "forward",
        "handle",
        "member",
        "model",
        "taken",
        "translated",
    )

    member: Member
    translated: int
    handle: Any

    def __init__(self, forward: UpstreamForward, model: str) -> None:
        self.forward = forward
        self.model = model
        self.began = time.monotonic_ns()
        self.taken = False
        self._future: asyncio.Future[None] | None = None
        self._outcome: Any = None

    @property
    def translates(self) -> bool:
        """Whether it is the first attempt of a request that is decoded."""
        return not self.taken and self.forward.decodes

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
class UpstreamForward:
    """Forwards messages of ``template``, of requests for ``version`` of the model ``target`` that fit
    ``known``. The pipeline sends ``call``, which is here without its message, and with one of ``sent_size``
    bytes, made by ``splice``, or as it came. ``decodes``: the pipeline decodes it for that; else it passes
    through. ``read`` returns the caller's response to a reply and the version that ran, or anything else
    where the pipeline has to read it; it takes the id of the request too, if the template has one.
    ``batch_size`` has the batch elements of a message; it may be sent once ``lead`` bytes of it are here, if
    that is not 0. ``numbered`` is that of the caller's action. Nothing is sent here once it is known to be
    ``unfit`` for the replies; ``missed`` counts those in a row that it was."""

    target: Any
    upstream: Upstream
    signatures: UpstreamSignature
    counts: UpstreamCounts
    known: KnownSignature
    version: str
    template: MessageTemplate
    call: Any
    sent_size: int
    read: Callable[..., Any]
    batch_size: int
    splice: Splice | None = None
    decodes: bool = False
    numbered: Callable[[Headers, Context], Headers] | None = None
    unfit: bool = False
    missed: int = 0
    lead: int = 0
    _prepared: dict[Any, Any] = field(default_factory=dict)

    def begin(self, message: Any, context: Context, sent: SentCall) -> bool:
        """Send ``message``, which repeats, for a request with ``context``. False if the pipeline might not,
        or might wait. Raises as a client."""
        known = self.known
        # UpstreamSignature.known, inlined; requests to a decoupled model may become streams
        if self.unfit or known.decoupled or self.signatures.values.known.get(self.version) is not known:
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
            if self.decodes:
                sent.translated = time.monotonic_ns()
            deadline = sent.began / 1e9 + upstream.timeout
            if context.deadline is not None and context.deadline < deadline:
                deadline = context.deadline
            client, headers = member.client, NO_PARAMS
            if context is not NO_CONTEXT or upstream.forwarding.own:
                headers = upstream.forwarding.headers_for(self.call, context)
            prepared = self._prepared.get(client) or self._prepare(client)
            if headers and not headers.keys().isdisjoint(sent_headers(self.call)):
                prepared, headers = (
                    client.prepare(with_headers(self.call, headers), self.sent_size),
                    NO_PARAMS,
                )
            handle = client.begin(prepared, message, deadline, sent, headers)
        if handle is None:
            if len(members) > 1:
                pool.undo(turn)  # the pipeline makes the same choice, and connects
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


def sent_headers(call: Any) -> Mapping[str, str]:
    """The headers, or the metadata, of ``call``."""
    found: Mapping[str, str] = call.metadata if hasattr(call, "metadata") else call.headers
    return found


def with_headers(call: Any, headers: Mapping[str, str]) -> Any:
    """A copy of ``call`` with ``headers``."""
    call = replace(call)
    call.add_headers(headers)
    return call
