"""Bad inputs of the Open Inference Protocol over HTTP: JSON, binary data, and the other endpoints."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

from tests.e2e.bad_inputs.wires import Http

INFER = "/v2/models/{}/infer"
DATA = {"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [1.0, 2.0]}
LENGTH = "Inference-Header-Content-Length"


def _infer(body: Any, model: str = "identity_fp32", **headers: str) -> Http:
    return Http(INFER.format(model), body, headers)


def _with(**changes: Any) -> Http:
    """A good request with other members of its input; None removes one."""
    merged = {**DATA, **changes}
    return _infer({"inputs": [{name: value for name, value in merged.items() if value is not ...}]})


def _typed(datatype: str, data: list[Any], shape: list[int] | None = None) -> Http:
    tensor = {"name": "INPUT0", "datatype": datatype, "shape": shape or [len(data)], "data": data}
    return _infer({"inputs": [tensor]}, f"identity_{datatype.lower()}")


def _requests() -> Iterator[tuple[str, Http]]:
    for name, body in {
        "no JSON": b"{not json",
        "empty": b"",
        "blank": b"  \n",
        "a list": b"[]",
        "a number": b"7",
        "null": b"null",
        "two documents": b"{} {}",
        "a trailing comma": b'{"inputs": [],}',
        "single quotes": b"{'inputs': []}",
        "a comment": b'{"inputs": [] /* none */}',
        "NaN as a token": b'{"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [NaN]}]}',
        "invalid UTF-8": b'{"id": "\xff\xfe", "inputs": []}',
        "half a surrogate pair": b'{"id": "\\ud800", "inputs": []}',
        "UTF-16": '{"inputs": []}'.encode("utf-16"),
        "cut short": json.dumps({"inputs": [DATA]}).encode()[:-5],
        "deep nesting": b'{"inputs":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "no inputs": {},
        "inputs null": {"inputs": None},
        "inputs an object": {"inputs": {}},
        "inputs a text": {"inputs": "INPUT0"},
        "inputs empty": {"inputs": []},
        "an input that is a number": {"inputs": [1]},
        "an input that is null": {"inputs": [None]},
        "an input twice": {"inputs": [DATA, DATA]},
        "an input too many": {"inputs": [DATA, {**DATA, "name": "INPUT1"}]},
        "id a number": {"id": 7, "inputs": [DATA]},
        "id a list": {"id": ["a"], "inputs": [DATA]},
        "parameters a list": {"parameters": [], "inputs": [DATA]},
        "a parameter that is an object": {"parameters": {"a": {}}, "inputs": [DATA]},
        "a reserved parameter": {"parameters": {"triton_a": 1}, "inputs": [DATA]},
        "priority a text": {"parameters": {"priority": "high"}, "inputs": [DATA]},
        "priority negative": {"parameters": {"priority": -1}, "inputs": [DATA]},
        "timeout negative": {"parameters": {"timeout": -1}, "inputs": [DATA]},
        "timeout a text": {"parameters": {"timeout": "1"}, "inputs": [DATA]},
        "sequence_id negative": {"parameters": {"sequence_id": -1}, "inputs": [DATA]},
        "sequence_id a list": {"parameters": {"sequence_id": [1]}, "inputs": [DATA]},
        "sequence_start a number": {"parameters": {"sequence_id": 1, "sequence_start": 1}, "inputs": [DATA]},
        "outputs an object": {"inputs": [DATA], "outputs": {}},
        "an output that is a text": {"inputs": [DATA], "outputs": ["OUTPUT0"]},
        "an output without a name": {"inputs": [DATA], "outputs": [{}]},
        "an unknown output": {"inputs": [DATA], "outputs": [{"name": "Z"}]},
        "binary_data a text": {"inputs": [DATA], "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": "yes"}}]},
        "binary_data_output a number": {"inputs": [DATA], "parameters": {"binary_data_output": 1}},
        "classification negative": {"inputs": [DATA], "outputs": [{"name": "OUTPUT0", "parameters": {"classification": -1}}]},
        "classification a text": {"inputs": [DATA], "outputs": [{"name": "OUTPUT0", "parameters": {"classification": "2"}}]},
        "an unregistered region for an output": {
            "inputs": [DATA],
            "outputs": [{"name": "OUTPUT0", "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 8}}],
        },
    }.items():  # fmt: skip
        yield name, _infer(body)


def _tensors() -> Iterator[tuple[str, Http]]:
    for name, changes in {
        "no name": {"name": ...},
        "name a number": {"name": 1},
        "name empty": {"name": ""},
        "an unknown name": {"name": "Q"},
        "name of another case": {"name": "input0"},
        "no datatype": {"datatype": ...},
        "datatype a number": {"datatype": 11},
        "no such datatype": {"datatype": "FLOAT"},
        "datatype of another case": {"datatype": "fp32"},
        "another datatype": {"datatype": "INT32", "data": [1, 2]},
        "no shape": {"shape": ...},
        "shape a number": {"shape": 2},
        "shape of texts": {"shape": ["2"]},
        "shape of fractions": {"shape": [2.5]},
        "shape of booleans": {"shape": [True]},
        "shape with null": {"shape": [None]},
        "a negative dimension": {"shape": [-1]},
        "too few elements": {"shape": [3]},
        "too many elements": {"shape": [1]},
        "the wrong rank": {"shape": [1, 2]},
        "no dimensions": {"shape": []},
        "2^40 by 2^40": {"shape": [2**40, 2**40]},
        "2^62 elements": {"shape": [2**62]},
        "2^63": {"shape": [2**63]},
        "2^64": {"shape": [2**64]},
        "10^30": {"shape": [10**30]},
        "no data": {"data": ...},
        "data null": {"data": None},
        "data a number": {"data": 1.0},
        "data a text": {"data": "1,2"},
        "data an object": {"data": {"0": 1}},
        "data with null": {"data": [None, 1.0]},
        "data with a text": {"data": ["1.0", 2.0]},
        "data with a boolean": {"data": [True, 2.0]},
        "data with an object": {"data": [{}, 2.0]},
        "ragged data": {"shape": [2, 2], "data": [[1, 2], [3]]},
        "data nested too deeply": {"data": [[[1.0]], [[2.0]]], "shape": [3]},
        "parameters a text": {"parameters": "binary"},
        "binary_data_size without the header": {"data": ..., "parameters": {"binary_data_size": 8}},
        "an unregistered region": {
            "data": ...,
            "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 8},
        },
        "a region without a size": {"data": ..., "parameters": {"shared_memory_region": "r"}},
        "a region with a negative size": {
            "data": ...,
            "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": -8},
        },
    }.items():
        yield name, _with(**changes)


def _values() -> Iterator[tuple[str, Http]]:
    yield "UINT8 with a negative number", _typed("UINT8", [-1])
    yield "INT32 with a fraction", _typed("INT32", [1.5])
    yield "INT64 with a text", _typed("INT64", ["1"])
    yield "BOOL with a number", _typed("BOOL", [1])
    yield "BYTES with a number", _typed("BYTES", [1])
    yield "BYTES with null", _typed("BYTES", [None])
    yield "FP16 as JSON", _typed("FP16", [1.0])
    yield "BF16 as JSON", _typed("BF16", [1.0])
    yield "INT64 with 2^64", _typed("INT64", [2**64])


def _batches() -> Iterator[tuple[str, Http]]:
    def simple(shape: list[int], other: list[int] | None = None) -> Http:
        inputs = [
            {"name": name, "datatype": "INT32", "shape": each, "data": [0] * (each[0] * each[-1])}
            for name, each in (("INPUT0", shape), ("INPUT1", other or shape))
        ]
        return _infer({"inputs": inputs}, "simple")

    yield "a batch above the limit", simple([9, 16])
    yield "a batch of nothing", simple([0, 16])
    yield "batches that differ", simple([1, 16], [2, 16])
    yield "a row that is too short", simple([1, 15])
    yield (
        "one input of two",
        _infer(
            {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1, 16], "data": [0] * 16}]},
            "simple",
        ),
    )


def _binary() -> Iterator[tuple[str, Http]]:
    def tensor(size: Any, **more: Any) -> dict[str, Any]:
        return {
            "name": "INPUT0",
            "datatype": "FP32",
            "shape": [2],
            "parameters": {"binary_data_size": size},
            **more,
        }

    head = json.dumps({"inputs": [tensor(8)]}).encode()
    for length in ("5", "100000", "-1", "x", "", "1e2", "9" * 30, "0x10", " 5"):
        yield f"a header length of '{length}'", _infer(head + bytes(8), **{LENGTH: length})

    def joined(document: Any, tail: bytes) -> Http:
        text = json.dumps(document).encode()
        return _infer(text + tail, **{LENGTH: str(len(text))})

    yield "no binary data", joined({"inputs": [tensor(8)]}, b"")
    yield "too little binary data", joined({"inputs": [tensor(8)]}, bytes(7))
    yield "too much binary data", joined({"inputs": [tensor(8)]}, bytes(9))
    yield "a size that does not fit the shape", joined({"inputs": [tensor(4)]}, bytes(4))
    yield "a negative size", joined({"inputs": [tensor(-8)]}, bytes(8))
    yield "a size of 2^63", joined({"inputs": [tensor(2**63)]}, bytes(8))
    yield "a size as a text", joined({"inputs": [tensor("8")]}, bytes(8))
    yield "a size as a fraction", joined({"inputs": [tensor(8.5)]}, bytes(8))
    yield "binary data and JSON data", joined({"inputs": [tensor(8, data=[1.0, 2.0])]}, bytes(8))
    strings = {"name": "INPUT0", "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": 8}}
    for name, tail in {
        "BYTES with a length beyond the data": b"\xff\0\0\0abcd",
        "BYTES with one element of two": b"\4\0\0\0abcd",
        "BYTES with a length of 2^32 - 1": b"\xff\xff\xff\xffabcd",
        "BYTES with half a length": b"\2\0\0\0ab\0\0",
    }.items():
        text = json.dumps({"inputs": [strings]}).encode()
        yield name, Http(INFER.format("identity_bytes"), text + tail, {LENGTH: str(len(text))})


def _codings() -> Iterator[tuple[str, Http]]:
    body = json.dumps({"inputs": [DATA]}).encode()
    packed = gzip.compress(body, mtime=0)
    yield "an unknown content coding", _infer(body, **{"Content-Encoding": "br"})
    yield "two content codings", _infer(packed, **{"Content-Encoding": "gzip, gzip"})
    yield "gzip that is none", _infer(body, **{"Content-Encoding": "gzip"})
    yield "deflate that is gzip", _infer(packed, **{"Content-Encoding": "deflate"})
    yield "gzip cut short", _infer(packed[:-4], **{"Content-Encoding": "gzip"})
    yield "gzip followed by other bytes", _infer(packed + b"x", **{"Content-Encoding": "gzip"})
    yield (
        "gzip with a wrong checksum",
        _infer(packed[:-8] + b"\0\0\0\0" + packed[-4:], **{"Content-Encoding": "gzip"}),
    )


def _paths() -> Iterator[tuple[str, Http]]:
    good = {"inputs": [DATA]}
    yield "an unknown model", _infer(good, "absent")
    yield "an unknown version", _infer(good, "identity_fp32/versions/9")
    yield "a version that is no number", _infer(good, "identity_fp32/versions/x")
    yield "a model with an escaped slash", _infer(good, "a%2fb")
    yield "a model with a NUL", _infer(good, "%00")
    yield "a model that is no UTF-8", _infer(good, "%ff")
    yield "a model with a newline", _infer(good, "a%0Ab")
    for method, path in (
        ("GET", "/v2/"), ("GET", "/v2/nothing"), ("GET", "/v2/models"), ("GET", "/v2/models/"),
        ("GET", "/v2/models/simple/infer"), ("PUT", "/v2/models/simple/infer"), ("DELETE", "/v2/models/simple"),
        ("POST", "/v2/health/live"), ("POST", "/v2"), ("PATCH", "/v2/repository/index"),
        ("GET", "/v2/models/absent"), ("GET", "/v2/models/simple/versions/9"), ("GET", "/v2/models/absent/ready"),
        ("GET", "/v2/models/simple/versions/9/ready"), ("GET", "/v2/models/absent/config"),
        ("GET", "/v2/models/simple/versions/x/config"), ("GET", "/v2/models/absent/stats"),
        ("GET", "/v2/models/absent/trace/setting"), ("GET", "/v2/models/%2e%2e/ready"),
    ):  # fmt: skip
        yield f"{method} {path}", Http(path, b"", {}, method)


def _control() -> Iterator[tuple[str, Http]]:
    load = "/v2/repository/models/{}/load"
    for name, path, body in (
        ("load an unknown model", load.format("absent"), b""),
        ("load outside the folder", load.format("..%2fdigits"), b""),
        ("load with a body that is no JSON", load.format("simple"), b"{"),
        ("load with a list", load.format("simple"), []),
        ("load with parameters that are a list", load.format("simple"), {"parameters": []}),
        ("load with an unknown parameter", load.format("simple"), {"parameters": {"a": 1}}),
        ("load with a config", load.format("simple"), {"parameters": {"config": "{}"}}),
        ("load with a config that is no text", load.format("simple"), {"parameters": {"config": 1}}),
        ("load with a file", load.format("simple"), {"parameters": {"file:1/model.onnx": "AA=="}}),
        ("unload with a body that is no JSON", "/v2/repository/models/absent/unload", b"x"),
        ("unload_dependents a text", "/v2/repository/models/absent/unload", {"parameters": {"unload_dependents": "y"}}),
        ("load from an unknown repository", "/v2/repository/nowhere/models/simple/load", b""),
        ("index of an unknown repository", "/v2/repository/nowhere/index", b""),
        ("index with a body that is no JSON", "/v2/repository/index", b"["),
        ("index with a list", "/v2/repository/index", []),
        ("ready a number", "/v2/repository/index", {"ready": 1}),
        ("log settings that are a list", "/v2/logging", []),
        ("log_info a text", "/v2/logging", {"log_info": "yes"}),
        ("log_verbose_level negative", "/v2/logging", {"log_verbose_level": -1}),
        ("log_format unknown", "/v2/logging", {"log_format": "xml"}),
        ("log_file", "/v2/logging", {"log_file": "/etc/passwd"}),
        ("trace_rate a number", "/v2/trace/setting", {"trace_rate": 1}),
        ("trace_level unknown", "/v2/trace/setting", {"trace_level": ["ALL"]}),
        ("trace_file", "/v2/trace/setting", {"trace_file": "/etc/passwd"}),
        ("trace settings of an unknown model", "/v2/models/absent/trace/setting", {"trace_rate": "1"}),
        ("trace settings that are no JSON", "/v2/trace/setting", b"{"),
    ):  # fmt: skip
        yield name, Http(path, body)


def _shared_memory() -> Iterator[tuple[str, Http]]:
    register = "/v2/systemsharedmemory/region/r/register"
    for name, path, body in (
        ("a region without anything", register, {}),
        ("a region that is no JSON", register, b"{"),
        ("a region without a key", register, {"byte_size": 8}),
        ("a region without a size", register, {"key": "/interlingua-absent"}),
        ("a key that is a number", register, {"key": 1, "byte_size": 8}),
        ("a size that is a text", register, {"key": "/k", "byte_size": "8"}),
        ("a negative size", register, {"key": "/k", "byte_size": -8}),
        ("a size of 2^64", register, {"key": "/k", "byte_size": 2**64}),
        ("a negative offset", register, {"key": "/interlingua-absent", "offset": -1, "byte_size": 8}),
        ("an object that does not exist", register, {"key": "/interlingua-absent", "byte_size": 8}),
        ("a key outside /dev/shm", register, {"key": "../../etc/passwd", "byte_size": 8}),
        ("a key with a NUL", register, {"key": "a\0b", "byte_size": 8}),
        ("a CUDA region", "/v2/cudasharedmemory/region/r/register", {"raw_handle": {"b64": "AA=="}, "byte_size": 8}),
    ):  # fmt: skip
        yield f"register {name}", Http(path, body)
    yield "status of an unknown region", Http("/v2/systemsharedmemory/region/r/status", method="GET")
    yield "status of an unknown CUDA region", Http("/v2/cudasharedmemory/region/r/status", method="GET")


def _generate() -> Iterator[tuple[str, Http]]:
    for kind in ("generate", "generate_stream"):
        path = f"/v2/models/words/{kind}"
        yield f"{kind} with no JSON", Http(path, b"{")
        yield f"{kind} with a list", Http(path, [])
        yield f"{kind} without inputs", Http(path, {})
        yield f"{kind} with a null", Http(path, {"TEXT": None})
        yield f"{kind} with an object", Http(path, {"TEXT": {}})
        yield f"{kind} with a number", Http(path, {"TEXT": 1})
        yield f"{kind} of an unknown model", Http(f"/v2/models/absent/{kind}", {"TEXT": "a"})


def inputs() -> dict[str, Http]:
    groups = {
        "request": _requests(),
        "tensor": _tensors(),
        "value": _values(),
        "batch": _batches(),
        "binary": _binary(),
        "coding": _codings(),
        "path": _paths(),
        "control": _control(),
        "shared memory": _shared_memory(),
        "generate": _generate(),
    }
    return {f"oip/http {group}: {name}": each for group, cases in groups.items() for name, each in cases}
