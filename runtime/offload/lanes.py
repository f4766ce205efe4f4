"""A fair queue for few places: clients that wait take turns, whatever each of them has sent."""

from __future__ import annotations

import asyncio
from collections import deque

from interlingua.schemas import ErrorCode, InferenceError

MAX_WAITING_OF_CLIENT, MAX_WAITING = 256, 1024
"""How many messages of one client, and of all, wait for a place. Each holds its body."""


class Lanes:
    """``places`` at a time; those that wait are in a lane for each client, and lanes are served in turn."""

    def __init__(
        self, places: int, of_client: int = MAX_WAITING_OF_CLIENT, waiting: int = MAX_WAITING
    ) -> None:
        self._free = places
        self._of_client = of_client
        self._most = waiting
        self._lanes: dict[str, deque[asyncio.Future[None]]] = {}
        self.waiting = 0

    async def enter(self, client: str) -> None:
        """Wait for a place, which :meth:`leave` gives back. Raises OVERLOADED if too many wait."""
        if self._free:
            self._free -= 1
            return
        lane = self._lanes.get(client)
        if self.waiting >= self._most or (lane is not None and len(lane) >= self._of_client):
            whose = "this client" if self.waiting < self._most else "clients"
            count = self._of_client if self.waiting < self._most else self._most
            text = f"{count} long messages of {whose} wait to be decoded; try again"
            raise InferenceError(ErrorCode.OVERLOADED, text)
        if lane is None:
            lane = self._lanes[client] = deque()
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lane.append(place)
        self.waiting += 1
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled():
                self._forget(client, place)
            else:  # it was this one's turn
                self.leave()
            raise

    def leave(self) -> None:
        """Give the place to the lane whose turn it is."""
        if not self._lanes:
            self._free += 1
            return
        client = next(iter(self._lanes))
        lane = self._lanes.pop(client)
        place = lane.popleft()
        self.waiting -= 1
        if lane:
            self._lanes[client] = lane  # behind the others
        if place.cancelled():  # and not forgotten yet
            self.leave()
        else:
            place.set_result(None)

    def _forget(self, client: str, place: asyncio.Future[None]) -> None:
        lane = self._lanes.get(client)
        if lane is not None and place in lane:
            lane.remove(place)
            self.waiting -= 1
            if not lane:
                del self._lanes[client]
