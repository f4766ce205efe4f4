"""Checks of inference: tensors, their datatypes and forms, what a request may say beside them."""

from __future__ import annotations

import json
import queue
from typing import Any

import ml_dtypes
import numpy as np
import requests

from tests.conformance.oip_client import GRPC, HTTP, WAIT_SECS, Client, check, refused

A = np.arange(16, dtype=np.int32)[None]
B = np.full((1, 16), 5, np.int32)

NUMBERS: dict[str, Any] = {
    "BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
    "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64, "FP32": np.float32,
    "FP64": np.float64,
}  # fmt: skip


def addends(client: Client, **how: Any) -> list[Any]:
    """The inputs of model ``simple``."""
    return [client.input("INPUT0", A, "INT32", **how), client.input("INPUT1", B, "INT32", **how)]


def echoed(client: Client, datatype: str, array: np.ndarray[Any, Any], **how: Any) -> Any:
    """What the identity model of ``datatype`` makes of ``array``."""
    given = client.input("INPUT0", array, datatype, **how)
    result = client.ask(f"identity_{datatype.lower()}", given)
    return result.as_numpy("OUTPUT0")


def same(got: Any, array: np.ndarray[Any, Any]) -> None:
    """``got`` is ``array`` in values, shape and type."""
    assert got.shape == array.shape and got.dtype == array.dtype
    assert got.tolist() == array.tolist()


def said(client: Client, result: Any) -> tuple[str, str, str]:
    """Model, version and id of an answer."""
    response = result.get_response()
    if client.over_http:
        return response["model_name"], response["model_version"], response.get("id", "")
    return response.model_name, response.model_version, response.id


@check("inference")
def infer(client: Client) -> None:
    result = client.ask("simple", *addends(client))
    same(result.as_numpy("OUTPUT0"), A + B)
    same(result.as_numpy("OUTPUT1"), A - B)


@check("request id and version in the answer")
def id_and_version(client: Client) -> None:
    result = client.ask("simple", *addends(client), model_version="1", request_id="one of many")
    assert said(client, result) == ("simple", "1", "one of many")


@check("chosen outputs")
def chosen_outputs(client: Client) -> None:
    result = client.ask("simple", *addends(client), outputs=[client.output("OUTPUT1")])
    same(result.as_numpy("OUTPUT1"), A - B)
    assert result.as_numpy("OUTPUT0") is None


@check("asynchronous calls", "http", "grpc")
def asynchronous(client: Client) -> None:
    if client.over_http:
        calls = [client.async_infer("simple", addends(client)) for _ in range(8)]
        results = [call.get_result() for call in calls]
    else:
        arrived: queue.Queue[Any] = queue.Queue()
        for _ in range(8):
            client.async_infer("simple", addends(client), lambda result, error: arrived.put((result, error)))
        answers = [arrived.get(timeout=WAIT_SECS) for _ in range(8)]
        assert not [error for _, error in answers if error]
        results = [result for result, _ in answers]
    for result in results:
        same(result.as_numpy("OUTPUT0"), A + B)


@check("BOOL, integers, FP32, FP64")
def numbers(client: Client) -> None:
    for datatype, dtype in NUMBERS.items():
        values = [0, 1] if dtype is np.bool_ else [0, 1, 100]
        same(echoed(client, datatype, np.array(values, dtype)), np.array(values, dtype))
        if np.issubdtype(dtype, np.integer):
            limits = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
            same(echoed(client, datatype, limits), limits)


@check("FP16")
def fp16(client: Client) -> None:
    array = np.array([0.5, -65504, 6e-8], np.float16)
    same(echoed(client, "FP16", array), array)


@check("BF16")
def bf16(client: Client) -> None:
    array = np.array([0.5, -3e38, 1e-30], ml_dtypes.bfloat16)
    same(echoed(client, "BF16", array), array)


