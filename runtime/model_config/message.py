"""A model's configuration for clients: ``inference.ModelConfig`` with the defaults filled in.

The message is ``config.pbtxt``, overlaid with what is served: name, engine, batch limit, tensors. v1's
clients read the same fields under the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from interlingua.runtime.model_config.config import TYPE_OF_DATATYPE, ModelConfig
from interlingua.runtime.model_config.defaults import fill_in_engine, fill_in_scheduling
from interlingua.runtime.models.reshape import Reshape
from interlingua.schemas import Signature, TensorSpec
from interlingua.schemas.model_config import MODEL_CONFIG

_NO_RESHAPES: Mapping[str, Reshape] = {}


def config_message(config: ModelConfig, signature: Signature) -> bytes:
    """The serialized ``inference.ModelConfig`` of a model that is served with ``signature``. ``config`` is
    complete except for defaults: the latest version, the CPU, one instance. ``dims`` never include the
    batch."""
    message = MODEL_CONFIG()
    message.MergeFromString(config.stated)
    message.name = config.name
    # as with Triton, an ensemble has no engine of its own
    engine = not message.HasField("ensemble_scheduling")
    message.backend = config.backend if engine else ""
    message.platform = config.platform
    message.default_model_filename = config.default_model_filename
    _write_version_policy(message.version_policy, config)
    write_signature(message, signature, config.input_reshapes, config.output_reshapes)
    for spec, tensor in zip(signature.inputs, message.input, strict=True):
        tensor.optional = spec.optional
    fill_in_scheduling(message)
    if engine:
        fill_in_engine(message, config)
    else:
        del message.instance_group[:]
    return serialized(message)


def serialized(message: Any) -> bytes:
    """``message``, an ``inference.ModelConfig``, the same bytes every time."""
    written: bytes = message.SerializeToString(deterministic=True)
    return written


def with_decoupled(config: bytes, decoupled: bool) -> bytes:
    """``config``, a serialized ``inference.ModelConfig``, with this transaction policy."""
    message = MODEL_CONFIG.FromString(config)
    if message.model_transaction_policy.decoupled == decoupled:
        return config
    message.model_transaction_policy.decoupled = decoupled
    return serialized(message)


def write_signature(
    message: Any,
    signature: Signature,
    input_reshapes: Mapping[str, Reshape] = _NO_RESHAPES,
    output_reshapes: Mapping[str, Reshape] = _NO_RESHAPES,
) -> None:
    """Write ``signature`` to ``message``, an ``inference.ModelConfig``; other fields of a tensor of the same
    name stay."""
    message.max_batch_size = signature.max_batch_size
    batched = signature.max_batch_size > 0
    _write_tensors(message.input, signature.inputs, input_reshapes, batched)
    _write_tensors(message.output, signature.outputs, output_reshapes, batched)


def _write_version_policy(message: Any, config: ModelConfig) -> None:
    policy = config.version_policy
    if policy.specific:
        message.specific.versions[:] = policy.specific
    elif policy.latest:
        message.latest.num_versions = policy.latest
    else:
        message.all.SetInParent()


def _write_tensors(
    messages: Any, specs: Iterable[TensorSpec], reshapes: Mapping[str, Reshape], batched: bool
) -> None:
    """Replace the tensors by ``specs``; other fields of one (format, label file) stay."""
    stated = {message.name: message.SerializeToString() for message in messages}
    del messages[:]
    for spec in specs:
        message = messages.add()
        message.MergeFromString(stated.get(spec.name, b""))
        message.ClearField("reshape")
        message.name = spec.name
        message.data_type = TYPE_OF_DATATYPE[spec.datatype]
        message.dims[:] = spec.shape[1:] if batched else spec.shape
        if spec.name in reshapes:
            inner = reshapes[spec.name].inner
            message.reshape.SetInParent()
            message.reshape.shape[:] = inner[1:] if batched else inner
