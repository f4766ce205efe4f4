"""One request to a server in any dialect, with the same tables as upstreams."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.address import parse_url
from interlingua.protocols.transport.clients import client_of
from interlingua.runtime.upstream.pool.unanswered import UnansweredError
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import (
    Context,
    InferRequest,
    InferResponse,
    ModelMetadata,
    ModelRef,
    Operation,
    RequestedOutput,
    Signature,
    Tensor,
)
from interlingua.translator.cli.arguments import RefusedError
from interlingua.translator.cli.values import read_tensor
from interlingua.translator.config.bindings import binding_of
from interlingua.translator.config.wording import unknown


async def ask(arguments: argparse.Namespace) -> InferResponse:
    """Request the model's metadata, if the dialect has them, then the inference. Raises ``RefusedError`` for
    invalid arguments, ``InferenceError`` for errors of the server."""
    context = Context(deadline=time.monotonic() + arguments.timeout_secs)
    upstream = upstream_of(arguments.dialect, arguments.transport, arguments.url, arguments.timeout_secs)
    try:
        signature = None
        if upstream.offers(Operation.MODEL_METADATA):
            model = ModelRef(arguments.model, arguments.version)
            # a server may have no metadata, or no signature in them
            with suppress(UnansweredError):
                metadata: ModelMetadata = await upstream.call(
                    Operation.MODEL_METADATA, model, context=context, dispensable=True
                )
                binding = DIALECTS[arguments.dialect].bindings[arguments.transport]
                signature = metadata.signature if binding.capability.signatures else None
        names = arguments.outputs
        request = InferRequest(
            arguments.model,
            tuple(_inputs(arguments.inputs, signature)),
            None if names is None else tuple(RequestedOutput(name) for name in names),
            version=arguments.version,
        )
        response: InferResponse = await upstream.call(Operation.INFER, request, signature, context)
    finally:
        await upstream.close()
    return response if names is None else _chosen(response, names)


def _chosen(response: InferResponse, names: Sequence[str]) -> InferResponse:
    """The requested outputs: some dialects cannot select outputs, and some servers ignore the selection."""
    given = {tensor.name: tensor for tensor in response.outputs}
    for name in names:
        if name not in given:
            raise RefusedError(unknown("output", name, given))
    return replace(response, outputs=tuple(given[name] for name in dict.fromkeys(names)))


def upstream_of(dialect: str, transport: str, url: str, timeout_secs: float) -> Upstream:
    """The server at ``url``, not yet connected. Raises ``RefusedError`` for invalid arguments."""
    try:
        binding = binding_of(dialect, transport)
        place = parse_url(url, transport)
    except ValueError as error:
        raise RefusedError(str(error)) from error
    client = client_of(transport)(place, connect_timeout_secs=timeout_secs)
    return Upstream(url, binding.calls, [client], timeout_secs, binding.call_flavors, named=False)


def _inputs(given: Sequence[str], signature: Signature | None) -> Iterator[Tensor]:
    for position, text in enumerate(given):
        name, separator, value = text.partition("=")
        if not separator:
            raise RefusedError(f"--input {text}: write NAME=@file.npy or NAME=JSON")
        if signature is None:
            yield read_tensor(name, value, None)
            continue
        if not name:
            if position >= len(signature.inputs):
                raise RefusedError(f"--input {text}: the model has only {len(signature.inputs)} inputs")
            name = signature.inputs[position].name
        if name not in signature.input_names:
            raise RefusedError(unknown("input", name, signature.input_names))
        yield read_tensor(name, value, signature.input_names[name].datatype)
