"""One call of a gRPC method that takes a stream of messages, said and heard in a given order.

``GrpcChannelClient`` sends one message on each call, which is all that translation needs. Here a caller says
several, and may wait for answers in between: what tests of a server need.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import grpc
import grpc.aio

from protocols.transport.address import Url
from protocols.transport.grpc_client import LARGEST_MESSAGE
from protocols.wire import Buffer, GrpcAnswer

_OPTIONS = (
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)


async def converse(
    url: Url, method: str, messages: Sequence[Buffer], waits: Sequence[int], timeout_secs: float
) -> tuple[list[bytes], GrpcAnswer]:
    """Send each of ``messages``, and after each wait for as many answers as ``waits`` says; then close our
    side and take the rest. Gives the answers and the status that the call ended with, which has no message:
    DEADLINE_EXCEEDED where it had not ended after ``timeout_secs``."""
    answers: list[bytes] = []
    async with grpc.aio.insecure_channel(str(url.address), options=_OPTIONS) as channel:
        call = channel.stream_stream(method)(timeout=timeout_secs)
        try:
            for message, wait in zip(messages, waits, strict=True):
                await call.write(bytes(message))
                for _ in range(wait):
                    answer = await call.read()
                    if answer is grpc.aio.EOF:
                        break
                    answers.append(answer)
            await call.done_writing()
            while (answer := await call.read()) is not grpc.aio.EOF:
                answers.append(answer)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the call has ended, by the status below
        code, details = await call.code(), await call.details()
    return answers, GrpcAnswer(code=code.value[0], details=details or "")
