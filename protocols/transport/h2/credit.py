"""Lends flow-control windows to messages that do not fit the initial window of their stream.

Contract: all messages of a connection that are arriving share ``budget`` bytes beyond their initial windows,
in the order of their requests; a larger message is received alone. So the initial windows of its streams, the
budget and one message bound what a client may have us hold.
"""

from __future__ import annotations

from collections.abc import Callable

from interlingua.protocols.transport.h2.stream import Stream

MAX_LOAN = 8 << 20
"""The largest window that is lent to one stream: a tensor of 8 MiB waits once."""


class WindowCredit:
    """``grant`` has the peer send as many bytes more on a stream."""

    def __init__(self, budget: int, grant: Callable[[Stream, int], None]) -> None:
        self._budget = budget
        self._grant = grant
        self._lent = 0
        self._waiting: dict[Stream, None] = {}

    def request(self, stream: Stream) -> None:
        """Lend ``stream`` what its message lacks, now or when others have given back theirs. Its window is
        held until then."""
        if stream not in self._waiting:
            stream.window_held = True
            self._waiting[stream] = None
            self._lend()

    def give_back(self, stream: Stream) -> None:
        """The message of ``stream`` is complete, or is no longer received."""
        self._waiting.pop(stream, None)
        self._lent -= stream.loan
        stream.received -= stream.loan  # as much is received next without credit
        stream.loan = stream.looked_at = 0
        self._lend()

    def _lend(self) -> None:
        while self._waiting:
            stream = next(iter(self._waiting))
            loan = 0 if stream.closed else min(stream.missing, MAX_LOAN)
            if self._lent and self._lent + loan > self._budget:
                return
            del self._waiting[stream]
            self._lent += loan
            stream.loan, stream.window_held = loan, False
            if not stream.closed:
                self._grant(stream, loan)
