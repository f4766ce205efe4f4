"""What every gRPC method of the dialect shares: the model in a message, and errors in both directions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from interlingua.protocols import protobuf_message
from interlingua.protocols.dialect import Opened, ReplyForm
from interlingua.protocols.grpc_status import GRPC_STATUS
from interlingua.protocols.tfserving.codec import (
    CODE_OF_GRPC_STATUS,
    DIALECT_NAME,
    NO_MODEL_SPEC,
    as_original,
    label_of,
    version_number,
    version_of,
)
from interlingua.protocols.upstream_reply import grpc_error, read_reply
from interlingua.protocols.wire import Buffer, GrpcAnswer, GrpcRequest
from interlingua.schemas import InferenceError, invalid_tensor
from interlingua.schemas.tfserving import MESSAGES

Result = TypeVar("Result")

PREDICTION_SERVICE = "/tensorflow.serving.PredictionService/"
MODEL_SERVICE = "/tensorflow.serving.ModelService/"

_UNKNOWN = 2
_SPEC: Any = MESSAGES["tensorflow.serving.ModelSpec"]

serialize = partial(protobuf_message.serialize, DIALECT_NAME)
unwritable = partial(protobuf_message.unwritable, DIALECT_NAME)


def message_of(name: str) -> Any:
    """The class of message ``name`` of the services."""
    return MESSAGES[f"tensorflow.serving.{name}"]


def model_of(message: Any) -> tuple[str, str, str]:
    """The names of the model, the version or label, and the signature that ``message`` has. Raises
    INVALID_TENSOR for a message without a model."""
    if not message.HasField("model_spec"):
        raise invalid_tensor(NO_MODEL_SPEC)
    spec = message.model_spec
    if spec.WhichOneof("version_choice") == "version_label":
        return spec.name, label_of(spec.version_label), spec.signature_name
    return spec.name, version_of(spec.version.value), spec.signature_name


def spec_of(model: str, version: str, signature: str = "") -> Any:
    """The message that names ``version``, or a label, of ``model``. Raises UNREPRESENTABLE."""
    number = version_number(version)
    try:
        spec = _SPEC(name=model, signature_name=signature)
        if number is not None:
            spec.version.value = number
        elif version:
            spec.version_label = version
    except ValueError as error:
        raise unwritable(error) from error
    return spec


def fail(request: GrpcRequest, opened: Opened[GrpcAnswer] | None, error: InferenceError) -> GrpcAnswer:
    """The status that reports ``error``."""
    error = as_original(opened, error)
    # a message may quote text that is not Unicode
    details = error.message.encode(errors="backslashreplace").decode()
    return GrpcAnswer(code=_UNKNOWN if error.is_unknown else GRPC_STATUS[error.code], details=details)


def reader(read: Callable[[ReplyForm, Buffer], Result]) -> Callable[[ReplyForm, GrpcAnswer], Result]:
    """The decoder of an upstream's answer, where ``read`` decodes a message. It raises a status other than OK
    in the upstream's words, and BAD_UPSTREAM for an invalid message."""

    def decode(form: ReplyForm, answer: GrpcAnswer) -> Result:
        if answer.code:
            raise grpc_error(answer, CODE_OF_GRPC_STATUS)
        return read_reply(read, form, answer.message)

    return decode
