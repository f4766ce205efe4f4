"""What every gRPC method of the dialect shares: parameters, and errors in both directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from interlingua.protocols import protobuf_message
from interlingua.protocols.dialect import Opened, ReplyForm
from interlingua.protocols.grpc_status import CODE_OF_GRPC_STATUS, GRPC_STATUS
from interlingua.protocols.oip.codec import DIALECT_NAME, reported_code
from interlingua.protocols.upstream_reply import grpc_error
from interlingua.protocols.wire import Buffer, GrpcAnswer, GrpcRequest
from interlingua.schemas import InferenceError, Parameter, bad_upstream
from interlingua.schemas.errors import RESTRICTED_HEADER
from interlingua.schemas.oip import MESSAGES

Result = TypeVar("Result")

SERVICE = "/inference.GRPCInferenceService/"
"""The path of a method of the dialect, up to the method's name."""

MAX_INT64 = 2**63 - 1

_UNKNOWN = 2
_UNAVAILABLE = 14
_PARAMETER: Any = MESSAGES["inference.InferParameter"]
_FIELDS = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}

serialize = partial(protobuf_message.serialize, DIALECT_NAME)
unwritable = partial(protobuf_message.unwritable, DIALECT_NAME)


def read_parameters(given: Mapping[str, Any]) -> dict[str, Parameter]:
    """Parameters by name, without those that have no value."""
    found: dict[str, Parameter] = {}
    for key, value in given.items():
        choice = value.WhichOneof("parameter_choice")
        if choice is not None:
            found[key] = getattr(value, choice)
    return found


def write_parameters(target: Any, parameters: Mapping[str, Parameter]) -> None:
    """Fill ``target``, the parameters of a message. An integer is an ``int64_param``, which all servers read,
    or a ``uint64_param`` if it is too large for that."""
    for key, value in parameters.items():
        setattr(target[key], _field(value), value)


def parameter_messages(parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """``parameters`` as messages by name, written as :func:`write_parameters` does."""
    return {key: _PARAMETER(**{_field(value): value}) for key, value in parameters.items()}


def _field(value: Parameter) -> str:
    return "uint64_param" if isinstance(value, int) and value > MAX_INT64 else _FIELDS[type(value)]


def fail(request: GrpcRequest, opened: Opened[GrpcAnswer] | None, error: InferenceError) -> GrpcAnswer:
    """The status that reports ``error``."""
    # a message may quote text that is not Unicode
    details = error.message.encode(errors="backslashreplace").decode()
    if RESTRICTED_HEADER in error.details:
        # Triton's status and text, which differ from those over HTTP
        return GrpcAnswer(code=_UNAVAILABLE, details=details.replace("API", "protocol", 1))
    code = reported_code(opened.action.operation if opened else None, error.code)
    return GrpcAnswer(code=_UNKNOWN if error.is_unknown else GRPC_STATUS[code], details=details)


def reader(read: Callable[[ReplyForm, Buffer], Result]) -> Callable[[ReplyForm, GrpcAnswer], Result]:
    """The decoder of an upstream's answer, where ``read`` decodes a message. It raises a status other than OK
    in the upstream's words, and BAD_UPSTREAM for any error of ``read``."""

    def decode(form: ReplyForm, answer: GrpcAnswer) -> Result:
        if answer.code:
            raise grpc_error(answer, CODE_OF_GRPC_STATUS)
        try:
            return read(form, answer.message)
        except InferenceError as error:
            raise bad_upstream(f"unusable answer: {error.message}") from error

    return decode
