"""Discovers the signature, configuration and extensions of a server, and relations between inputs and
outputs.

The signature comes from the model's metadata, or from a file for servers without them; batching, sequences
and decoupled answers come from the model configuration, if the dialect has one. Failures here are not
reported: checks examine metadata, and checks without the data they need are skipped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from interlingua.schemas import (
    InferenceError,
    InferResponse,
    ModelMetadata,
    ModelRef,
    Operation,
    Signature,
    Tensor,
)
from interlingua.schemas.oip import MESSAGES
from interlingua.translator.conformance.errors import InapplicableError, ViolationError
from interlingua.translator.conformance.relations import find_relations
from interlingua.translator.conformance.server import ServerUnderTest
from interlingua.translator.conformance.values import distinct

_PROBES = 3


def models_of(server: ServerUnderTest) -> tuple[str, ...]:
    """The models that the server lists; none if its dialect has no list. Raises ``InferenceError``."""
    if server.wire.list_models is not None:
        return server.wire.list_models(server)
    try:
        exchange = server.call(Operation.REPOSITORY_INDEX)
    except InapplicableError:
        return ()
    if exchange.error is not None:
        raise exchange.error
    return tuple(dict.fromkeys(status.name for status in exchange.result))


def discover(server: ServerUnderTest, signature: Signature | None = None) -> None:
    """Discover the signature (unless passed), the configuration, the extensions and the relations."""
    metadata = _result(server, Operation.SERVER_METADATA)
    server.extensions = tuple(metadata.extensions) if metadata is not None else ()
    of_model: ModelMetadata | None = None
    if server.capability.signatures:
        of_model = _result(server, Operation.MODEL_METADATA, ModelRef(server.model, server.version))
    server.config = _config(server, of_model)
    server.signature = signature or _declared(server, of_model)
    if server.signature is None:
        return
    if server.sequential:
        # the server batches requests of several sequences; each request has one row
        batch = min(server.signature.max_batch_size, 1)
        server.signature = replace(server.signature, max_batch_size=batch)
    sent: list[tuple[Tensor, ...]] = []
    answers: list[InferResponse] = []
    for number in range(_PROBES):
        sent.append(distinct(server.signature, number))
        try:
            answers.append(server.answer(server.request(sent[-1])))
        except (InapplicableError, ViolationError) as reason:
            if isinstance(reason, ViolationError) and reason.exchange and reason.exchange.result is not None:
                # only its form is wrong, which checks report
                answers.append(reason.exchange.result)
                continue
            server.silent = f"the model does not answer generated requests: {reason}"
            return
    server.relations = find_relations(server.signature, sent, answers)


def _config(server: ServerUnderTest, metadata: ModelMetadata | None) -> Any:
    """The model's configuration, None if the server does not report it."""
    model = ModelRef(server.model, server.version)
    config: bytes | None = _result(server, Operation.MODEL_CONFIG, model)
    if not config and metadata is not None:
        config = metadata.config
    return MESSAGES["inference.ModelConfig"].FromString(config) if config else None


def _declared(server: ServerUnderTest, metadata: ModelMetadata | None) -> Signature | None:
    if metadata is None or not metadata.signature.inputs or not metadata.signature.outputs:
        return None
    if server.config is None:
        return metadata.signature
    return replace(metadata.signature, max_batch_size=max(server.config.max_batch_size, 0))


def _result(server: ServerUnderTest, operation: Operation, argument: Any = None) -> Any:
    """The result of an operation; None if the server fails or lacks it."""
    try:
        return server.call(operation, argument).result
    except (InapplicableError, InferenceError):
        return None
