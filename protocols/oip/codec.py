"""What HTTP and gRPC share of the Open Inference Protocol: parameters, requested outputs, errors.

Pure functions between plain parameter mappings (``{"sequence_id": 7}``) and the fields of the IR, and the
tables between error codes and the statuses of either transport. ``codec_http`` and ``codec_grpc`` have the
wire formats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from interlingua.protocols import upstream_reply
from interlingua.schemas import (
    Context,
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    Operation,
    Parameter,
    RequestedOutput,
    SharedMemoryRef,
    Tensor,
    element_count,
    invalid_tensor,
    not_text,
    unrepresentable,
)
from interlingua.schemas import Sequence as SequencePosition
from interlingua.schemas.messages import SEQUENCE_FLAGS

DIALECT_NAME = "oip"

CODE_OF_HTTP_STATUS: Mapping[int, ErrorCode] = {
    **upstream_reply.CODE_OF_HTTP_STATUS,
    406: ErrorCode.UNSUPPORTED,  # OpenVINO Model Server for a wrong method
    408: ErrorCode.DEADLINE_EXCEEDED,
    412: ErrorCode.MALFORMED,  # OpenVINO Model Server for a body that is not JSON
    415: ErrorCode.UNSUPPORTED,
    422: ErrorCode.INVALID_TENSOR,  # MLServer and KServe for a body that fails their validation
}
"""The meaning of an upstream's HTTP status; any other is BAD_UPSTREAM."""

WHILE_RUNNING = frozenset(
    {ErrorCode.MODEL_FAILED, ErrorCode.INTERNAL, ErrorCode.BAD_UPSTREAM, ErrorCode.DEADLINE_EXCEEDED}
)
"""Errors of a running model; others occur before it runs, unless a model has answered with them."""


def reported_code(operation: Operation | None, code: ErrorCode) -> ErrorCode:
    """The code for a caller of ``operation``. As on Triton, a model that fails to load is an error of the
    request."""
    if operation is Operation.MODEL_LOAD and code is ErrorCode.MODEL_FAILED:
        return ErrorCode.INVALID_TENSOR
    return code


EMPTY_FINAL_RESPONSE = "triton_enable_empty_final_response"
"""The one ``triton_`` parameter that a request may carry (bool)."""

_MAX_ID_BYTES = 1 << 16

