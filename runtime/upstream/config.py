"""The configuration of an upstream's model: as the upstream has it, and as our clients see it."""

from __future__ import annotations

from typing import Any

from interlingua.runtime.model_config.message import serialized, write_signature
from interlingua.runtime.models.renames import Renames
from interlingua.runtime.upstream.attributes import Attributes
from interlingua.runtime.upstream.reading import read_from
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import InferenceError, ModelRef, Operation, Signature
from interlingua.schemas.model_config import MODEL_CONFIG


def read_config(serialized: bytes) -> Any:
    """An ``inference.ModelConfig``; None where it is empty."""
    return MODEL_CONFIG.FromString(serialized) if serialized else None


async def fetch_config(upstream: Upstream, model: ModelRef) -> Any:
    """The ``inference.ModelConfig`` of ``model`` at ``upstream``; None if it has none, like many servers
    whose dialect has a call for it. Raises retryable errors, such as UNAVAILABLE."""
    if not upstream.offers(Operation.MODEL_CONFIG):
        return None
    try:
        reply: bytes = await read_from(upstream, Operation.MODEL_CONFIG, model)
    except InferenceError as error:
        if error.retryable:
            raise
        return None
    return read_config(reply)


def is_decoupled(config: Any) -> bool:
    """Whether a model with ``config`` (None: without one) answers any number of times."""
    return config is not None and bool(config.model_transaction_policy.decoupled)


def shown_config(
    config: Any, name: str, inputs: Renames, outputs: Renames, signature: Signature, attributes: Attributes
) -> bytes:
    """``config``, an ``inference.ModelConfig``, serialized for clients that use ``name``, with the served
    ``signature`` and the ``attributes``. ``inputs`` and ``outputs`` map the upstream's names to the
    clients'."""
    config.name = name
    for tensors, names in ((config.input, inputs), (config.output, outputs)):
        for tensor in tensors:
            tensor.name = names.get(tensor.name, tensor.name)
    write_signature(config, signature)
    attributes.write(config)
    return serialized(config)