@check("BYTES: text")
def text(client: Client) -> None:
    texts = ["abc", "", "grüße"]
    got = echoed(client, "BYTES", np.array([each.encode() for each in texts], object))
    # from an answer in JSON the client makes str, from any other bytes
    assert [each if isinstance(each, str) else each.decode() for each in got] == texts


@check("BYTES: any bytes")
def any_bytes(client: Client) -> None:
    array = np.array([b"\xff\xfe\0", bytes(range(256))], object)
    same(echoed(client, "BYTES", array), array)


@check("tensors without elements")
def empty(client: Client) -> None:
    same(echoed(client, "FP32", np.zeros(0, np.float32)), np.zeros(0, np.float32))
    same(echoed(client, "BYTES", np.array([], object)), np.array([], object))


@check("16 MiB in and out")
def large(client: Client) -> None:
    array = np.arange(4 << 20, dtype=np.float32)
    assert (echoed(client, "FP32", array) == array).all()


@check("tensors as JSON", *HTTP)
def as_json(client: Client) -> None:
    asked = [client.output("OUTPUT0", binary_data=False), client.output("OUTPUT1", binary_data=False)]
    result = client.ask("simple", *addends(client, binary_data=False), outputs=asked)
    same(result.as_numpy("OUTPUT0"), A + B)
    assert result.get_response()["outputs"][1]["data"] == (A - B).ravel().tolist()


@check("tensors as binary data", *HTTP)
def as_binary(client: Client) -> None:
    result = client.ask("simple", *addends(client, binary_data=True))
    assert all("binary_data_size" in each["parameters"] for each in result.get_response()["outputs"])
    same(result.as_numpy("OUTPUT0"), A + B)


@check("JSON and binary data mixed", *HTTP)
def mixed(client: Client) -> None:
    first = client.input("INPUT0", A, "INT32", binary_data=False)
    second = client.input("INPUT1", B, "INT32", binary_data=True)
    asked = [client.output("OUTPUT0", binary_data=True), client.output("OUTPUT1", binary_data=False)]
    result = client.ask("simple", first, second, outputs=asked)
    same(result.as_numpy("OUTPUT0"), A + B)
    same(result.as_numpy("OUTPUT1"), A - B)


@check("compressed requests: gzip")
def request_gzip(client: Client) -> None:
    _compressed_request(client, "gzip")


@check("compressed requests: deflate")
def request_deflate(client: Client) -> None:
    _compressed_request(client, "deflate")


def _compressed_request(client: Client, algorithm: str) -> None:
    # binary data over HTTP is another row's business
    how, option = {}, "compression_algorithm"
    asked = [client.output("OUTPUT0")]
    if client.over_http:
        how, option = {"binary_data": False}, "request_compression_algorithm"
        asked = [client.output("OUTPUT0", binary_data=False)]
    result = client.ask("simple", *addends(client, **how), outputs=asked, **{option: algorithm})
    same(result.as_numpy("OUTPUT0"), A + B)


@check("compressed answers: gzip", "http")
def answer_gzip(client: Client) -> None:
    _compressed_answer(client, "gzip")


@check("compressed answers: deflate", "http")
def answer_deflate(client: Client) -> None:
    _compressed_answer(client, "deflate")


def _compressed_answer(client: Client, algorithm: str) -> None:
    asked = client.output("OUTPUT0", binary_data=False)
    array = np.zeros(4096, np.float32)
    given = client.input("INPUT0", array, "FP32", binary_data=False)
    result = client.ask("identity_fp32", given, outputs=[asked], response_compression_algorithm=algorithm)
    same(result.as_numpy("OUTPUT0"), array)
    assert compression_of(client, algorithm) == algorithm


def compression_of(client: Client, algorithm: str) -> str:
    """The coding of a large answer to somebody who accepts ``algorithm``."""
    document = {"inputs": [{"name": "INPUT0", "shape": [4096], "datatype": "FP32", "data": [0.0] * 4096}]}
    answer = requests.post(
        f"http://{client.server.http}/v2/models/identity_fp32/infer",
        json=document,
        headers={"Accept-Encoding": algorithm},
        timeout=WAIT_SECS,
    )
    assert answer.status_code == 200
    return answer.headers.get("Content-Encoding", "")


