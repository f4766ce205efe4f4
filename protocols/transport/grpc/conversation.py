"""One call of a streaming gRPC method, with its messages sent and received in a given order.

``GrpcChannelClient`` sends one message on each call, which is all that translation needs. Here a caller sends
several, and may wait for answers in between: what tests of a server need.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from queue import SimpleQueue

import grpc

from interlingua.protocols.transport.address import Url
from interlingua.protocols.transport.grpc.library_client import LARGEST_MESSAGE
from interlingua.protocols.wire import GrpcAnswer

_OPTIONS = (
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)


async def converse(
    url: Url, method: str, messages: Sequence[bytes], waits: Sequence[int], timeout_secs: float
) -> tuple[list[bytes], GrpcAnswer]:
    """Send each of ``messages``, and after each wait for as many answers as ``waits`` says; then close our
    side and take the rest. Gives the answers and the status that the call ended with, which has no message:
    DEADLINE_EXCEEDED where it had not ended after ``timeout_secs``."""
    # in a thread: on an event loop, grpcio has INTERNAL in place of the status of a server that ends a call
    # before it has read
    return await asyncio.to_thread(_converse, url, method, messages, waits, timeout_secs)


def _converse(
    url: Url, method: str, messages: Sequence[bytes], waits: Sequence[int], timeout_secs: float
) -> tuple[list[bytes], GrpcAnswer]:
    answers: list[bytes] = []
    heard: SimpleQueue[bool] = SimpleQueue()

    def requests() -> Iterator[bytes]:
        for message, wait in zip(messages, waits, strict=True):
            yield message
            for _ in range(wait):
                if not heard.get():  # the call has ended
                    return

    with grpc.insecure_channel(str(url.address), options=_OPTIONS) as channel:
        call = channel.stream_stream(method)(requests(), timeout=timeout_secs)
        try:
            for answer in call:
                answers.append(answer)
                heard.put(True)
        except grpc.RpcError:
            pass  # the status below has the reason
        finally:
            heard.put(False)
        return answers, GrpcAnswer(code=call.code().value[0], details=call.details() or "")
