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
from interlingua.translator.conformance.check import InapplicableError, ViolationError
from interlingua.translator.conformance.relations import find_relations
from interlingua.translator.conformance.subject import Subject
from interlingua.translator.conformance.values import distinct

_PROBES = 3


def models_of(subject: Subject) -> tuple[str, ...]:
    """The models that the server lists; none if its dialect has no list. Raises ``InferenceError``."""
    if subject.wire.list_models is not None:
        return subject.wire.list_models(subject)
    try:
        exchange = subject.call(Operation.REPOSITORY_INDEX)
    except InapplicableError:
        return ()
    if exchange.error is not None:
        raise exchange.error
    return tuple(dict.fromkeys(status.name for status in exchange.result))


def discover(subject: Subject, signature: Signature | None = None) -> None:
    """Discover the signature (unless given), the configuration, the extensions and the relations."""
    metadata = _result(subject, Operation.SERVER_METADATA)
    subject.extensions = tuple(metadata.extensions) if metadata is not None else ()
    of_model = _metadata(subject)
    subject.config = _config(subject, of_model)
    subject.signature = signature or _declared(subject, of_model)
    if subject.signature is None:
        return
    if subject.sequential:
        # the server batches requests of several sequences; each request has one row
        batch = min(subject.signature.max_batch_size, 1)
        subject.signature = replace(subject.signature, max_batch_size=batch)
    sent: list[tuple[Tensor, ...]] = []
    answers: list[InferResponse] = []
    for number in range(_PROBES):
        sent.append(distinct(subject.signature, number))
        try:
            answers.append(subject.answer(subject.request(sent[-1])))
        except (InapplicableError, ViolationError) as reason:
            if isinstance(reason, ViolationError) and reason.exchange and reason.exchange.result is not None:
                # only its form is wrong, which checks report
                answers.append(reason.exchange.result)
                continue
            subject.silent = f"the model does not answer generated requests: {reason}"
            return
    subject.relations = find_relations(subject.signature, sent, answers)


def _metadata(subject: Subject) -> ModelMetadata | None:
    if not subject.capability.signatures:
        return None
    metadata: ModelMetadata | None = _result(
        subject, Operation.MODEL_METADATA, ModelRef(subject.model, subject.version)
    )
    return metadata


def _config(subject: Subject, metadata: ModelMetadata | None) -> Any:
    """The model's configuration, None if the server does not report it."""
    model = ModelRef(subject.model, subject.version)
    config: bytes | None = _result(subject, Operation.MODEL_CONFIG, model)
    if not config and metadata is not None:
        config = metadata.config
    return MESSAGES["inference.ModelConfig"].FromString(config) if config else None


def _declared(subject: Subject, metadata: ModelMetadata | None) -> Signature | None:
    """The signature in the metadata."""
    if metadata is None or not metadata.signature.inputs or not metadata.signature.outputs:
        return None
    if subject.config is None:
        return metadata.signature
    return replace(metadata.signature, max_batch_size=max(subject.config.max_batch_size, 0))


def _result(subject: Subject, operation: Operation, argument: Any = None) -> Any:
    """The result of an operation; None if the server fails or lacks it."""
    try:
        return subject.call(operation, argument).result
    except (InapplicableError, InferenceError):
        return None
