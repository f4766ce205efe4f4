"""Detects the binding of a server: every dialect has a call that only its own servers answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Self

from interlingua.protocols.dialect import Binding
from interlingua.protocols.registry import DIALECTS, bindings
from interlingua.protocols.transport.address import Url
from interlingua.protocols.transport.client_options import ClientOptions
from interlingua.protocols.transport.clients import client_of
from interlingua.protocols.wire import ConnectionFailedError, HttpCall
from interlingua.schemas import (
    Context,
    ErrorCode,
    InferenceError,
    ModelMetadata,
    ModelRef,
    Operation,
    Readiness,
    ServerMetadata,
)

_NOWHERE = HttpCall("GET", "/interlingua/probe/of/nothing")
"""A path of no dialect."""

_LARGEST_ANSWER = 16 << 20
"""No server's metadata are larger; another kind of server may never end its answer."""


def described(binding: Binding) -> str:
    title = DIALECTS[binding.dialect].manifest.title or binding.dialect
    return f"{title} over {binding.transport}"


def known() -> tuple[Binding, ...]:
    return tuple(binding for binding in bindings().values() if binding.calls)


class Conversation:
    """Calls of one binding to the server at ``url``; each may take ``timeout_secs``. Use as a context
    manager."""

    def __init__(self, url: Url, binding: Binding, timeout_secs: float) -> None:
        self._calls = binding.calls
        self._timeout = timeout_secs
        self._transport = binding.transport
        self._client: Any = client_of(binding.transport)(
            url, ClientOptions(connect_timeout_secs=timeout_secs, max_response_bytes=_LARGEST_ANSWER)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    def use(self, binding: Binding) -> None:
        """Make the calls of ``binding`` from now on, a flavor of the one before."""
        self._calls = binding.calls

    async def is_silent(self, model: str) -> bool:
        """Whether the server reacts to a metadata request like servers of the dialect without metadata: it
        closes the connection, or replies to that effect."""
        call = self._calls.get(Operation.MODEL_METADATA)
        if call is None or call.optional is None:
            return False
        try:
            return call.optional(await self._send(call.encode(ModelRef(model), None)[0]))
        except ConnectionFailedError as error:
            return error.sent and error.code is ErrorCode.UNAVAILABLE
        except InferenceError:
            return False

    def offers(self, operation: Operation) -> bool:
        """Whether the dialect has the operation."""
        return operation in self._calls

    async def call(self, operation: Operation, argument: Any = None) -> Any:
        """The result of ``operation``. Raises ``InferenceError``."""
        call = self._calls[operation]
        request, form = call.encode(argument, None)
        return call.decode(form, await self._send(request))

    async def introduce(self, model: str = "") -> str:
        """The server's name and version, if it reports them. Raises ``InferenceError`` if it does not speak
        the dialect. ``model`` is one of its models, for dialects without server metadata."""
        if Operation.SERVER_METADATA not in self._calls:
            metadata: ModelMetadata = await self.call(Operation.MODEL_METADATA, ModelRef(model))
            server = metadata.server
            return f"{server.name} {server.version}".strip() if server is not None else metadata.platform
        try:
            found: ServerMetadata = await self.call(Operation.SERVER_METADATA)
        except InferenceError:
            if not await self._is_alive():
                raise
            found = ServerMetadata("", "")
        if self._transport == "http" and await self._answers_everything():
            # as GraphPipe's servers do
            raise InferenceError(ErrorCode.BAD_UPSTREAM, "it answers every path")
        return f"{found.name} {found.version}".strip()

    async def _is_alive(self) -> bool:
        """Whether a server without metadata reports that it is live."""
        try:
            alive: Readiness = await self.call(Operation.LIVE)
        except InferenceError:
            return False
        return alive.ready

    async def _answers_everything(self) -> bool:
        """Whether every path has an answer, so that one proves nothing."""
        try:
            reply = await self._send(HttpCall(_NOWHERE.method, _NOWHERE.path))
        except InferenceError:
            return False
        return bool(reply.status == 200)

    async def _send(self, request: Any) -> Any:
        request.context = Context(deadline=time.monotonic() + self._timeout)
        return await self._client.send(request)


async def detect(
    url: Url, timeout_secs: float, model: str = "", candidates: Sequence[Binding] = ()
) -> tuple[Binding, ...]:
    """Those of the ``candidates``, by default all bindings, that the server at ``url`` speaks."""

    async def speaks(binding: Binding) -> bool:
        async with Conversation(url, binding, timeout_secs) as server:
            try:
                await server.introduce(model)
            except InferenceError:
                return False
            return True

    candidates = candidates or known()
    answers = await asyncio.gather(*map(speaks, candidates))
    return tuple(binding for binding, spoken in zip(candidates, answers, strict=True) if spoken)
