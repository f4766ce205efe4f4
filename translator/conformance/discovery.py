"""What a server tells of itself and of a model, and what can be seen from a few answers.

The signature comes from the model's metadata, the batch from its configuration where the dialect has that;
or from a file, for servers that tell nothing. Failing here is nobody's fault: checks say what is wrong with
metadata, and those that need them are left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from schemas import InferenceError, InferResponse, ModelMetadata, ModelRef, Operation, Signature, Tensor
from schemas.oip import MESSAGES
from translator.conformance.check import InapplicableError, ViolationError
from translator.conformance.relations import find_relations
from translator.conformance.subject import Subject
from translator.conformance.values import distinct

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
    """Find out the signature (``signature`` where given), the extensions, and how outputs follow from
    inputs."""
    said = _result(subject, Operation.SERVER_METADATA)
    subject.extensions = tuple(said.extensions) if said is not None else ()
    subject.signature = signature or _told(subject)
    if subject.signature is None:
        return
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


def _told(subject: Subject) -> Signature | None:
    """The signature as metadata tell it."""
    metadata: ModelMetadata | None = None
    if subject.capability.signatures:
        metadata = _result(subject, Operation.MODEL_METADATA, ModelRef(subject.model, subject.version))
    if metadata is None or not metadata.signature.inputs or not metadata.signature.outputs:
        return None
    signature = metadata.signature
    config: bytes | None = _result(subject, Operation.MODEL_CONFIG, ModelRef(subject.model, subject.version))
    if config:
        message: Any = MESSAGES["inference.ModelConfig"].FromString(config)
        signature = replace(signature, max_batch_size=max(message.max_batch_size, 0))
    return signature


def _result(subject: Subject, operation: Operation, argument: Any = None) -> Any:
    """The result of a question that need not be answered."""
    try:
        return subject.call(operation, argument).result
    except (InapplicableError, InferenceError):
        return None