@check("classification")
def classification(client: Client) -> None:
    row = client.input("INPUT0", np.array([[0.1, 0.9, 0.3, 0.2]], np.float32), "FP32")
    result = client.ask("cls", row, outputs=[client.output("OUTPUT0", class_count=2)])
    found = result.as_numpy("OUTPUT0")
    assert found.size == 2
    values = [entry.decode().split(":") for entry in found.ravel()]
    assert [(value, index) for value, index, *_ in values] == [("0.900000", "1"), ("0.300000", "2")]


@check("classification: labels, batches")
def labels(client: Client) -> None:
    row = client.input("INPUT0", np.array([[0.1, 0.9, 0.3, 0.2]], np.float32), "FP32")
    result = client.ask("cls", row, outputs=[client.output("OUTPUT0", class_count=1)])
    assert result.as_numpy("OUTPUT0").tolist() == [[b"0.900000:1:dog"]]


@check("request parameters")
def parameters(client: Client) -> None:
    given = client.input("INPUT0", np.array([1], np.int32), "INT32")
    own = {"text": "blue", "number": 3, "flag": True}
    result = client.ask("params", given, parameters=own, request_id="x")
    told = json.loads(result.as_numpy("PARAMS").ravel()[0])
    assert {name: told["parameters"].get(name) for name in own} == own
    assert told["request_id"] == "x"


@check("priority and timeout in the queue")
def schedule(client: Client) -> None:
    given = client.input("INPUT0", np.array([[1]], np.int32), "INT32")
    result = client.ask("slow", given, priority=1, timeout=5_000_000)
    assert result.as_numpy("OUTPUT0").tolist() == [[1]]


@check("sequences")
def sequences(client: Client) -> None:
    # two at a time, each with a sum of its own
    for identity in (1234, "a name"):
        sums = []
        for step, value in enumerate((5, 6, 7)):
            given = client.input("INPUT", np.array([[value]], np.int32), "INT32")
            flags = {"sequence_start": step == 0, "sequence_end": step == 2}
            answer = client.ask("seq", given, sequence_id=identity, **flags)
            sums.append(int(answer.as_numpy("OUTPUT")[0, 0]))
        assert sums == [5, 11, 18]
    with refused("correlation ID"):
        client.ask("seq", client.input("INPUT", np.array([[1]], np.int32), "INT32"))


@check("deadlines of the caller", *GRPC)
def deadline(client: Client) -> None:
    given = client.input("INPUT0", np.array([[1500]], np.int32), "INT32")
    with refused("DEADLINE_EXCEEDED"):
        client.ask("slow", given, client_timeout=0.2)


@check("errors: unknown model or version")
def unknown_model(client: Client) -> None:
    inputs = addends(client)
    with refused("" if client.over_http else "NOT_FOUND", "nothing_like_it"):
        client.ask("nothing_like_it", *inputs)
    with refused("" if client.over_http else "NOT_FOUND"):
        client.ask("simple", *inputs, model_version="42")


@check("errors: a tensor that the model does not take")
def wrong_tensor(client: Client) -> None:
    wrong = client.input("INPUT0", np.zeros((1, 15), np.int32), "INT32")
    code = "400" if client.over_http else "INVALID_ARGUMENT"
    with refused(code, "INPUT0"):
        client.ask("simple", wrong, addends(client)[1])
    with refused(code, "INPUT1"):
        client.ask("simple", addends(client)[0])


@check("errors: the model fails")
def model_fails(client: Client) -> None:
    given = client.input("INPUT0", np.zeros(1, np.int32), "INT32")
    with refused("500" if client.over_http else "INTERNAL", "boom in execute"):
        client.ask("raises", given)
