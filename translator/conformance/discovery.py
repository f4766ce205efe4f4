"""What a server tells of itself and of a model, and what can be seen from a few answers.

The signature comes from the model's metadata; the batch, and whether it takes sequences or answers in
streams, from its configuration where the dialect has that. The signature may come from a file, for servers
that tell nothing. Failing here is nobody's fault: checks say what is wrong with metadata, and those that need
them are left out.
"""

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
    """The names of the models that the server lists, none where it cannot. Raises ``InferenceError``."""
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
    """Find out the signature (``signature`` where given), the configuration, the extensions, and how outputs
    follow from inputs."""
    said = _result(subject, Operation.SERVER_METADATA)
    subject.extensions = tuple(said.extensions) if said is not None else ()
    metadata = _metadata(subject)
    subject.config = _config(subject, metadata)
    subject.signature = signature or _told(subject, metadata)
    if subject.signature is None:
        return
    if subject.sequential:
        # requests of sequences meet in batches on the server, each of them has but one row
        batch = min(subject.signature.max_batch_size, 1)
        subject.signature = replace(subject.signature, max_batch_size=batch)
    asked: list[tuple[Tensor, ...]] = []
    answers: list[InferResponse] = []
    for number in range(_PROBES):
        asked.append(distinct(subject.signature, number))
        try:
            answers.append(subject.answer(subject.request(asked[-1])))
        except (InapplicableError, ViolationError) as reason:
            if isinstance(reason, ViolationError) and reason.exchange and reason.exchange.result is not None:
                # only its form is wrong, which checks will tell
                answers.append(reason.exchange.result)
                continue
            subject.silent = f"the model does not answer generated requests: {reason}"
            return
    subject.relations = find_relations(subject.signature, asked, answers)


def _metadata(subject: Subject) -> ModelMetadata | None:
    if not subject.capability.signatures:
        return None
    metadata: ModelMetadata | None = _result(
        subject, Operation.MODEL_METADATA, ModelRef(subject.model, subject.version)
    )
    return metadata


def _config(subject: Subject, metadata: ModelMetadata | None) -> Any:
    """The model's configuration, None where the server does not tell it."""
    model = ModelRef(subject.model, subject.version)
    config: bytes | None = _result(subject, Operation.MODEL_CONFIG, model)
    if not config and metadata is not None:
        config = metadata.config
    return MESSAGES["inference.ModelConfig"].FromString(config) if config else None


def _told(subject: Subject, metadata: ModelMetadata | None) -> Signature | None:
    """The signature as metadata tell it."""
    if metadata is None or not metadata.signature.inputs or not metadata.signature.outputs:
        return None
    if subject.config is None:
        return metadata.signature
    return replace(metadata.signature, max_batch_size=max(subject.config.max_batch_size, 0))


def _result(subject: Subject, operation: Operation, argument: Any = None) -> Any:
    """The result of a question that need not be answered."""
    try:
        return subject.call(operation, argument).result
    except (InapplicableError, InferenceError):
        return None
