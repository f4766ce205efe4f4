"""Pieces of a streamed reply are decoded once, however long they are."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Any

from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest
from interlingua.runtime.offload.pool import OffloadPool
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import Context, InferRequest, InferResponse, Operation, offload


class Client:
    """Replies with three pieces."""

    async def stream(self, request: GrpcRequest) -> AsyncGenerator[GrpcAnswer, None]:
        for text in (b"a", b"b", b"c"):
            yield GrpcAnswer(text)

    async def close(self) -> None:
        """Nothing is open."""


def encode(request: Any, signature: Any) -> tuple[GrpcRequest, list[str]]:
    return GrpcRequest("/a/b", b""), []


def decode(seen: list[str], answer: GrpcAnswer) -> Iterator[InferResponse]:
    seen.append(bytes(answer.message).decode())
    yield InferResponse(offload.call("".join, seen), ())


async def test_a_decoder_with_state_runs_once_for_each_piece() -> None:
    calls = {Operation.INFER_STREAM: UpstreamCall(encode, decode)}
    upstream = Upstream("there", calls, [Client()], 5.0)
    async with OffloadPool(1):
        found = [each.model async for each in upstream.stream(InferRequest("m", ()), None, Context())]
    await upstream.close()
    assert found == ["a", "ab", "abc"]
