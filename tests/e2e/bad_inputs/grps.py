"""Bad inputs of grps over HTTP, gRPC and bRPC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from interlingua.schemas import Datatype
from interlingua.schemas.grps import MESSAGES
from tests.e2e.bad_inputs.datatypes import BYTES_ALONE, UNNAMED, Claim, claims, numbers
from tests.e2e.bad_inputs.wires import Brpc, Grpc, Http

PREDICT = "/grps/v1/infer/predict"
SERVICE = "/grps.protos.v1.GrpsService/"
JSON = {"Content-Type": "application/json"}
NUMBERS = {
    Datatype.UINT8: "UINT8",
    Datatype.INT8: "INT8",
    Datatype.INT16: "INT16",
    Datatype.INT32: "INT32",
    Datatype.INT64: "INT64",
    Datatype.FP16: "FLOAT16",
    Datatype.FP32: "FLOAT32",
    Datatype.FP64: "FLOAT64",
}
UNSIGNED = ("a negative dimension", "2^62 by 2^62")
"""Mistakes that no shape of 32 bits without sign can have."""

GOOD = {"name": "INPUT0", "dtype": "DT_FLOAT32", "shape": [2], "flat_float32": [1.0, 2.0]}


def _document(tensor: Any = GOOD, **members: Any) -> dict[str, Any]:
    return {"model": "identity_fp32", "gtensors": {"tensors": [tensor]}, **members}


def _http() -> Iterator[tuple[str, Http]]:
    for name, body in {
        "no JSON": b"{not json",
        "empty": b"",
        "a list": [],
        "a text": b'"a"',
        "null": b"null",
        "invalid UTF-8": b'{"str_data": "\xff"}',
        "deep nesting": b'{"ndarray":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "no data": {"model": "identity_fp32"},
        "two kinds of data": _document(str_data="a"),
        "an unknown model": _document(model="absent"),
        "a model that is a number": _document(model=1),
        "tensors an object": {"model": "identity_fp32", "gtensors": {"tensors": {}}},
        "no tensors": {"model": "identity_fp32", "gtensors": {"tensors": []}},
        "gtensors a list": {"model": "identity_fp32", "gtensors": []},
        "a tensor that is a number": _document(1),
        "two tensors": {"model": "identity_fp32", "gtensors": {"tensors": [GOOD, {**GOOD, "name": "B"}]}},
        "a tensor twice": {"model": "identity_fp32", "gtensors": {"tensors": [GOOD, GOOD]}},
        "ragged lengths": {"model": "identity_fp32", "ndarray": [[1, 2], [3]]},
        "ragged depth": {"model": "identity_fp32", "ndarray": [[1, 2], 3]},
        "an ndarray of texts": {"model": "identity_fp32", "ndarray": ["a"]},
        "an ndarray that is a number": {"model": "identity_fp32", "ndarray": 1},
        "str_data a number": {"model": "identity_fp32", "str_data": 1},
        "str_data for a tensor": {"model": "identity_fp32", "str_data": "a"},
        "bin_data that is no base64": {"model": "identity_fp32", "bin_data": "%"},
    }.items():
        yield name, Http(PREDICT, body, JSON)
    for name, changes in {
        "an unknown name": {"name": "Q"},
        "a name that is a number": {"name": 1},
        "another datatype": {"dtype": "DT_INT32", "flat_int32": [1, 2]},
        "no such datatype": {"dtype": "DT_FLOAT8"},
        "a datatype as a number": {"dtype": 99},
        "too few values": {"shape": [3]},
        "too many values": {"shape": [1]},
        "a negative dimension": {"shape": [-1]},
        "2^40 by 2^40": {"shape": [2**40, 2**40]},
        "2^64": {"shape": [2**64]},
        "the wrong rank": {"shape": [1, 2]},
        "shape a number": {"shape": 2},
        "shape of texts": {"shape": ["a"]},
        "values of another field": {"flat_float32": [], "flat_int32": [1, 2]},
        "values that are texts": {"flat_float32": ["a", "b"]},
        "values with null": {"flat_float32": [None, 1]},
        "values that are a number": {"flat_float32": 1},
    }.items():
        yield name, Http(PREDICT, _document({**GOOD, **changes}), JSON)
    yield (
        "256 for UINT8",
        Http(
            PREDICT,
            {
                "model": "identity_uint8",
                "gtensors": {
                    "tensors": [{"name": "INPUT0", "dtype": "DT_UINT8", "shape": [1], "flat_uint8": [256]}]
                },
            },
            JSON,
        ),
    )
    for datatype, called in NUMBERS.items():
        for name, values in numbers(datatype):
            tensor = {
                "name": "INPUT0",
                "dtype": f"DT_{called}",
                "shape": [2],
                f"flat_{called.lower()}": values,
            }
            body = {"model": f"identity_{datatype.value.lower()}", "gtensors": {"tensors": [tensor]}}
            yield f"{datatype.value} with {name}", Http(PREDICT, body, JSON)
    yield "another content type", Http(PREDICT, b"a", {"Content-Type": "text/plain"})
    yield "no content type", Http(PREDICT, b"a")
    yield (
        "octets for an unknown model",
        Http(f"{PREDICT}?model=absent", b"a", {"Content-Type": "application/octet-stream"}),
    )
    yield (
        "octets for a tensor",
        Http(f"{PREDICT}?model=identity_fp32", b"a", {"Content-Type": "application/octet-stream"}),
    )
    yield "a stream from an unknown model", Http(f"{PREDICT}?streaming=true", _document(model="absent"), JSON)
    for method, path, body in (
        ("GET", PREDICT, b""), ("PUT", PREDICT, b""), ("GET", "/grps/v1/nothing", b""), ("GET", "/grps/v1/", b""),
        ("GET", "/grps/v1/metadata/model", b""), ("POST", "/grps/v1/metadata/model", b""),
        ("POST", "/grps/v1/metadata/model", {"str_data": "absent"}), ("POST", "/grps/v1/metadata/model", b"{"),
        ("POST", "/grps/v1/metadata/model", {"str_data": 1}), ("DELETE", "/grps/v1/health/live", b""),
    ):  # fmt: skip
        yield f"{method} {path} {body!r}", Http(path, body, JSON if body else {}, method)


def _messages() -> Iterator[tuple[str, Any]]:
    def made(tensor: dict[str, Any] | None = None, **members: Any) -> Any:
        tensors = [{"name": "INPUT0", "dtype": 7, "shape": [2], "flat_float32": [1, 2], **(tensor or {})}]
        return MESSAGES["grps.protos.v1.GrpsMessage"](
            **{"model": "identity_fp32", "gtensors": {"tensors": tensors}, **members}
        )

    yield "no protobuf", b"\xff\xff"
    yield "cut short", made().SerializeToString()[:-3]
    yield "an empty message", b""
    yield "no data", MESSAGES["grps.protos.v1.GrpsMessage"](model="identity_fp32")
    yield "an unknown model", made(model="absent")
    yield "an unknown name", made({"name": "Q"})
    yield "another datatype", made({"dtype": 4, "flat_int32": [1, 2], "flat_float32": []})
    yield "no such datatype", made({"dtype": 99})
    yield "no datatype", made({"dtype": 0})
    yield "too few values", made({"shape": [3]})
    yield "no values", made({"flat_float32": []})
    yield "2^32 by 2^32", made({"shape": [2**32 - 1, 2**32 - 1]})
    yield "the wrong rank", made({"shape": [1, 2]})
    yield "values of another field", made({"flat_float32": [], "flat_int32": [1, 2]})
    yield "no tensors", made(gtensors={})
    yield "a text for a tensor", MESSAGES["grps.protos.v1.GrpsMessage"](model="identity_fp32", str_data="a")
    for name, model, claim in claims(list(NUMBERS), but=(*UNNAMED, *BYTES_ALONE, *UNSIGNED)):
        yield name, made(_claimed(claim), model=model)


def _claimed(claim: Claim) -> dict[str, Any]:
    called = NUMBERS[claim.datatype]
    number = MESSAGES["grps.protos.v1.GenericTensor"].DESCRIPTOR.fields_by_name["dtype"].enum_type
    return {
        "name": claim.name,
        "dtype": number.values_by_name[f"DT_{called}"].number,
        "shape": claim.shape,
        "flat_float32": [],
        f"flat_{called.lower()}": claim.values,
    }


def _grpc() -> Iterator[tuple[str, Grpc]]:
    for name, message in _messages():
        yield name, Grpc(f"{SERVICE}Predict", message)
    yield (
        "a stream from an unknown model",
        Grpc(
            f"{SERVICE}PredictStreaming", MESSAGES["grps.protos.v1.GrpsMessage"](model="absent", str_data="a")
        ),
    )
    yield (
        "metadata of an unknown model",
        Grpc(f"{SERVICE}ModelMetadata", MESSAGES["grps.protos.v1.GrpsMessage"](str_data="absent")),
    )
    yield "metadata without a name", Grpc(f"{SERVICE}ModelMetadata")
    yield "an unknown method", Grpc(f"{SERVICE}Nothing")


def _brpc() -> Iterator[tuple[str, Brpc]]:
    for name, message in _messages():
        yield name, Brpc("Predict", message)
    good = dict(_messages())["an unknown model"]
    yield "an unknown method", Brpc("Nothing")
    yield "an unknown service", Brpc("Predict", b"", {"service": "no.Such"})
    yield (
        "metadata of an unknown model",
        Brpc("ModelMetadata", MESSAGES["grps.protos.v1.GrpsMessage"](str_data="absent")),
    )
    yield "metadata without a name", Brpc("ModelMetadata")
    yield "an unknown compression", Brpc("Predict", good, {"compress_type": 9})
    for number, name in ((1, "snappy"), (2, "gzip"), (3, "zlib")):
        yield f"{name} that is none", Brpc("Predict", good, {"compress_type": number})
    yield "an attachment larger than the body", Brpc("Predict", good, {"attachment_size": 1 << 20})


def inputs() -> dict[str, Http | Grpc | Brpc]:
    groups = {"grps/http": _http(), "grps/grpc": _grpc(), "grps/brpc": _brpc()}
    return {f"{group} {name}": each for group, cases in groups.items() for name, each in cases}
