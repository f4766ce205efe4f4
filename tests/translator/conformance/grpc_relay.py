"""A relay in front of a gRPC server that spoils what comes back: one seeded fault at a time.

A fault is a generator over the answers of one call, which come as bytes. It gives what the caller gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc

Fault = Callable[[Iterable[bytes]], Iterator[bytes]]


class _Through(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Every method as a stream both ways, as which unary calls look the same on the wire."""

    def __init__(self, channel: grpc.Channel, method: str, fault: Fault) -> None:
        self._channel = channel
        self._method = method
        self._fault = fault

    def service(self, handler_call_details: Any) -> Any:
        path = handler_call_details.method

        def pass_on(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
            call = self._channel.stream_stream(path)(requests)
            try:
                yield from self._fault(call) if path.endswith(f"/{self._method}") else call
            except grpc.RpcError as error:
                context.abort(error.code(), error.details())

        return grpc.stream_stream_rpc_method_handler(pass_on)


@contextmanager
def grpc_relay(server: str, method: str, fault: Fault) -> Iterator[str]:
    """A relay to ``server``, whose answers to ``method`` go through ``fault``: its address."""
    with grpc.insecure_channel(server) as channel, ThreadPoolExecutor(32) as pool:
        listening = grpc.server(pool, handlers=[_Through(channel, method, fault)])
        port = listening.add_insecure_port("127.0.0.1:0")
        listening.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            listening.stop(None).wait()
