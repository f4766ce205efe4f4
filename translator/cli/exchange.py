"""Requests to a server in any dialect, with the same tables as upstreams."""

from __future__ import annotations

import argparse
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import orjson

from interlingua.protocols.classification import classify
from interlingua.protocols.dialect import Binding
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.address import SCHEMES, parse_url
from interlingua.protocols.transport.client_options import ClientOptions
from interlingua.protocols.transport.clients import client_of
from interlingua.protocols.transport.reach import unreachable
from interlingua.protocols.transport.tls import ALPN, ClientTls, TlsContext, reason
from interlingua.runtime.upstream.forwarding import Forwarding
from interlingua.runtime.upstream.model import UpstreamModel
from interlingua.runtime.upstream.pool.unanswered import UnansweredError
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import (
    Context,
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelMetadata,
    ModelRef,
    Operation,
    Parameter,
    RequestedOutput,
    Signature,
    Tensor,
)
from interlingua.schemas import (
    Sequence as SequencePlace,
)
from interlingua.translator.cli.arguments import RefusedError, read_headers
from interlingua.translator.cli.inputs import read_inputs
from interlingua.translator.cli.values import signature_in
from interlingua.translator.config.bindings import binding_of
from interlingua.translator.config.wording import unknown
from interlingua.translator.probe.recognition import recognize


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request to a server. ``names`` are the outputs to return, None for all; with ``classes`` they are
    replaced by their highest values."""

    upstream: Upstream
    binding: Binding
    request: InferRequest
    signature: Signature | None
    names: Sequence[str] | None
    classes: int
    timeout_secs: float

    async def once(self) -> InferResponse:
        """The response. Raises ``InferenceError`` for errors of the server."""
        response = await self.upstream.call(Operation.INFER, self.request, self.signature, self._context())
        return self._chosen(response)

    async def stream(self) -> AsyncGenerator[InferResponse, None]:
        """The responses as they arrive; the only one where the dialect has no streams. Raises as :meth:`once`
        does."""
        model = UpstreamModel(
            self.request.model,
            self.upstream,
            self.request.model,
            declared=self.signature,
            strict_signature=False,
        )
        request = replace(self.request, answers="many", context=self._context())
        async with aclosing(model.stream(request)) as responses:
            async for response in responses:
                if response.error is not None:
                    raise response.error
                # that a stream has ended may come alone
                if response.outputs:
                    yield self._chosen(response, partly=True)

    def _context(self) -> Context:
        return Context(deadline=time.monotonic() + self.timeout_secs)

    def _chosen(self, response: InferResponse, *, partly: bool = False) -> InferResponse:
        """The requested outputs: some dialects cannot select outputs, and some servers ignore the selection.
        ``partly``: a response of a stream need not have all."""
        given = {tensor.name: tensor for tensor in response.outputs}
        outputs = response.outputs
        if self.names is not None:
            for name in self.names:
                if name not in given and not partly:
                    raise RefusedError(unknown("output", name, given))
            outputs = tuple(given[name] for name in dict.fromkeys(self.names) if name in given)
        if self.classes:
            outputs = tuple(_classified(tensor, self.classes, self.signature) for tensor in outputs)
        return replace(response, outputs=outputs)


@asynccontextmanager
async def exchange(arguments: argparse.Namespace) -> AsyncIterator[Exchange]:
    """Detect the dialect, unless it is stated, and request the model's metadata, if the dialect has them.
    Raises ``RefusedError`` for invalid arguments, ``InferenceError`` for errors of the server."""
    signature = signature_in(arguments.signature)
    binding = await _binding(arguments)
    headers = read_headers(arguments.headers)
    upstream = upstream_of(
        binding.dialect, binding.transport, arguments.url, arguments.timeout_secs, headers, arguments.ca
    )
    try:
        if signature is None:
            signature = await _signature(arguments, upstream, binding)
        names = arguments.outputs
        request = InferRequest(
            arguments.model,
            tuple(read_inputs(arguments.inputs, signature, arguments.pixels)),
            None if names is None else tuple(RequestedOutput(name) for name in names),
            version=arguments.version,
            id=arguments.id,
            parameters=_parameters(arguments.parameters),
            sequence=_sequence(arguments),
        )
        yield Exchange(
            upstream, binding, request, signature, names, arguments.classes, arguments.timeout_secs
        )
    finally:
        await upstream.close()


async def _signature(arguments: argparse.Namespace, upstream: Upstream, binding: Binding) -> Signature | None:
    if not upstream.offers(Operation.MODEL_METADATA):
        return None
    context = Context(deadline=time.monotonic() + arguments.timeout_secs)
    model = ModelRef(arguments.model, arguments.version)
    # a server may have no metadata, or no signature in them
    with suppress(UnansweredError):
        metadata: ModelMetadata = await upstream.call(
            Operation.MODEL_METADATA, model, context=context, dispensable=True
        )
        return metadata.signature if binding.capability.signatures else None
    return None


async def _binding(arguments: argparse.Namespace) -> Binding:
    """The stated dialect and transport, or the first of those that the server answers."""
    dialect, transport, url = arguments.dialect, arguments.transport, arguments.url
    try:
        if dialect and transport:
            return binding_of(dialect, transport)
        if arguments.ca:
            raise ValueError("--ca needs --dialect and --transport")
        for kind, word, choices in (("dialect", dialect, DIALECTS), ("transport", transport, SCHEMES)):
            if word and word not in choices:
                raise ValueError(unknown(kind, word, choices))
        place = parse_url(url, transport or "http")
    except ValueError as error:
        raise RefusedError(str(error)) from error
    if reason := await unreachable(place.address, arguments.timeout_secs):
        text = f"the upstream at {url} cannot be reached: {reason}"
        raise InferenceError(ErrorCode.UNAVAILABLE, text)
    found = await recognize(
        url, arguments.timeout_secs, dialect=dialect, transport=transport, model=arguments.model
    )
    if found is not None:
        return found
    raise InferenceError(
        ErrorCode.BAD_UPSTREAM, f"no known dialect is recognized at {url}: state --dialect and --transport"
    )


def upstream_of(
    dialect: str,
    transport: str,
    url: str,
    timeout_secs: float,
    headers: Mapping[str, str] | None = None,
    ca: str | None = None,
) -> Upstream:
    """The server at ``url``, not yet connected. Every call has ``headers``. ``ca`` is the file with the
    authorities of its certificate. Raises ``RefusedError`` for invalid arguments."""
    try:
        binding = binding_of(dialect, transport)
        place = parse_url(url, transport)
    except ValueError as error:
        raise RefusedError(str(error)) from error
    own = {name: partial(str, value) for name, value in (headers or {}).items()}
    client = client_of(transport)(
        place, ClientOptions(connect_timeout_secs=timeout_secs, tls=_tls(ca, transport))
    )
    return Upstream(
        url,
        binding.calls,
        [client],
        timeout_secs,
        binding.call_flavors,
        forwarding=Forwarding((), own),
        named=False,
    )


def _tls(ca: str | None, transport: str) -> TlsContext | None:
    """TLS with the authorities in the file ``ca``; None leaves it to the URL. Raises ``RefusedError``."""
    if ca is None:
        return None
    try:
        return TlsContext(ClientTls(ca, protocols=ALPN[transport].upstream))
    except OSError as error:
        raise RefusedError(f"'{ca}' cannot be read as certificates: {reason(error)}") from error


def _parameters(given: Sequence[str]) -> Mapping[str, Parameter]:
    """``NAME=VALUE``: true, false, a number, or else text."""
    found: dict[str, Parameter] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise RefusedError(f"--parameter {text}: write NAME=VALUE")
        try:
            parsed = orjson.loads(value)
        except orjson.JSONDecodeError:
            parsed = value
        found[name] = parsed if isinstance(parsed, bool | int | float | str) else value
    return found


def _sequence(arguments: argparse.Namespace) -> SequencePlace | None:
    stated = arguments.sequence
    if stated is None:
        if arguments.sequence_start or arguments.sequence_end:
            raise RefusedError("--sequence-start and --sequence-end need --sequence")
        return None
    place: int | str = int(stated) if stated.isdecimal() else stated
    if not place:
        raise RefusedError("--sequence: 0 and an empty text are no sequence")
    return SequencePlace(place, arguments.sequence_start, arguments.sequence_end)


def _classified(tensor: Tensor, count: int, signature: Signature | None) -> Tensor:
    """The ``count`` highest values of each entry of ``tensor``, as Triton writes them: VALUE:INDEX, and
    :LABEL if the metadata have labels. The first of several dimensions is the batch."""
    specs = {} if signature is None else {spec.name: spec for spec in signature.outputs}
    labels = specs[tensor.name].labels if tensor.name in specs else ()
    batched = len(tensor.shape) > 1
    rows = [[one.text.encode() for one in row] for row in classify(tensor, count, labels, batched=batched)]
    array = np.empty((len(rows), len(rows[0]) if rows else 0), dtype=object)
    array[:] = rows
    return Tensor.from_numpy(tensor.name, array if batched else array[0], Datatype.BYTES)