_TRITON_PREFIX = "triton_"
_FIELDS = frozenset(
    {"sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "binary_data_output"}
)
"""Parameters of the protocol, not of the model; ``binary_data_output`` is about the form of the answer."""

_SHARED_MEMORY = ("shared_memory_region", "shared_memory_offset", "shared_memory_byte_size")
_OF_OUTPUTS = frozenset({"classification", "binary_data", "binary_data_size", *_SHARED_MEMORY})
_MAX_UINT64 = 2**64 - 1
SCALARS = frozenset({bool, int, float, str})
"""The types of parameters that the IR has."""

_NO_PARAMETERS: Mapping[str, Parameter] = {}


@dataclass(frozen=True, slots=True)
class RequestFields:
    """The request parameters that the IR has fields for, and the rest."""

    sequence: SequencePosition | None = None
    priority: int = 0
    timeout_us: int = 0
    parameters: Mapping[str, Parameter] = field(default_factory=lambda: _NO_PARAMETERS)

    def request(
        self,
        model: str,
        version: str,
        inputs: tuple[Tensor, ...],
        outputs: tuple[RequestedOutput, ...] | None = None,
        identity: str = "",
        *,
        context: Context,
    ) -> InferRequest:
        """A request with these parameters."""
        return InferRequest(
            model,
            inputs,
            outputs,
            version,
            identity,
            self.parameters,
            self.sequence,
            self.priority,
            self.timeout_us,
            context,
        )


NO_FIELDS = RequestFields()


def check_id(identity: str) -> str:
    """The id of a request. Raises INVALID_TENSOR for one above 64 KiB: every answer repeats it."""
    if len(identity) > _MAX_ID_BYTES // 4 and len(identity.encode(errors="replace")) > _MAX_ID_BYTES:
        raise invalid_tensor(f"the id of the request has more than {_MAX_ID_BYTES} bytes")
    return identity


def split_parameters(given: Mapping[str, Any], *, streams: bool = False) -> RequestFields:
    """Split the parameters of a request into IR fields and the model's own parameters.

    ``timeout`` is in microseconds. A ``sequence_id`` of 0 or "" means no sequence; a flag that is set without
    one is a parameter, for models that read it. ``streams`` allows EMPTY_FINAL_RESPONSE. Raises
    INVALID_TENSOR for a wrong type, a negative number or a reserved name.
    """
    if not given:
        return NO_FIELDS
    for key, value in given.items():
        check_parameter(key, value, streams)
    return request_fields(given)


def check_parameter(key: str, value: Any, streams: bool) -> None:
    """Raise INVALID_TENSOR, in Triton's words, for a parameter of the model that no request may have."""
    if key in _FIELDS:
        return
    if key.startswith(_TRITON_PREFIX) and not (streams and key == EMPTY_FINAL_RESPONSE):
        rest = " and should not be specified."
        if streams:
            rest = (
                f". Only the following keys starting with '{_TRITON_PREFIX}' are allowed: "
                f"{EMPTY_FINAL_RESPONSE}."
            )
        raise invalid_tensor(
            f"parameter keys starting with '{_TRITON_PREFIX}' are reserved for Triton usage{rest} Got '{key}'"
        )
    if type(value) not in SCALARS:
        raise invalid_tensor(
            f"parameter '{key}' has invalid type. It should be either 'int', 'bool', or 'string'."
        )


def request_fields(given: Mapping[str, Any]) -> RequestFields:
    """The fields of checked parameters. Raises INVALID_TENSOR for a wrong type or a negative number."""
    # EMPTY_FINAL_RESPONSE is for streams, not for the model
    own = {key: value for key, value in given.items() if key not in _FIELDS and key != EMPTY_FINAL_RESPONSE}
    sequence = _sequence(given)
    if sequence is None:
        own.update({key: True for key in SEQUENCE_FLAGS if given.get(key)})
    return RequestFields(
        sequence, _unsigned(given, "priority"), _unsigned(given, "timeout"), own or _NO_PARAMETERS
    )


def join_parameters(request: InferRequest) -> dict[str, Parameter]:
    """The parameters of a request, IR fields included: what :func:`split_parameters` reads. Raises
    UNREPRESENTABLE for a model's parameter with a reserved name."""
    joined: dict[str, Parameter] = {}
    for key, value in request.parameters.items():
        reserved = key.startswith(_TRITON_PREFIX) and key != EMPTY_FINAL_RESPONSE
        if reserved or (key in _FIELDS and not (key in SEQUENCE_FLAGS and value is True)):
            raise _unrepresentable(f"request parameter '{key}'")
        if isinstance(value, bytes):
            raise not_text(key, "dialect 'oip'")
        joined[key] = value
    if request.sequence is not None:
        joined["sequence_id"] = request.sequence.id
        joined["sequence_start"] = request.sequence.start
        joined["sequence_end"] = request.sequence.end
    if request.priority:
        joined["priority"] = request.priority
    if request.timeout_us:
        joined["timeout"] = request.timeout_us
    return joined


def requested_output(name: str, given: Mapping[str, Any]) -> RequestedOutput:
    """A requested output with its ``classification`` count, its place in shared memory and its other scalar
    parameters; Triton ignores all others.

    Raises INVALID_TENSOR for a wrong type, a negative number, and classification or ``binary_data`` together
    with shared memory.
    """
    if not given:
        return RequestedOutput(name)
    owner = f"output '{name}'"
    placement = shared_memory_ref(owner, given)
    classification = _unsigned(given, "classification", owner)
    if placement is not None and (classification or given.get("binary_data")):
        raise invalid_tensor(f"{owner} requests shared memory together with classification or binary_data")
    return RequestedOutput(name, classification, placement, own_parameters(given) or _NO_PARAMETERS)


def own_parameters(given: Mapping[str, Any]) -> dict[str, Parameter] | None:
    """The scalar parameters of a tensor that are not the protocol's own, None without any."""
    if not given:
        return None
    own = {key: value for key, value in given.items() if key not in _OF_OUTPUTS and type(value) in SCALARS}
    return own or None


def output_parameters(output: RequestedOutput) -> dict[str, Parameter]:
    """The parameters of a requested output: what :func:`requested_output` reads. Raises UNREPRESENTABLE for a
    parameter with a reserved name."""
    joined: dict[str, Parameter] = {}
    for key, value in output.parameters.items():
        if key in _OF_OUTPUTS:
            raise _unrepresentable(f"parameter '{key}' of requested output '{output.name}'")
        joined[key] = value
    if output.classification:
        joined["classification"] = output.classification
    if output.placement is not None:
        joined.update(shared_memory_parameters(output.placement))
    return joined


def distinct_outputs(outputs: Iterable[RequestedOutput]) -> tuple[RequestedOutput, ...] | None:
    """Each requested output once, the first of equal names; None, for all outputs, if there are none."""
    found: dict[str, RequestedOutput] = {}
    for output in outputs:
        found.setdefault(output.name, output)
    return tuple(found.values()) or None


def shared_memory_ref(owner: str, given: Mapping[str, Any]) -> SharedMemoryRef | None:
    """The place in shared memory that the parameters of a tensor state, if any.

    ``owner`` names the tensor in errors (``input 'X'``). Raises INVALID_TENSOR for a region that is not a
    string or has no size, and for an offset or size that is not an unsigned integer.
    """
    region = given.get("shared_memory_region")
    if region is None:
        return None
    if not isinstance(region, str) or not region:
        raise invalid_tensor(f"parameter 'shared_memory_region' of {owner} must be a non-empty string")
    if "shared_memory_byte_size" not in given:
        raise invalid_tensor(f"{owner} names a shared_memory_region but no shared_memory_byte_size")
    size = _unsigned(given, "shared_memory_byte_size", owner)
    return SharedMemoryRef(region, _unsigned(given, "shared_memory_offset", owner), size)


def shared_memory_parameters(place: SharedMemoryRef) -> dict[str, Parameter]:
    """The parameters that :func:`shared_memory_ref` reads."""
    values: tuple[Parameter, ...] = (place.region, place.offset, place.size)
    return dict(zip(_SHARED_MEMORY, values, strict=True))


def input_tensor(model: str, name: str, datatype: Datatype, shape: Sequence[int], data: Any) -> Tensor:
    """An input tensor over ``data`` (any buffer of bytes), zero-copy. Raises INVALID_TENSOR; for a wrong size
    the message is Triton's."""
    if datatype is Datatype.BYTES:
        return Tensor.checked(name, datatype, shape, data)
    expected = element_count(shape, name) * datatype.itemsize
    if expected != len(data):
        raise invalid_tensor(
            f"input byte size mismatch for input '{name}' for model '{model}'. "
            f"Expected {expected}, got {len(data)}"
        )
    return Tensor(name, datatype, tuple(shape), memoryview(data).toreadonly())


def _sequence(given: Mapping[str, Any]) -> SequencePosition | None:
    start, end = _bool(given, "sequence_start"), _bool(given, "sequence_end")
    identity = given.get("sequence_id", 0)
    if type(identity) is not str:
        identity = _unsigned(given, "sequence_id", expected="an unsigned integer or a string")
    return SequencePosition(identity, start, end) if identity else None


def _bool(given: Mapping[str, Any], key: str) -> bool:
    value = given.get(key, False)
    if type(value) is not bool:
        raise invalid_tensor(f"parameter '{key}' must be a boolean, got {_kind(value)}")
    return value


def _unsigned(
    given: Mapping[str, Any], key: str, owner: str = "", expected: str = "an unsigned integer"
) -> int:
    value = given.get(key, 0)
    # not isinstance: a bool is an int to Python
    if type(value) is not int or not 0 <= value <= _MAX_UINT64:
        of = f" of {owner}" if owner else ""
        got = value if type(value) is int else _kind(value)
        raise invalid_tensor(f"parameter '{key}'{of} must be {expected}, got {got}")
    return value


_KINDS = {bool: "a boolean", int: "an integer", float: "a float", str: "a string", type(None): "null"}


def _kind(value: object) -> str:
    if isinstance(value, Mapping):
        return "an object"
    return _KINDS.get(type(value), "a list")


def _unrepresentable(what: str) -> InferenceError:
    return unrepresentable(f"{what} is a reserved name in dialect '{DIALECT_NAME}'")
