"""The bRPC side of the grps stand-ins: the server's methods, and a client that asks them.

Frames are those of ``brpc_frames``. There is no streaming here; failures of models are told in band, as everywhere.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from tests.standins.brpc_client import BrpcStandinClient
from tests.standins.brpc_frames import Received
from tests.standins.brpc_server import Answering, BrpcStandinServer, answer_frame
from tests.standins.grps_client import METHODS, checked
from tests.standins.grps_contract import BRPC_SERVICE, GrpsMessage
from tests.standins.grps_server import GrpsServer


def brpc_methods(server: GrpsServer) -> dict[str, Answering]:
    """What each method of ``server`` does over bRPC."""

    def answering(reply: Any) -> Answering:
        async def answer(received: Received) -> bytes:
            assert received.asked[0] == BRPC_SERVICE, received.asked
            told = reply(GrpsMessage.FromString(received.payload))
            return answer_frame(received.correlation_id, told.SerializeToString())

        return answer

    methods = {
        METHODS[what]: answering(_health(server, what)) for what in ("live", "ready", "online", "offline")
    }
    return {
        **methods,
        "Predict": answering(server.predict),
        "ServerMetadata": answering(lambda message: server.server_metadata("brpc")),
        "ModelMetadata": answering(server.model_metadata),
    }


def _health(server: GrpsServer, what: str) -> Any:
    return lambda message: server.health("brpc", what)


class BrpcServing:
    """``server`` on a free port of 127.0.0.1, while it is started."""

    def __init__(self, server: GrpsServer) -> None:
        self._standin = BrpcStandinServer(brpc_methods(server))
        self._running = AsyncExitStack()

    async def start(self) -> int:
        """Start; returns the port."""
        await self._running.enter_async_context(self._standin.running())
        return self._standin.port

    async def stop(self) -> None:
        """Stop, and break what is connected."""
        await self._running.aclose()


class GrpsBrpc:
    """The bRPC interface as the C++ client asks it: one connection, kept."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._loop = asyncio.Runner()
        self._kept = AsyncExitStack()
        self._client: BrpcStandinClient = self._loop.run(
            self._kept.enter_async_context(BrpcStandinClient.to(host, int(port)))
        )

    def get(self, what: str) -> Any:
        """``live``, ``ready``, ``online`` or ``offline``, and ``server`` for its metadata."""
        return checked(self.call(METHODS[what], GrpsMessage()))

    def model_metadata(self, name: str) -> Any:
        """The metadata of the model ``name``, without a version."""
        return checked(self.call("ModelMetadata", GrpsMessage(str_data=name)))

    def predict(self, message: Any) -> Any:
        """Ask with a message."""
        return checked(self.call("Predict", message))

    def call(self, method: str, message: Any) -> Any:
        """The reply to ``message``, whatever its status."""
        received = self._loop.run(self._client.call(method, message.SerializeToString()))
        assert received.error[0] == 0, received
        return GrpsMessage.FromString(received.payload)

    def close(self) -> None:
        """Close the connection."""
        self._loop.run(self._kept.aclose())
        self._loop.close()
