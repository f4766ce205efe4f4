"""The messages of the version 1 contract, compiled from ``trtis.proto`` beside this file.

They live in a descriptor pool of their own, apart from the project's. What the stand-in server and
the stand-in client both need of the contract is here too: datatypes, strings, text on one line.
"""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from grpc_tools import protoc

SERVICE = "/nvidia.inferenceserver.GRPCService/"
PACKAGE = "nvidia.inferenceserver."
LATEST = -1
"""The model version that means the latest one that is ready."""

NUMPY: dict[str, Any] = {
    "TYPE_BOOL": np.bool_, "TYPE_UINT8": np.uint8, "TYPE_UINT16": np.uint16, "TYPE_UINT32": np.uint32,
    "TYPE_UINT64": np.uint64, "TYPE_INT8": np.int8, "TYPE_INT16": np.int16, "TYPE_INT32": np.int32,
    "TYPE_INT64": np.int64, "TYPE_FP16": np.float16, "TYPE_FP32": np.float32, "TYPE_FP64": np.float64,
    "TYPE_STRING": np.object_,
}  # fmt: skip


def _compile() -> tuple[dict[str, Any], Any]:
    folder = Path(__file__).parent
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "trtis.desc"
        arguments = ["protoc", f"--proto_path={folder}", f"--descriptor_set_out={out}", "trtis.proto"]
        assert protoc.main(arguments) == 0
        found = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in found.file:
        pool.Add(file)
    messages = message_factory.GetMessageClassesForFiles([file.name for file in found.file], pool)
    return messages, pool


MESSAGES, POOL = _compile()


def message(name: str, /, **fields: Any) -> Any:
    """A new message of the contract, by its name within the package."""
    return MESSAGES[PACKAGE + name](**fields)


def parse(name: str, data: bytes) -> Any:
    """A message of the contract from its serialized form."""
    return MESSAGES[PACKAGE + name].FromString(data)


def enum(name: str) -> Any:
    """An enumeration of the contract, with ``values_by_name`` and ``values_by_number``."""
    return POOL.FindEnumTypeByName(PACKAGE + name)


def code_name(status: Any) -> str:
    """The name of the code in a ``RequestStatus``."""
    return str(enum("RequestStatusCode").values_by_number[status.code].name)


def datatype_name(number: int) -> str:
    """The name of a ``DataType``."""
    return str(enum("DataType").values_by_number[number].name)


def one_line(value: Any) -> str:
    """The text of a message as the header fields have it: one line, octal escapes."""
    return text_format.MessageToString(value, as_one_line=True, as_utf8=False).strip()


def from_line(name: str, text: str) -> Any:
    """The message that a header field holds. Raises ``text_format.ParseError``."""
    return text_format.Parse(text, message(name), descriptor_pool=POOL)


def pack(array: Any) -> bytes:
    """The bytes of a whole batch: little endian, row major; strings each behind its length."""
    if array.dtype.kind in "OSU":
        items = [item if isinstance(item, bytes) else str(item).encode() for item in array.ravel().tolist()]
        return b"".join(struct.pack("<I", len(item)) + item for item in items)
    return bytes(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes())


def strings(data: bytes, count: int) -> tuple[list[bytes], int]:
    """``count`` strings from the beginning of ``data``, and how many bytes they take."""
    found, position = [], 0
    for _ in range(count):
        (length,) = struct.unpack_from("<I", data, position)
        found.append(data[position + 4 : position + 4 + length])
        assert len(found[-1]) == length, "a string that is cut off"
        position += 4 + length
    return found, position


def unpack(data: bytes, datatype: str, shape: list[int]) -> Any:
    """The array behind the bytes of a whole batch, which must be exactly its size."""
    if datatype == "TYPE_STRING":
        found, used = strings(data, int(np.prod(shape, dtype=np.int64)))
        assert used == len(data), f"{len(data) - used} bytes after the last string"
        array = np.empty(len(found), np.object_)
        array[:] = found
        return array.reshape(shape)
    return np.frombuffer(data, np.dtype(NUMPY[datatype]).newbyteorder("<")).reshape(shape)
