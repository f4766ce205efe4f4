"""The gRPC side of the grps stand-in, on the stubs that protoc makes. Every call ends with status OK."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from tests.standins.grps_contract import STUBS
from tests.standins.grps_server import GrpsServer


class _Service(STUBS.GrpsServiceServicer):  # type: ignore[misc]
    def __init__(self, server: GrpsServer) -> None:
        self._server = server

    async def Predict(self, request: Any, context: Any) -> Any:
        return self._server.predict(request)

    async def PredictStreaming(self, request: Any, context: Any) -> AsyncIterator[Any]:
        for piece in self._server.stream(request):
            yield piece

    async def Online(self, request: Any, context: Any) -> Any:
        return self._server.health("grpc", "online")

    async def Offline(self, request: Any, context: Any) -> Any:
        return self._server.health("grpc", "offline")

    async def CheckLiveness(self, request: Any, context: Any) -> Any:
        return self._server.health("grpc", "live")

    async def CheckReadiness(self, request: Any, context: Any) -> Any:
        return self._server.health("grpc", "ready")

    async def ServerMetadata(self, request: Any, context: Any) -> Any:
        return self._server.server_metadata("grpc")

    async def ModelMetadata(self, request: Any, context: Any) -> Any:
        return self._server.model_metadata(request)


async def start_grpc(server: GrpsServer) -> tuple[grpc.aio.Server, int]:
    """Start on a free port of 127.0.0.1; returns the server and the port."""
    limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    listening = grpc.aio.server(options=limits)
    STUBS.add_GrpsServiceServicer_to_server(_Service(server), listening)
    port = listening.add_insecure_port("127.0.0.1:0")
    await listening.start()
    return listening, port
