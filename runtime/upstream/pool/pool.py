"""Chooses the server of a request, and the next one if that is safe.

Contract: a request that may have reached a server goes to no other, unless it only reads. A request that
could not be sent goes to the next server, each of which is tried once. A sequence goes only to the server
with its state. Pinned requests of one stream stay together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from collections.abc import Sequence as Several
from types import TracebackType
from typing import Any

from interlingua.protocols.transport.closing import ended_by
from interlingua.protocols.wire import BodyRest, ConnectionFailedError
from interlingua.runtime.upstream.pool import spans
from interlingua.runtime.upstream.pool.discovery import Discovery
from interlingua.runtime.upstream.pool.homes import Homes, Key, Publish, SequenceServers
from interlingua.runtime.upstream.pool.member import Member
from interlingua.runtime.upstream.pool.probes import Probe, Probes
from interlingua.runtime.upstream.pool.unanswered import UnansweredError
from interlingua.runtime.upstream.pool.weighted import Weighted
from interlingua.runtime.upstream.shared_value import SharedValue
from interlingua.schemas import Context, ErrorCode, InferenceError, InferRequest, unavailable
from interlingua.schemas.errors import release_frames
from interlingua.schemas.trace import Span, Trace

_log = logging.getLogger(__name__)

EXAMINED_SECS = 0.2
"""The shortest time between two examinations of a pool."""

QUIET_SECS = 1.0
"""How long the servers of an upstream that leaves have had no request: one that waits for the signature makes
its call a moment after the signature has come."""


class Pool:
    """``members`` are the servers of one upstream; ``discovery`` may add and remove some, a file all of them.
    Without ``probes`` only requests show their health. ``weighted`` chooses if the servers ``differ``, else
    ``turn`` is the place of the last choice; ``homes`` are for sequences."""

    def __init__(
        self,
        members: Several[Member],
        probes: Probes | None = None,
        discovery: Discovery | None = None,
        weighted: Weighted | None = None,
        homes: SequenceServers | None = None,
    ) -> None:
        self.members = list(members)
        self._probes = probes
        self.discovery = discovery
        self.watched = self._watching = False
        self._upstream = ""
        self._query: Probe | None = None
        self.homes: SequenceServers = homes or Homes()
        self._server_changed: Callable[[Member], None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._examined: SharedValue[None] = SharedValue(EXAMINED_SECS)
        self.turn = 0
        self._weighted = weighted or Weighted()
        self.differ = self._weighted.differ(self.members)

    def share(self, server_changed: Callable[[Member], None], publish: Publish) -> None:
        """Notify the other processes of this daemon of changes."""
        self._server_changed = server_changed
        for member in self.members:
            member.changed = server_changed
        self.homes.share(publish)

    async def watch(self, upstream: str, query: Probe | None) -> None:
        """Serve ``upstream``, and probe every server by ``query`` (None: its dialect has no probe) from now
        on; once is enough. Returns when the servers are known."""
        self._upstream, self._query = upstream, query
        if not self._watching:
            self._watching = True
            self._begin(self.members)
        if self.discovery is not None:
            await self.discovery.follow(self._change)
        self.watched = True

    async def examine(self) -> bool:
        """Probe the servers that work, at once, but not again within a moment. Whether some server works now
        and another one does not: a call that only reads may have met the latter."""
        probes, query = self._probes, self._query
        if probes is None or query is None or len(self.members) < 2:
            return False
        await self._examined.get(lambda: probes.now(self._working(), query))
        return 0 < len(self._working()) < len(self.members)

    def _working(self) -> list[Member]:
        return [member for member in self.members if not member.rating]

    def _begin(self, members: Several[Member]) -> None:
        probed = self._probes is not None and self._query is not None
        for member in members:
            member.upstream, member.probed = self._upstream, probed
            member.changed = self._server_changed
        if self._probes is not None and self._query is not None:
            self._probes.start(members, self._query)

    def _change(self, come: Several[Member], go: Several[Member]) -> None:
        """Add and remove servers, or take over their weights; removed ones finish their requests."""
        self._begin(come)
        self.members = [member for member in self.members if member not in go] + list(come)
        self.differ = self._weighted.differ(self.members)
        if not come and not go:
            return
        self.homes.changed(self.members)
        facts = {
            "upstream": self._upstream,
            "added": ",".join(member.url for member in come),
            "removed": ",".join(member.url for member in go),
        }
        _log.info("upstream servers changed", extra={"facts": facts})
        for member in go:
            leaving = asyncio.create_task(ended_by(self._idle(member), member.close))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    async def _idle(self, member: Member) -> None:
        """Wait until ``member``, which gets no more requests, is not probed and has answered the last."""
        if self._probes is not None:
            await self._probes.stop((member,))
        await member.idle()

    def choose(self, tried: Several[Member]) -> Member | None:
        """The best server with the fewest requests, in turn among equals; None if no server except those
        ``tried`` takes a request now."""
        count = len(self.members)
        if count == 1 and not tried and not self.members[0].open:
            return self.members[0]
        if self.differ:
            return self._weighted.choose(self.members, tried)
        best: tuple[int, int] | None = None
        chosen = self.turn
        for step in range(1, count + 1):
            place = (self.turn + step) % count
            member = self.members[place]
            if not member.usable or member in tried:
                continue
            rated = member.rating, member.running
            if best is None or rated < best:
                best, chosen = rated, place
        if best is None:
            return None
        self.turn = chosen
        return self.members[chosen]

    def undo(self, turn: int) -> None:
        """Forget the last choice, before which ``turn`` was that."""
        if self.differ:
            self._weighted.undo()
        self.turn = turn

    def pinned(self, pins: dict[object, object], tried: Several[Member]) -> Member | None:
        """The server of requests that share ``pins``. They stay there while it works and is ready, then all
        move to another one."""
        member = pins.get(self)
        if (
            isinstance(member, Member)
            and member in self.members
            and member not in tried
            and not member.rating
        ):
            return member
        chosen = self.choose(tried)
        if chosen is not None:
            pins[self] = chosen
        return chosen

    def home(self, request: InferRequest, tried: Several[Member]) -> Member | None:
        """The server of a sequence. A new one may choose among those that work; others only go where their
        state is."""
        sequence = request.sequence
        assert sequence is not None, "only a sequence has a home"  # noqa: S101
        key: Key = (request.model, sequence.id)
        if sequence.start:
            ordered = self.homes.first(sequence.id, self.members)
            home = next((member for member in ordered if member not in tried), None)
        else:
            home = self.homes.find(key, self.members)
            home = None if home in tried else home
        if home is None or not home.usable:
            return None
        if sequence.end:
            self.homes.forget(key)
        else:
            self.homes.remember(key, home, self.members, sequence.start)
        return home

    @property
    def empty(self) -> str:
        """Why it has no server; empty if it has one."""
        listing = None if self.discovery is None else self.discovery.listing
        return "" if self.members or listing is None else listing.why_empty

    def some(self) -> Several[Member]:
        """The servers. Raises UNAVAILABLE if there is none."""
        if empty := self.empty:
            raise unavailable(empty)
        return self.members

    async def idle(self, hurry: asyncio.Future[None]) -> None:
        """Wait until no server, also of those that were removed, has had a request for a while; once
        ``hurry`` is done, only until none has one."""
        while True:
            begun = self._begun
            for member in self.members:
                await member.idle()
            if self._leaving:
                await asyncio.wait(tuple(self._leaving))
            await asyncio.wait((hurry,), timeout=QUIET_SECS)
            if self._begun == begun:
                return

    @property
    def _begun(self) -> int:
        """How many requests its servers have had."""
        return sum([member.requests for member in self.members])

    async def close(self) -> None:
        if self.discovery is not None:
            await self.discovery.stop()
        for leaving in list(self._leaving):
            leaving.cancel()
            await asyncio.wait((leaving,))
        if self._probes is not None:
            await self._probes.stop(self.members)
        await asyncio.gather(*(member.close() for member in self.members))


class Attempt:
    """One request, tried at one server after the other: enter it to get a client, again and again until the
    block ends with a result or an exception. ``request`` is the inference to send, if it is decoded, else
    ``context`` is its context; a call that this has ``sent`` is the first client. ``harmless``: repeating it
    changes nothing. The block suppresses ``ConnectionFailedError`` if another server may be tried. Entering
    raises the last such error if no server is left, UNAVAILABLE if none takes a request. With a ``trace``,
    each has a ``span`` in it from :meth:`begin_span` on."""

    __slots__ = (
        "_context",
        "_failure",
        "_harmless",
        "_pool",
        "_request",
        "_sent",
        "_trial",
        "_tried",
        "member",
        "span",
        "trace",
    )

    def __init__(
        self,
        pool: Pool,
        request: InferRequest | None = None,
        harmless: bool = False,
        context: Context | None = None,
    ) -> None:
        self._pool = pool
        self._sent: Any = None
        self._request = request if request is not None and request.sequence is not None else None
        self._context = context if request is None else request.context
        sent = None if self._context is None else self._context.sent
        if sent is not None and (request is None or sent.translates):
            self._sent = sent
        self.trace: Trace | None = None if self._context is None else self._context.trace
        self.span: Span | None = None
        self._harmless = harmless
        self._tried: tuple[Member, ...] = ()
        self._failure: InferenceError | None = None
        self.member: Member
        self._trial = False

    def __enter__(self) -> Any:
        pool, request, context = self._pool, self._request, self._context
        if self._sent is not None:
            return self._take()
        if request is not None:
            member = pool.home(request, self._tried)
        elif context is not None and context.pins is not None:
            member = pool.pinned(context.pins, self._tried)
        elif len(pool.members) == 1 and not self._tried and not pool.members[0].open:
            member = pool.members[0]  # Pool.choose, inlined
        else:
            member = pool.choose(self._tried)
        if member is None:
            raise self._failure or unavailable(self._why_unavailable())
        self.member = member
        if context is not None:
            context.upstream = member.url
        member.running += 1
        member.requests += 1
        self._trial = member.open
        if self._trial:
            member.trying = True
        return member.client

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        member = self.member
        member.end(error is None)
        if self._trial:
            member.trying = False
        if self.span is not None and self.trace is not None:
            spans.end(self.trace, self.span, error)
        if isinstance(error, InferenceError):
            self._judge(error)
        if isinstance(error, ConnectionFailedError) and (self._harmless or not error.sent):
            self._tried = (*self._tried, member)
            self._failure = error
            release_frames(error)
            return True
        return False

    def _take(self) -> Any:
        """The call that is sent already, and counted, as the client."""
        sent, self._sent = self._sent, None
        self.member, sent.taken = sent.member, True
        if self._context is not None:
            self._context.upstream = sent.member.url
        return sent

    def begin_span(self, message: Any) -> None:
        """Record the attempt to send ``message``."""
        if self.trace is not None:
            member = self.member
            self.span = spans.begin(self.trace, message, member.upstream, member.url, len(self._tried))

    def received(self) -> None:
        """The server has sent part of its answer."""
        self.member.answered()
        if self._trial:
            self._trial = self.member.trying = False

    def extend(self, rest: BodyRest) -> None:
        """The request ends with the ``rest`` of its answer, after the block."""
        self.member.running += 1
        rest.on_end(self._arrived)

    def _arrived(self, failure: BaseException | None) -> None:
        self.member.end(failure is None)
        if self.span is not None and self.trace is not None:
            spans.end(self.trace, self.span, failure)
        if isinstance(failure, InferenceError):
            self._judge(failure)

    def _judge(self, error: InferenceError) -> None:
        member = self.member
        if isinstance(error, UnansweredError):
            return
        if self._harmless and (error.code is ErrorCode.BAD_UPSTREAM or getattr(error, "sent", False)):
            # a call about a model says little about the server: a probe decides
            member.suspected.set()
        elif isinstance(error, ConnectionFailedError):
            member.failed(error.message, unreachable=not error.sent)
        elif error.code is ErrorCode.DEADLINE_EXCEEDED:
            # the deadline may have been short: a probe decides
            member.suspected.set()
        elif error.code is ErrorCode.BAD_UPSTREAM:
            # an invalid answer of one model is no reason to leave the last server
            if any(not other.open for other in self._pool.members if other is not member):
                member.failed(error.message)
        elif error.code is not ErrorCode.MALFORMED:  # which may never have been sent
            member.answered()

    def _why_unavailable(self) -> str:
        if empty := self._pool.empty:
            return empty
        reasons = [member.reason for member in self._pool.members if member.reason]
        last = reasons[-1] if reasons else "none has been seen"
        if self._request is not None and self._request.sequence is not None:
            who = f"the server of sequence '{self._request.sequence.id}' is gone or being tried"
        else:
            who = "all servers fail and are being tried"
        return f"{who}; the last failure: {last}"
