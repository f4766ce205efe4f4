"""Bodies that cost a decoder far more than their sender: pure functions, small arguments for small ones.

All are well-formed. They name the model ``identity`` for numbers and ``identity_bytes`` for strings.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from itertools import repeat

from benchmarks.cases import MODEL
from benchmarks.hostile.servers import STRINGS
from interlingua.protocols.graphpipe import writer
from interlingua.protocols.protobuf_wire import varint
from interlingua.schemas import Datatype
from interlingua.schemas.graphpipe import TYPES

_LEVEL = 9


def json_of(data: bytes, shape: tuple[int, ...], datatype: str) -> bytes:
    """A request of the Open Inference Protocol with ``data`` as the JSON of its tensor."""
    dimensions = ",".join(map(str, shape))
    head = f'{{"inputs":[{{"name":"INPUT0","datatype":"{datatype}","shape":[{dimensions}],"data":'
    return b"".join((head.encode(), data, b"}]}"))


def empty_strings(count: int) -> bytes:
    return json_of(b"[" + b'"",' * (count - 1) + b'""]', (1, count), "BYTES")


def strings(count: int) -> bytes:
    """Strings of two characters."""
    return json_of(b"[" + b'"ab",' * (count - 1) + b'"ab"]', (1, count), "BYTES")


def numbers(count: int) -> bytes:
    return json_of(b"[" + b"1.25," * (count - 1) + b"1.25]", (1, count), "FP32")


def arrays(count: int) -> bytes:
    """Nested arrays of one number each."""
    return json_of(b"[" + b"[1]," * (count - 1) + b"[1]]", (count, 1), "FP32")


def equal_keys(count: int) -> bytes:
    return b"{" + b'"a":1,' * (count - 1) + b'"a":1}'


def distinct_keys(count: int) -> bytes:
    """Parameters of a request, each with a name of its own."""
    parameters = b",".join(b'"p%d":1' % number for number in range(count))
    return b'{"parameters":{' + parameters + b'},"inputs":[]}'


def many_tensors(count: int) -> bytes:
    """Tensors without elements."""
    tensor = b'{"name":"X","datatype":"FP32","shape":[0],"data":[]}'
    return b'{"inputs":[' + b",".join(repeat(tensor, count)) + b"]}"


def deep(depth: int) -> bytes:
    """Arrays in arrays."""
    return json_of(b"[" * depth + b"]" * depth, (1, 1), "FP32")


def open_string(size: int) -> bytes:
    """A string of escaped quotes that never ends."""
    return b'{"inputs":"' + b'\\"' * (size // 2)


def long_numbers(count: int, digits: int) -> bytes:
    """Integers beyond 64 bits."""
    return json_of(b"[" + b",".join(repeat(b"7" * digits, count)) + b"]", (1, count), "FP32")


def invalid_at_the_end(count: int) -> bytes:
    """Strings of which the last is not UTF-8."""
    return json_of(b"[" + b'"ab",' * (count - 1) + b'"\xff"]', (1, count), "BYTES")


def grps_strings(count: int) -> bytes:
    """A request of grps in JSON."""
    texts = b'"ab",' * (count - 1) + b'"ab"'
    tensor = b'{"name":"INPUT0","dtype":"DT_STRING","shape":[1,%d],"flat_string":[%b]}' % (count, texts)
    return b'{"model":"%b","gtensors":{"tensors":[%b]}}' % (STRINGS.encode(), tensor)


def grps_floats(count: int) -> bytes:
    """Nested numbers of grps in JSON."""
    return b'{"model":"%b","ndarray":[[%b1.5]]}' % (MODEL.encode(), b"1.5," * (count - 1))


def grps_text_message(count: int) -> bytes:
    """The same strings in protobuf."""
    shape = varint(1) + varint(count)
    tensor = _field(1, b"INPUT0") + b"\x10\x09" + _field(3, shape) + _field(12, b"ab") * count
    return _field(2, STRINGS.encode()) + _field(5, _field(1, tensor))


def grps_map(count: int) -> bytes:
    """A map in protobuf with entries of their own names."""
    entries = b"".join(_field(1, _field(1, b"%d" % number) + _field(2, b"x")) for number in range(count))
    return _field(2, MODEL.encode()) + _field(7, entries)


def packed_strings(count: int) -> bytes:
    """BYTES elements, all empty, as in binary data and raw contents."""
    return bytes(4 * count)


def raw_message(count: int) -> bytes:
    """Empty BYTES elements as raw contents over gRPC."""
    return _infer(_described("BYTES", (1, count)), packed_strings(count))


def typed_message(count: int) -> bytes:
    """BYTES elements of one byte as typed contents over gRPC."""
    contents = _field(8, b"a") * count
    return _infer(_described("BYTES", (1, count)) + _field(5, contents))


def parameters_message(count: int) -> bytes:
    """Parameters of one input over gRPC."""
    entries = b"".join(_field(4, _field(1, b"%d" % number) + _field(2, b"")) for number in range(count))
    return _infer(_described("BYTES", (1, 0)) + entries)


def settings_message(count: int) -> bytes:
    """Settings of the log over gRPC, each with a name of its own."""
    return b"".join(_field(1, _field(1, b"%d" % number) + _field(2, b"")) for number in range(count))


def configuration(count: int) -> bytes:
    """A load with a model configuration of unknown members, as text in JSON."""
    members = b",".join(b'\\"%d\\":1' % number for number in range(count))
    return b'{"parameters":{"config":"{' + members + b'}"}}'


def examples_message(count: int) -> bytes:
    """Examples without features, to classify over gRPC."""
    return _field(1, _field(1, MODEL.encode())) + _field(2, _field(1, _field(1, b"") * count))


def model_list(count: int) -> bytes:
    """A list of models for TensorFlow Serving's dialect, each with a name of its own."""
    path = _field(2, b"/") + _field(4, b"a")
    models = b"".join(_field(1, _field(1, b"%d" % number) + path) for number in range(count))
    return _field(1, _field(1, models))


def small_fields(size: int) -> bytes:
    """Unknown fields of two bytes."""
    return _infer(_described("BYTES", (1, 0))) + b"\x78\x00" * (size // 2)


def graphpipe_strings(count: int) -> bytes:
    """Strings of two characters."""
    block = bytes(writer.string_block([b"ab"] * count))
    parts = writer.infer_request(
        b"", (b"INPUT0",), (b"OUTPUT0",), ((TYPES[Datatype.BYTES], (1, count), count, len(block)),), [block]
    )
    return b"".join(parts)


def gzipped(body: bytes) -> bytes:
    return gzip.compress(body, _LEVEL)


def gzip_zeros(size: int) -> bytes:
    """``size`` zeros in gzip, made piece by piece."""
    deflater = zlib.compressobj(_LEVEL, wbits=31)
    piece = bytes(min(size, 1 << 24))
    parts = [deflater.compress(piece) for _ in range(size // len(piece))]
    return b"".join((*parts, deflater.flush()))


def grpc_frame(message: bytes, *, compressed: bool = False) -> bytes:
    """A message of gRPC with its prefix."""
    return struct.pack(">BL", compressed, len(message)) + message


def _described(datatype: str, shape: tuple[int, ...]) -> bytes:
    dimensions = b"".join(map(varint, shape))
    return _field(1, b"INPUT0") + _field(2, datatype.encode()) + _field(3, dimensions)


def _infer(tensor: bytes, *raws: bytes) -> bytes:
    return _field(1, STRINGS.encode()) + _field(5, tensor) + b"".join(_field(7, raw) for raw in raws)


def _field(number: int, contents: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(contents)) + contents
