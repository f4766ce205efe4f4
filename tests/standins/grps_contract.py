"""The messages and stubs that protoc makes of ``grps.proto`` beside this file, and JSON in two hands.

They live in protobuf's default pool, as those of grps itself do; the project's have one of their own. What the
stand-in servers and clients both need is here too: tensors to and from arrays, element by element, and
JSON as the Python server (``py``) and the C++ server (``cpp``) write it.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import json_format
from grpc_tools import protoc

BRPC_SERVICE = "grps.protos.v1.GrpsBrpcService"

DTYPES: dict[str, Any] = {
    "DT_UINT8": np.uint8, "DT_INT8": np.int8, "DT_INT16": np.int16, "DT_INT32": np.int32, "DT_INT64": np.int64,
    "DT_FLOAT16": np.float16, "DT_FLOAT32": np.float32, "DT_FLOAT64": np.float64, "DT_STRING": np.object_,
}  # fmt: skip
"""NumPy's type for each datatype of the contract."""


def _compile() -> tuple[Any, Any]:
    folder = Path(__file__).parent
    with tempfile.TemporaryDirectory() as out:
        outputs = [f"--{kind}_out={out}" for kind in ("python", "grpc_python")]
        assert protoc.main(["protoc", f"--proto_path={folder}", *outputs, "grps.proto"]) == 0
        sys.path.insert(0, out)
        try:
            return importlib.import_module("grps_pb2"), importlib.import_module("grps_pb2_grpc")
        finally:
            sys.path.remove(out)


_MESSAGES, STUBS = _compile()
GrpsMessage: Any = _MESSAGES.GrpsMessage
GenericTensor: Any = _MESSAGES.GenericTensor
_DATATYPES: Any = _MESSAGES.DataType


def flat_field(datatype: str) -> str:
    """The field that holds the values of a tensor of ``datatype``, ``DT_FLOAT16`` say."""
    return f"flat_{datatype.removeprefix('DT_').lower()}"


def datatype_of(array: Any) -> str:
    """The name of the datatype that stores ``array``."""
    return next(name for name, dtype in DTYPES.items() if np.dtype(dtype) == array.dtype)


def tensor(name: str, array: Any) -> Any:
    """A ``GenericTensor``; strings may be given as ``str`` or as UTF-8."""
    array = np.asarray(array)
    datatype = datatype_of(array)
    values = array.ravel().tolist()
    if datatype == "DT_STRING":
        values = [value.decode() if isinstance(value, bytes) else value for value in values]
    written = GenericTensor(name=name, dtype=_DATATYPES.Value(datatype), shape=array.shape)
    getattr(written, flat_field(datatype)).extend(values)
    return written


def gtensors(model: str = "", /, **arrays: Any) -> Any:
    """A message of tensors."""
    message = GrpsMessage(model=model)
    message.gtensors.SetInParent()
    for name, array in arrays.items():
        message.gtensors.tensors.append(tensor(name, array))
    return message


def array_of(given: Any) -> Any:
    """The array in a ``GenericTensor``; fails where its values are not as many as its shape says."""
    datatype = _DATATYPES.Name(given.dtype)
    values = list(getattr(given, flat_field(datatype)))
    shape = tuple(given.shape)
    assert len(values) == int(np.prod(shape, dtype=np.int64)), f"{given.name}: {shape}, {len(values)} values"
    array = np.empty(len(values), DTYPES[datatype])
    array[:] = values
    return array.reshape(shape)


def arrays_of(message: Any) -> dict[str, Any]:
    """The tensors of a message by name."""
    assert message.WhichOneof("data_oneof") == "gtensors", message
    names = [given.name for given in message.gtensors.tensors]
    assert len(set(names)) == len(names), names
    return {given.name: array_of(given) for given in message.gtensors.tensors}


# ---- JSON


def to_json(message: Any, flavor: str, *, stream: bool = False) -> bytes:
    """``message`` as a server of ``flavor`` writes it, in a unary reply or in a stream."""
    members = json_format.MessageToDict(message, preserving_proto_field_name=True)
    if flavor == "py":
        return json.dumps(members, indent=2 if stream else 1).encode()
    text = json.dumps(_whole_floats(members), indent=1, ensure_ascii=False)
    return (text.replace("<", "\\u003c").replace(">", "\\u003e") + "\n").encode()


def _whole_floats(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _whole_floats(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_whole_floats(each) for each in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value) if math.copysign(1, value) > 0 or value else value
    return value


def from_json(text: bytes | str) -> Any:
    """The message that a reply holds."""
    return json_format.Parse(text, GrpsMessage())
