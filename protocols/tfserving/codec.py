"""What REST and gRPC share of TensorFlow Serving: datatypes, versions and labels, signatures, errors.

A version is a number, a label any other text: in the IR both are the version of a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from interlingua.protocols import grpc_status, upstream_reply
from interlingua.protocols.dialect import Opened
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    Operation,
    Tensor,
    invalid_tensor,
    not_carried,
)
from interlingua.schemas.tfserving import MESSAGES

DIALECT_NAME = "tfserving"

DEFAULT_SIGNATURE = "serving_default"
"""The name of a model's signature; a model here has one."""

NO_MODEL = "Missing model name in request."
NO_MODEL_SPEC = "Missing ModelSpec"
"""The original's words over REST and gRPC for a request that names no model."""

PREDICT_METHOD, CLASSIFY_METHOD, REGRESS_METHOD = (
    f"tensorflow/serving/{method}" for method in ("predict", "classify", "regress")
)

NUMBER_OF: Mapping[Datatype, int] = {
    Datatype.FP32: 1,
    Datatype.FP64: 2,
    Datatype.INT32: 3,
    Datatype.UINT8: 4,
    Datatype.INT16: 5,
    Datatype.INT8: 6,
    Datatype.BYTES: 7,
    Datatype.INT64: 9,
    Datatype.BOOL: 10,
    Datatype.BF16: 14,
    Datatype.UINT16: 17,
    Datatype.FP16: 19,
    Datatype.UINT32: 22,
    Datatype.UINT64: 23,
}
"""The number of each datatype in ``tensorflow.DataType``."""

DATATYPE_OF: Mapping[int, Datatype] = {number: datatype for datatype, number in NUMBER_OF.items()}

_NAMES: Mapping[int, str] = {
    value.number: value.name
    for value in MESSAGES["tensorflow.TensorProto"].DESCRIPTOR.file.enum_types_by_name["DataType"].values
}
NAME_OF: Mapping[Datatype, str] = {datatype: _NAMES[number] for datatype, number in NUMBER_OF.items()}
"""The name of each datatype in ``tensorflow.DataType``, such as DT_FLOAT."""

DATATYPE_NAMED: Mapping[str, Datatype] = {name: datatype for datatype, name in NAME_OF.items()}

_NO_NUMBER = "failed to get model version from specified version string"
"""The beginning of a local model's words for a version that is not a number."""

_LAST_VERSION = 2**63 - 1
_MOST_DIGITS = 19


def datatype_of(name: str, number: int) -> Datatype:
    """The datatype of tensor ``name``. Raises INVALID_TENSOR for one that no model here has, such as
    DT_RESOURCE."""
    datatype = DATATYPE_OF.get(number)
    if datatype is None:
        stated = _NAMES.get(number, str(number))
        raise invalid_tensor(f"tensor '{name}' has the datatype {stated}, which is not supported")
    return datatype


# --- versions and labels


def version_of(number: int) -> str:
    """The version of a number on the wire. Clients for OpenVINO Model Server send 0 for no version, and no
    repository here has a version 0."""
    return str(number) if number else ""


def label_of(label: str) -> str:
    """The version of a label on the wire. Raises INVALID_TENSOR for a number: it would be read as one."""
    if version_number(label) is not None:
        raise unknown_label(label)
    return label


def version_number(version: str) -> int | None:
    """The number of ``version``; None for a label, or no version."""
    if not (version.isascii() and version.isdigit()) or len(version) > _MOST_DIGITS:
        return None
    number = int(version)
    return number if number <= _LAST_VERSION and str(number) == version else None


def unknown_label(label: str) -> InferenceError:
    """The error of the original server for a label without a version."""
    return invalid_tensor(f"Unrecognized servable version label: {label}")


# --- requests


def check_names(inputs: Sequence[Tensor]) -> None:
    """Raise UNREPRESENTABLE for two inputs of one name: the dialect has a map of them."""
    if len(inputs) > 1 and len({tensor.name for tensor in inputs}) < len(inputs):
        names = ", ".join(repr(tensor.name) for tensor in inputs)
        raise not_carried(DIALECT_NAME, f"two inputs of one name: {names}")


# --- signatures


def check_signature_name(name: str, method: str = PREDICT_METHOD) -> None:
    """Raise INVALID_TENSOR for the name of a signature that no model here has. Empty means the default one;
    documentation of the original names signatures after their method."""
    if name and name not in (DEFAULT_SIGNATURE, method):
        raise invalid_tensor(f'Serving signature name: "{name}" not found in signature def')


# --- errors

CODE_OF_GRPC_STATUS: Mapping[int, ErrorCode] = {
    **grpc_status.CODE_OF_GRPC_STATUS,
    11: ErrorCode.INVALID_TENSOR,
}
"""The meaning of an upstream's gRPC status; any other is BAD_UPSTREAM."""

CODE_OF_HTTP_STATUS: Mapping[int, ErrorCode] = {
    **upstream_reply.CODE_OF_HTTP_STATUS,
    408: ErrorCode.DEADLINE_EXCEEDED,
    409: ErrorCode.ALREADY_EXISTS,
    412: ErrorCode.INVALID_TENSOR,  # OpenVINO Model Server for a body that is not JSON
    422: ErrorCode.INVALID_TENSOR,  # KServe for a body that fails its validation
}
"""The same for HTTP."""


def as_original(opened: Opened[Any] | None, error: InferenceError) -> InferenceError:
    """``error`` in the words of the original server, where clients know these: an unknown model, version or
    label."""
    if opened is None:
        return error
    model, version = opened.model, opened.version
    number = version_number(version)
    unknown = error.model_not_found
    if version and number is None and (unknown or error.message.startswith(_NO_NUMBER)):
        return unknown_label(version)
    if not unknown:
        return error
    if opened.action.operation is Operation.STATUS:
        which = "any versions" if number is None else f"version {number}"
        return InferenceError(ErrorCode.NOT_FOUND, f"Could not find {which} of model {model}")
    if number is None:
        words = f"Servable not found for request: Latest({model})"
    else:
        words = f"Servable not found for request: Specific({model}, {number})"
    if error.message.startswith(words):
        return error  # of an upstream of this dialect
    # the reason is that of an upstream, for example
    return InferenceError(ErrorCode.NOT_FOUND, f"{words}; {error.message}", origin=error.origin)
