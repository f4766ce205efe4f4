"""Rules for health and metadata of servers and models."""

from __future__ import annotations

from typing import Any

from interlingua.schemas import ErrorCode, ModelMetadata, ModelRef, Operation
from interlingua.translator.conformance.check import Draw, Group
from interlingua.translator.conformance.errors import InapplicableError, expect, expect_names, skip_if
from interlingua.translator.conformance.server import ServerUnderTest

PROBES = Group("probes")

_UNARY_REFUSED = ErrorCode.UNSUPPORTED
"""A server's error for a unary request to a decoupled model."""


@PROBES("The server reports that it is live.", once=True)
def live(server: ServerUnderTest, draw: Draw) -> None:
    found = _exchange(server, Operation.LIVE)
    expect(found.ready, f"it reports not live: {found.reason}", server.last)


@PROBES("The server reports that it is ready.", once=True)
def ready(server: ServerUnderTest, draw: Draw) -> None:
    found = _exchange(server, Operation.READY)
    expect(found.ready, f"it reports not ready: {found.reason}", server.last)


@PROBES("The model is ready.", once=True)
def model_ready(server: ServerUnderTest, draw: Draw) -> None:
    found = _exchange(server, Operation.MODEL_READY, ModelRef(server.model, server.version))
    expect(found.ready, f"the model is reported not ready: {found.reason}", server.last)


@PROBES("The server reports its name.", once=True)
def server_metadata(server: ServerUnderTest, draw: Draw) -> None:
    found = _exchange(server, Operation.SERVER_METADATA)
    expect(found.name, "the server's metadata have no name", server.last)


@PROBES(
    "The model's metadata have its name and its tensors, each with a name, a datatype and a shape.", once=True
)
def model_metadata(server: ServerUnderTest, draw: Draw) -> None:
    skip_if(not server.capability.signatures, "the dialect has no signatures")
    found: ModelMetadata = _exchange(server, Operation.MODEL_METADATA, ModelRef(server.model, server.version))
    if server.capability.model_name:
        expect(found.name == server.model, f"the metadata name the model {found.name!a}", server.last)
    for side, specs in (("input", found.signature.inputs), ("output", found.signature.outputs)):
        expect(specs, f"the metadata have no {side}", server.last)
        expect_names(side, [spec.name for spec in specs], server.last)
        for spec in specs:
            expect(
                all(size >= -1 for size in spec.shape),
                f"{side} '{spec.name}' has the shape {list(spec.shape)}",
                server.last,
            )


@PROBES("A request that fits the model's metadata is answered.", once=True)
def good_requests(server: ServerUnderTest, draw: Draw) -> None:
    for number in range(3):
        request = server.sample(number)
        exchange = server.infer(request)
        error = exchange.error
        if exchange.reply is not None and error is not None and error.code is _UNARY_REFUSED:
            raise InapplicableError(f"the model takes no unary requests: {error.message}")
        server.judged(request, exchange)


@PROBES("Two requests for metadata get the same.", once=True)
def metadata_twice(server: ServerUnderTest, draw: Draw) -> None:
    model = ModelRef(server.model, server.version)
    first, second = (_exchange(server, Operation.MODEL_METADATA, model) for _ in range(2))
    expect(first == second, "the metadata have changed", server.last)


@PROBES("Each version that the metadata list is ready.", once=True)
def versions_ready(server: ServerUnderTest, draw: Draw) -> None:
    skip_if(
        not server.capability.versions or not server.capability.signatures or not server.model,
        "the dialect has no versions",
    )
    found: ModelMetadata = _exchange(server, Operation.MODEL_METADATA, ModelRef(server.model))
    skip_if(not found.versions, "the metadata list no versions")
    for version in found.versions:
        state = _exchange(server, Operation.MODEL_READY, ModelRef(server.model, version))
        expect(state.ready, f"version {version} is listed and not ready: {state.reason}", server.last)


def _exchange(server: ServerUnderTest, operation: Operation, argument: Any = None) -> Any:
    exchange = server.call(operation, argument)
    server.answered(exchange)
    error = exchange.error
    expect(error is None, f"{operation.value} failed: {error.message if error else ''}", exchange)
    return exchange.result
