"""A server elsewhere, in some dialect: the same codecs as the listeners use, as a client.

An ``Upstream`` carries out operations there. What its models are to our clients belongs to
``upstream_model``.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from protocols.dialect import UpstreamCall
from schemas import (
    Context,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Operation,
    ServerMetadata,
    Signature,
)

_FLAVORED = frozenset({Operation.INFER, Operation.INFER_STREAM, Operation.MODEL_LOAD, Operation.MODEL_UNLOAD})
"""Operations that have another form on some servers."""

Calls = Mapping[Operation, UpstreamCall[Any, Any]]


class Upstream:
    """A server in some dialect, reached through one client per URL, taken in turn; all requests of a
    sequence go to the same one, since the model keeps its state there.

    ``flavors`` are the calls for servers of this dialect that need another form than ``calls``, by the
    name that such a server's metadata gives; it is asked for that name before the first inference.
    """

    def __init__(
        self,
        name: str,
        calls: Calls,
        clients: Sequence[Any],
        request_timeout_secs: float,
        flavors: Mapping[str, Calls] | None = None,
    ) -> None:
        self.name = name
        self._calls = calls
        self._clients = clients
        self._turn = 0
        self._timeout = request_timeout_secs
        self._flavors: Mapping[str, Calls] = flavors or {}

    async def call(
        self,
        operation: Operation,
        argument: Any = None,
        signature: Signature | None = None,
        context: Context | None = None,
    ) -> Any:
        """Carry out ``operation`` there; arguments and results are those of ``UpstreamCall``.

        Raises the upstream's own error with its own words, or UNAVAILABLE, DEADLINE_EXCEEDED,
        BAD_UPSTREAM, UNREPRESENTABLE; ``origin`` names the upstream.
        """
        call = await self._call(operation, context)
        try:
            request, form = call.encode(argument, signature)
            request.context = self._bounded(context)
            client = self._client(argument)
            return call.decode(form, await self._send(client, request))
        except InferenceError as error:
            error.origin = error.origin or self.name
            raise

    async def stream(
        self, request: InferRequest, signature: Signature | None, context: Context
    ) -> AsyncGenerator[InferResponse, None]:
        """The answers to an INFER_STREAM there, as they come. Raises as :meth:`call` does."""
        call = await self._call(Operation.INFER_STREAM, context)
        try:
            message, form = call.encode(request, signature)
            message.context = self._bounded(context)
            async with aclosing(self._client(request).stream(message)) as answers:
                async for answer in answers:
                    for response in call.decode(form, answer):
                        yield response
        except InferenceError as error:
            error.origin = error.origin or self.name
            raise

    async def _call(self, operation: Operation, context: Context | None) -> UpstreamCall[Any, Any]:
        if self._flavors and operation in _FLAVORED:
            await self._find_flavor(context)
        call = self._calls.get(operation)
        if call is None:
            raise InferenceError(
                ErrorCode.UNSUPPORTED,
                f"upstream '{self.name}' has no {operation.value} in its dialect",
                origin=self.name,
            )
        return call

    def _bounded(self, context: Context | None) -> Context:
        """The caller's context with a deadline no later than the upstream's own limit."""
        deadline = time.monotonic() + self._timeout
        caller = context or Context()
        if caller.deadline is not None:
            deadline = min(deadline, caller.deadline)
        return replace(caller, deadline=deadline)

    def offers(self, operation: Operation) -> bool:
        """Whether the upstream's dialect has a call for ``operation``."""
        return operation in self._calls

    @property
    def streams_at_need(self) -> bool:
        """Whether its streams are for models alone that cannot be asked otherwise."""
        call = self._calls.get(Operation.INFER_STREAM)
        return call is not None and call.last_resort

    async def close(self) -> None:
        """Close every connection."""
        for client in self._clients:
            await client.close()

    async def _find_flavor(self, context: Context | None) -> None:
        flavors, self._flavors = self._flavors, {}
        try:
            said: ServerMetadata = await self.call(Operation.SERVER_METADATA, context=context)
        except InferenceError as error:
            if error.retryable:
                # it cannot be reached now, so the next request asks again
                self._flavors = flavors
                raise
            # a server that cannot introduce itself is none that we know to differ
            return
        self._calls = flavors.get(said.name, self._calls)

    def _client(self, argument: Any) -> Any:
        if isinstance(argument, InferRequest) and argument.sequence is not None:
            # a checksum, because hash() differs from one process to the next
            place = zlib.crc32(str(argument.sequence.id).encode(errors="surrogatepass"))
            return self._clients[place % len(self._clients)]
        self._turn = (self._turn + 1) % len(self._clients)
        return self._clients[self._turn]

    async def _send(self, client: Any, request: Any) -> Any:
        try:
            return await client.send(request)
        except InferenceError as error:
            error.message = f"upstream '{self.name}': {error.message}"
            raise
