"""tritonclient in each of its kinds behind one synchronous face, and the table of checks that use it.

A check drives a server as a user's program would and fails with an ``AssertionError`` or the client's
own exception. It knows nothing of who the server is: the same checks run against the daemon, against the
servers of other projects, and against those through the daemon. The servers need the models of
``tests/golden/oip/model_repository``, or others that do the same under the same names.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import inspect
import queue
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
from tritonclient.utils import InferenceServerException

HTTP = ("http", "http.aio")
GRPC = ("grpc", "grpc.aio")
EVERY = (*HTTP, *GRPC)

WAIT_SECS = 20
"""How long an answer may take that is waited for beside the client's own calls."""

STREAM_SECS = 5
"""How long one answer of a stream may take."""

_CLIENTS: dict[str, Any] = {
    "http": tritonclient.http.InferenceServerClient,
    "http.aio": tritonclient.http.aio.InferenceServerClient,
    "grpc": tritonclient.grpc.InferenceServerClient,
    "grpc.aio": tritonclient.grpc.aio.InferenceServerClient,
}


def _alive(answer: Any) -> Any:
    """The answer, unless it says that the stream has ended: then there is a status."""
    if isinstance(answer, InferenceServerException) and answer.status() is not None:
        raise answer
    return answer


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """One loop for all: grpc.aio delivers late events to the loop of a call, which must not be closed."""
    made = asyncio.new_event_loop()
    atexit.register(made.close)
    return made


@dataclass(frozen=True)
class Server:
    """Where a server listens, as ``host:port``."""

    http: str
    grpc: str
    binary: bool = True
    """Whether it takes binary data over HTTP; in the other case inputs go as JSON."""
    ends_streams: bool = True
    """Whether it ends a stream whose requests have ended. Where it does not, as MLServer, tritonclient waits
    for ever, so nobody asks it for one."""
    metrics: str = ""
    """Where its metrics are, where that is known."""


class Client:
    """One of tritonclient's four clients. Its methods are the client's own, awaited where they need it;
    those of gRPC that can answer with JSON do."""

    def __init__(self, kind: str, server: Server) -> None:
        self.kind = kind
        self.server = server
        self.over_http = kind in HTTP
        self.module: Any = tritonclient.http if self.over_http else tritonclient.grpc
        self._loop = _loop() if kind.endswith(".aio") else None
        self._client = self._finished(self._made(server.http if self.over_http else server.grpc))

    async def _made(self, address: str) -> Any:
        # aiohttp wants a running loop; the synchronous HTTP client needs a pool for asynchronous calls
        options = {"concurrency": 4} if self.kind == "http" else {}
        return _CLIENTS[self.kind](address, **options)

    def _finished(self, made: Any) -> Any:
        if not inspect.iscoroutine(made):
            return made
        if self._loop is None:
            return asyncio.run(made)
        return self._loop.run_until_complete(asyncio.wait_for(made, WAIT_SECS))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        if "as_json" in inspect.signature(method).parameters:
            method = functools.partial(method, as_json=True)
        return lambda *given, **named: self._finished(method(*given, **named))

    def input(self, name: str, array: np.ndarray[Any, Any], datatype: str, **how: Any) -> Any:
        """An input with data; ``how`` goes to ``set_data_from_numpy``."""
        made = self.module.InferInput(name, list(array.shape), datatype)
        if self.over_http and not self.server.binary:
            how = {"binary_data": False, **how}
        made.set_data_from_numpy(array, **how)
        return made

    def output(self, name: str, **options: Any) -> Any:
        """A requested output."""
        return self.module.InferRequestedOutput(name, **options)

    def ask(self, model: str, *inputs: Any, **options: Any) -> Any:
        """``infer`` under the name that no client has."""
        return self.infer(model, list(inputs), **options)

    def stream(self, requests: Sequence[dict[str, Any]], answers: int) -> list[Any]:
        """The first ``answers`` answers to ``requests``, sent over one stream: results, or exceptions.

        Each request is the arguments of ``async_stream_infer``.
        """
        assert self.server.ends_streams, "streams of this server do not end"
        if self._loop is not None:
            return list(self._finished(self._streamed(requests, answers)))
        arrived: queue.Queue[Any] = queue.Queue()
        self.start_stream(lambda result, error: arrived.put(error if result is None else result))
        try:
            for request in requests:
                self.async_stream_infer(**request)
            return [_alive(arrived.get(timeout=STREAM_SECS)) for _ in range(answers)]
        finally:
            self.stop_stream()

    async def _streamed(self, requests: Sequence[dict[str, Any]], answers: int) -> list[Any]:
        async def sent() -> Any:
            for request in requests:
                yield request

        stream = self._client.stream_infer(sent())
        found: list[Any] = []
        while len(found) < answers:
            result, error = await anext(stream)
            found.append(_alive(error if result is None else result))
        stream.cancel()
        return found

    def close(self) -> None:
        """Close the connections."""
        self._finished(self._client.close())


@contextmanager
def client_of(kind: str, server: Server) -> Iterator[Client]:
    """A client that is closed at the end of the block."""
    client = Client(kind, server)
    try:
        yield client
    finally:
        client.close()


@contextmanager
def refused(*words: str) -> Iterator[None]:
    """The block ends with the client's exception, which has all of ``words``."""
    try:
        yield
    except InferenceServerException as error:
        said = f"{error.status()} {error.message()}"
        assert all(word in said for word in words), f"{said!r} does not say {words}"
    else:
        raise AssertionError("not refused")


@dataclass(frozen=True)
class Check:
    """Something a client does with a server. ``operation`` is its name in the documentation."""

    operation: str
    kinds: tuple[str, ...]
    run: Callable[[Client], None]

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.run.__name__


CHECKS: dict[str, Check] = {}
"""Every check by the name of its function, in the order of the documentation."""


def check(operation: str, *kinds: str) -> Callable[[Callable[[Client], None]], Callable[[Client], None]]:
    """Put a function into the table. It is for ``kinds`` of client, all of them where none is named."""

    def put(run: Callable[[Client], None]) -> Callable[[Client], None]:
        assert run.__name__ not in CHECKS
        CHECKS[run.__name__] = Check(operation, kinds or EVERY, run)
        return run

    return put
