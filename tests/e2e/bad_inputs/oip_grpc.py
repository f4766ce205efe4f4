"""Bad inputs of the Open Inference Protocol over gRPC."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from interlingua.schemas import Datatype
from interlingua.schemas.oip import MESSAGES
from tests.e2e.bad_inputs.datatypes import claims
from tests.e2e.bad_inputs.wires import Grpc

SERVICE = "/inference.GRPCInferenceService/"
INPUT = {"name": "INPUT0", "datatype": "FP32", "shape": [2]}
RAW = struct.pack("<2f", 1, 2)


def _infer(**changes: Any) -> Any:
    fields: dict[str, Any] = {"model_name": "identity_fp32", "inputs": [INPUT], "raw_input_contents": [RAW]}
    return MESSAGES["inference.ModelInferRequest"](**{**fields, **changes})


def _tensor(**changes: Any) -> Any:
    return _infer(inputs=[{**INPUT, **changes}])


def _contents(datatype: str = "FP32", model: str = "identity_fp32", **contents: Any) -> Any:
    return _infer(
        model_name=model,
        inputs=[{**INPUT, "datatype": datatype, "contents": contents}],
        raw_input_contents=[],
    )


def _messages() -> Iterator[tuple[str, Any]]:
    good: bytes = _infer().SerializeToString()
    yield "no protobuf", b"\xff\xff\xff"
    yield "cut short", good[:-3]
    yield "a text that is no UTF-8", b"\x0a\x01\xff"
    yield "a group without an end", b"\x0b"
    yield "a field number of 0", b"\x00\x00"
    yield "an unknown model", _infer(model_name="absent")
    yield "an unknown version", _infer(model_version="9")
    yield "a version that is no number", _infer(model_version="x")
    yield "no inputs", _infer(inputs=[], raw_input_contents=[])
    yield "an input twice", _infer(inputs=[INPUT, INPUT], raw_input_contents=[RAW, RAW])
    yield "an input too many", _infer(inputs=[INPUT, {**INPUT, "name": "B"}], raw_input_contents=[RAW, RAW])
    yield "no raw contents", _infer(raw_input_contents=[])
    yield "raw contents that are too short", _infer(raw_input_contents=[RAW[:4]])
    yield "raw contents that are too long", _infer(raw_input_contents=[RAW + b"x"])
    yield "no name", _tensor(name="")
    yield "an unknown name", _tensor(name="Q")
    yield "no datatype", _tensor(datatype="")
    yield "no such datatype", _tensor(datatype="FLOAT")
    yield "datatype of another case", _tensor(datatype="fp32")
    yield "another datatype", _tensor(datatype="INT32")
    yield "no shape", _tensor(shape=[])
    yield "a negative dimension", _tensor(shape=[-1])
    yield "the wrong rank", _tensor(shape=[1, 2])
    yield "too many elements", _tensor(shape=[3])
    yield "2^62 by 2^62", _tensor(shape=[2**62, 2**62])
    yield "2^63 - 1", _tensor(shape=[2**63 - 1])
    yield "typed contents of another datatype", _contents(int_contents=[1, 2])
    yield "two kinds of typed contents", _contents(fp32_contents=[1, 2], int_contents=[1, 2])
    yield "too few typed contents", _contents(fp32_contents=[1])
    yield "no typed contents", _contents()
    yield "typed and raw contents", _infer(inputs=[{**INPUT, "contents": {"fp32_contents": [1, 2]}}])
    yield "typed contents out of range", _contents("UINT8", "identity_uint8", uint_contents=[256, 1])
    yield "typed contents of FP16", _contents("FP16", "identity_fp16", fp32_contents=[1, 2])
    bytes_input = {**INPUT, "datatype": "BYTES"}
    for name, raw in {
        "BYTES with a length beyond the data": b"\xff\0\0\0abcd",
        "BYTES with one element of two": b"\4\0\0\0abcd",
        "BYTES with half a length": b"\2\0\0\0ab\0\0",
    }.items():
        yield name, _infer(model_name="identity_bytes", inputs=[bytes_input], raw_input_contents=[raw])
    yield "an unknown output", _infer(outputs=[{"name": "Z"}])
    yield "an output without a name", _infer(outputs=[{}])
    for name, parameters in {
        "priority negative": {"priority": {"int64_param": -1}},
        "timeout a text": {"timeout": {"string_param": "1"}},
        "sequence_start a text": {"sequence_id": {"int64_param": 1}, "sequence_start": {"string_param": "y"}},
        "a reserved parameter": {"triton_a": {"int64_param": 1}},
        "a parameter without a value": {"a": {}},
    }.items():
        yield name, _infer(parameters=parameters)
    region = {"shared_memory_region": {"string_param": "r"}, "shared_memory_byte_size": {"int64_param": 8}}
    yield "an unregistered region", _infer(inputs=[{**INPUT, "parameters": region}], raw_input_contents=[])
    yield (
        "a region without a size",
        _infer(
            inputs=[{**INPUT, "parameters": {"shared_memory_region": {"string_param": "r"}}}],
            raw_input_contents=[],
        ),
    )
    yield "an unregistered region for an output", _infer(outputs=[{"name": "OUTPUT0", "parameters": region}])
    yield (
        "a batch above the limit",
        _infer(
            model_name="simple",
            inputs=[{"name": name, "datatype": "INT32", "shape": [9, 16]} for name in ("INPUT0", "INPUT1")],
            raw_input_contents=[bytes(576), bytes(576)],
        ),
    )
    yield (
        "a decoupled model",
        _infer(
            model_name="words",
            inputs=[{"name": "TEXT", "datatype": "BYTES", "shape": [1]}],
            raw_input_contents=[b"\1\0\0\0a"],
        ),
    )


def _datatypes() -> Iterator[tuple[str, Grpc]]:
    for name, model, claim in claims(list(Datatype)):
        tensor = {"name": claim.name, "datatype": claim.datatype.value, "shape": claim.shape}
        message = _infer(model_name=model, inputs=[tensor], raw_input_contents=[claim.data])
        yield name, Grpc(f"{SERVICE}ModelInfer", message)


def _other() -> Iterator[tuple[str, Grpc]]:
    def call(method: str, **fields: Any) -> Grpc:
        return Grpc(SERVICE + method, MESSAGES[f"inference.{method}Request"](**fields))

    yield "an unknown method", Grpc(f"{SERVICE}Nothing")
    yield "an unknown service", Grpc("/no.Such/Service")
    yield "a method without a service", Grpc("/ModelInfer")
    for method in ("ModelMetadata", "ModelConfig", "ModelStatistics"):
        yield f"{method} of an unknown model", call(method, name="absent")
        yield f"{method} of an unknown version", call(method, name="simple", version="9")
        yield f"{method} of a version that is no number", call(method, name="simple", version="x")
        yield f"{method} that is no protobuf", Grpc(SERVICE + method, b"\xff")
    yield "ModelReady that is no protobuf", Grpc(f"{SERVICE}ModelReady", b"\xff")
    yield "load an unknown model", call("RepositoryModelLoad", model_name="absent")
    yield "load outside the folder", call("RepositoryModelLoad", model_name="../digits")
    yield (
        "load with an unknown parameter",
        call("RepositoryModelLoad", model_name="simple", parameters={"a": {"int64_param": 1}}),
    )
    yield (
        "load with a config",
        call("RepositoryModelLoad", model_name="simple", parameters={"config": {"string_param": "{}"}}),
    )
    yield (
        "load from an unknown repository",
        call("RepositoryModelLoad", repository_name="nowhere", model_name="simple"),
    )
    yield "index of an unknown repository", call("RepositoryIndex", repository_name="nowhere")
    yield (
        "register an object that does not exist",
        call("SystemSharedMemoryRegister", name="r", key="/interlingua-absent", byte_size=8),
    )
    yield "register without a key", call("SystemSharedMemoryRegister", name="r", byte_size=8)
    yield (
        "register a size of 2^64 - 1",
        call("SystemSharedMemoryRegister", name="r", key="/k", byte_size=2**64 - 1),
    )
    yield "register a CUDA region", call("CudaSharedMemoryRegister", name="r", raw_handle=b"x", byte_size=8)
    yield "status of an unknown region", call("SystemSharedMemoryStatus", name="r")
    yield "log_info a text", call("LogSettings", settings={"log_info": {"string_param": "yes"}})
    yield "trace_level unknown", call("TraceSetting", settings={"trace_level": {"value": ["ALL"]}})
    yield "trace settings of an unknown model", call("TraceSetting", model_name="absent")


def _stream() -> Iterator[tuple[str, Grpc]]:
    for name, message in _messages():
        if name in (
            "no protobuf",
            "an unknown model",
            "raw contents that are too short",
            "an unknown output",
        ):
            yield name, Grpc(f"{SERVICE}ModelStreamInfer", message)


def inputs() -> dict[str, Grpc]:
    infer = ((name, Grpc(f"{SERVICE}ModelInfer", message)) for name, message in _messages())
    groups = {"infer": infer, "datatype": _datatypes(), "call": _other(), "stream": _stream()}
    return {f"oip/grpc {group}: {name}": each for group, cases in groups.items() for name, each in cases}
