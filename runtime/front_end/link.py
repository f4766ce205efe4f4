"""The way of a front end to the runtime process, which may exit and be started again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from interlingua.runtime.front_end.snapshot import ModelsSnapshot
from interlingua.runtime.ring.channel import Ends
from interlingua.runtime.ring.client import RuntimeClient
from interlingua.schemas import unavailable

ABSENT = "the runtime process is being started"


class RuntimeLink:
    """Connected to at most one runtime process. Calls ``apply`` with its snapshots and ``lost`` after it has
    exited. Use on one event loop."""

    def __init__(self, apply: Callable[[ModelsSnapshot], None], lost: Callable[[], None]) -> None:
        self._apply = apply
        self._lost = lost
        self._client: RuntimeClient | None = None

    @property
    def connected(self) -> bool:
        """Whether the models of the last snapshot may answer."""
        return self._client is not None

    @property
    def client(self) -> RuntimeClient:
        """The end of the channel. Raises UNAVAILABLE while there is no runtime process."""
        if self._client is None:
            raise unavailable(ABSENT)
        return self._client

    async def connect(self, ends: Ends) -> None:
        """Replace the runtime process by that at the other end of ``ends``; return after its first snapshot.
        Raises ``OSError``, UNAVAILABLE if it exits before."""
        self.close()
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def arrived(snapshot: ModelsSnapshot) -> None:
            self._client = client
            self._apply(snapshot)
            client.acknowledge(snapshot.number)
            if not first.done():
                first.set_result(None)

        def ended() -> None:
            if not first.done():
                first.set_exception(unavailable(ABSENT))
            if self._client is client:
                self._client = None
                self._lost()

        client = RuntimeClient(ends, arrived, ended)
        try:
            await first
        except BaseException:
            client.close()
            raise

    def close(self) -> None:
        """Disconnect; running requests fail."""
        if self._client is not None:
            self._client.close()
