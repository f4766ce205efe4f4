"""A stream of inferences through the pipeline: answers in order, faults among them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from itertools import pairwise

from interlingua.protocols.wire import GrpcAnswer, GrpcRequest
from interlingua.schemas import Datatype, Signature, TensorSpec
from tests.loopback import echoing, serving
from tests.protocols.trtis.grpc_exchange import header, infer
from tests.standins.trtis_contract import SERVICE, code_name, parse

ECHO = Signature((TensorSpec("a", Datatype.INT32, (-1, 1)),), (TensorSpec("x", Datatype.INT32, (-1, 1)),), 4)
SERVER = serving(echoing({"m": ECHO}), "trtis")


async def stream(messages: Iterable[bytes]) -> list[GrpcAnswer]:
    async def arriving() -> AsyncIterator[bytes]:
        for message in messages:
            yield message

    method = f"{SERVICE}StreamInfer"
    assert SERVER.handlers["grpc"].offers(method) == "stream"
    return [answer async for answer in SERVER.handlers["grpc"].stream(GrpcRequest(method, b""), arriving())]


def requested(identity: int, model: str = "m", batch_size: int = 1) -> bytes:
    head = header(batch_size, id=identity, input=[{"name": "a"}], output=[{"name": "x"}])
    message = infer(head, identity.to_bytes(4, "little") * batch_size, model=model)
    return message.SerializeToString()  # type: ignore[no-any-return]


async def test_answers_come_in_order_whatever_becomes_of_them() -> None:
    messages = [
        requested(identity, "lost" if identity % 7 == 0 else "m", 9 if identity % 11 == 0 else 1)
        for identity in range(1, 301)
    ]
    answers = [parse("InferResponse", bytes(answer.message)) for answer in await stream(messages)]
    assert [answer.meta_data.id for answer in answers] == list(range(1, 301))
    numbers = [answer.request_status.request_id for answer in answers]
    assert all(one < next_one for one, next_one in pairwise(numbers))
    for identity, answer in enumerate(answers, start=1):
        if identity % 7 == 0:
            assert code_name(answer.request_status) == "UNAVAILABLE"
            assert answer.request_status.msg == "Request for unknown model: 'lost' is not found"
        elif identity % 11 == 0:
            assert code_name(answer.request_status) == "INVALID_ARG"
        else:
            assert list(answer.raw_output) == [identity.to_bytes(4, "little")]


async def test_bytes_that_are_no_message_end_the_stream() -> None:
    answers = await stream([requested(1), b"\x0a\xff", requested(2)])
    assert [answer.code for answer in answers] == [0, 13]
    assert parse("InferResponse", bytes(answers[0].message)).meta_data.id == 1
