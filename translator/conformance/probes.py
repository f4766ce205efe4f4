"""Rules for health and metadata of servers and models."""

from __future__ import annotations

from typing import Any

from interlingua.schemas import ErrorCode, ModelMetadata, ModelRef, Operation
from interlingua.translator.conformance.check import Draw, Group, InapplicableError
from interlingua.translator.conformance.subject import Subject
from interlingua.translator.conformance.values import distinct
from interlingua.translator.conformance.wire import expect

PROBES = Group("probes")

_UNARY_REFUSED = ErrorCode.UNSUPPORTED
"""A server's error for a unary request to a decoupled model."""


@PROBES("The server reports that it is live.", once=True)
def live(subject: Subject, draw: Draw) -> None:
    found = _asked(subject, Operation.LIVE)
    expect(found.ready, f"it says that it does not live: {found.reason}", subject.last)


@PROBES("The server reports that it is ready.", once=True)
def ready(subject: Subject, draw: Draw) -> None:
    found = _asked(subject, Operation.READY)
    expect(found.ready, f"it says that it is not ready: {found.reason}", subject.last)


@PROBES("The model is ready.", once=True)
def model_ready(subject: Subject, draw: Draw) -> None:
    found = _asked(subject, Operation.MODEL_READY, ModelRef(subject.model, subject.version))
    expect(found.ready, f"the model is said not to be ready: {found.reason}", subject.last)


@PROBES("The server reports its name.", once=True)
def server_metadata(subject: Subject, draw: Draw) -> None:
    found = _asked(subject, Operation.SERVER_METADATA)
    expect(found.name, "the server's metadata have no name", subject.last)


@PROBES(
    "The model's metadata have its name and its tensors, each with a name, a datatype and a shape.", once=True
)
def model_metadata(subject: Subject, draw: Draw) -> None:
    if not subject.capability.signatures:
        raise InapplicableError("the dialect has no signatures")
    found: ModelMetadata = _asked(subject, Operation.MODEL_METADATA, ModelRef(subject.model, subject.version))
    if subject.capability.model_name:
        expect(found.name == subject.model, f"the metadata name the model {found.name!a}", subject.last)
    for side, specs in (("input", found.signature.inputs), ("output", found.signature.outputs)):
        expect(specs, f"the metadata have no {side}", subject.last)
        names = [spec.name for spec in specs]
        expect(all(names), f"an {side} has no name", subject.last)
        expect(len(set(names)) == len(names), f"two of the {side}s {names} have one name", subject.last)
        for spec in specs:
            expect(
                all(size >= -1 for size in spec.shape),
                f"{side} '{spec.name}' has the shape {list(spec.shape)}",
                subject.last,
            )


@PROBES("A request that fits the model's metadata is answered.", once=True)
def good_requests(subject: Subject, draw: Draw) -> None:
    for number in range(3):
        request = subject.request(distinct(subject.known, number))
        exchange = subject.infer(request)
        if (
            exchange.reply is not None
            and exchange.error is not None
            and exchange.error.code is _UNARY_REFUSED
        ):
            raise InapplicableError(f"the model takes no unary requests: {exchange.error.message}")
        subject.judged(request, exchange)


@PROBES("Two requests for metadata get the same.", once=True)
def metadata_twice(subject: Subject, draw: Draw) -> None:
    model = ModelRef(subject.model, subject.version)
    first, second = (_asked(subject, Operation.MODEL_METADATA, model) for _ in range(2))
    expect(first == second, "the metadata have changed", subject.last)


@PROBES("Each version that the metadata list is ready.", once=True)
def versions_ready(subject: Subject, draw: Draw) -> None:
    if not subject.capability.versions or not subject.capability.signatures or not subject.model:
        raise InapplicableError("the dialect has no versions")
    found: ModelMetadata = _asked(subject, Operation.MODEL_METADATA, ModelRef(subject.model))
    if not found.versions:
        raise InapplicableError("the metadata list no versions")
    for version in found.versions:
        state = _asked(subject, Operation.MODEL_READY, ModelRef(subject.model, version))
        expect(state.ready, f"version {version} is listed and not ready: {state.reason}", subject.last)


def _asked(subject: Subject, operation: Operation, argument: Any = None) -> Any:
    """The result of an operation that must succeed."""
    exchange = subject.call(operation, argument)
    subject.answered(exchange)
    error = exchange.error
    expect(error is None, f"{operation.value} failed: {error.message if error else ''}", exchange)
    return exchange.result
