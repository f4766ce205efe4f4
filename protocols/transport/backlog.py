"""Bounds the requests of one connection that are in flight; what its client sends beyond waits in the
socket."""

from __future__ import annotations

import asyncio


class Backlog:
    """``requests`` and ``size``, their bytes, are counted by the owner, who reads while it :attr:`accepts`.
    One request of the largest size, ``max_bytes``, is always accepted, so twice that may be held."""

    __slots__ = ("_max_bytes", "_max_requests", "_transport", "requests", "size", "writable")

    def __init__(self, transport: asyncio.Transport, max_requests: int, max_bytes: int) -> None:
        self._transport = transport
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self.requests = self.size = 0
        self.writable = True

    @property
    def accepts(self) -> bool:
        """Whether one more request may begin."""
        return (
            self.writable
            and self.requests < self._max_requests
            and self.size < self._max_bytes
            and not self._transport.is_closing()
        )
