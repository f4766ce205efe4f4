"""Finds the calls of one connection whose client has stopped sending a message, or reading an answer.

A call that waits for its client makes progress when something of it arrives, or when its client opens a
flow-control window. A stream between two messages does not wait: it may be quiet for as long as its client
answers PING frames.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from interlingua.protocols.transport.grpc.call import GrpcCall
from interlingua.protocols.transport.h2.sender import Sender
from interlingua.protocols.transport.timeouts import Timeouts


class StallFinder:
    """Looks at calls now and then. ``body_secs`` and ``write_secs`` are those of ``timeouts``."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._limits = {"body": timeouts.body_secs, "write": timeouts.write_secs}
        self._seen: dict[GrpcCall, tuple[object, float]] = {}

    def stalled(
        self, calls: set[GrpcCall], sender: Sender[Any], now: float
    ) -> Iterator[tuple[GrpcCall, str]]:
        """The calls that have made no progress for too long, each with what it waits for: ``body`` or
        ``write``. ``now`` is monotonic time."""
        seen, self._seen = self._seen, {}
        for call in tuple(calls):
            if call.queued:
                # a window of the connection that is used up holds all streams
                wait, progress = "write", (call.send_window, sender.window if call.send_window > 0 else 0)
            elif call.awaits_body:
                wait, progress = "body", (call.received, call.sink.filled if call.sink is not None else 0)
            else:
                continue
            before, since = seen.get(call, (None, now))
            since = since if before == (wait, progress) else now
            self._seen[call] = ((wait, progress), since)
            if now - since >= self._limits[wait]:
                yield call, wait
