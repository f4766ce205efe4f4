"""Recorded answers of Triton 2.51, MLServer 1.7.1 and KServe 0.21, read as an upstream's."""

from __future__ import annotations

import base64
import gzip
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interlingua.protocols.oip.client import HTTP_CALLS
from interlingua.protocols.wire import HttpReply
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferResponse,
    ModelMetadata,
    Operation,
    Readiness,
    ServerMetadata,
    SharedMemoryRef,
)

GOLDEN = Path(__file__).parent.parent / "golden" / "oip"
SERVERS = ("triton", "mlserver", "kserve")

MODEL = r"GET /v2/models/(?!stats)[^/]+(/versions/[^/]+)?"
OPERATIONS = {
    r"GET /v2": Operation.SERVER_METADATA,
    r"GET /v2/health/live": Operation.LIVE,
    r"GET /v2/health/ready": Operation.READY,
    MODEL: Operation.MODEL_METADATA,
    f"{MODEL}/ready": Operation.MODEL_READY,
    f"{MODEL.replace('GET', 'POST')}/infer": Operation.INFER,
}
RESULTS = {
    Operation.SERVER_METADATA: ServerMetadata,
    Operation.MODEL_METADATA: ModelMetadata,
    Operation.INFER: InferResponse,
}

NONSENSE = {
    ("triton", "bytes_bin_nonutf8_json_out"),  # bytes that are no text, within JSON
    ("triton", "bad_utf8_id"),
    # the echo model sends back what it was sent, whatever the datatype says
    ("mlserver", "bool_int"),
    ("mlserver", "u8_over"),
    ("mlserver", "i64_str"),
    ("mlserver", "i64_float"),
    ("mlserver", "fp32_null"),
    ("mlserver", "bytes_int"),
    # NaN becomes null
    ("kserve", "fp32_nan"),
    ("kserve", "fp32_null"),
}
"""Answers of status 200 that mean nothing, and are refused."""

SHARED_MEMORY = ("triton", "shm_infer")

CODES = {
    400: ErrorCode.INVALID_TENSOR,
    404: ErrorCode.NOT_FOUND,
    405: ErrorCode.UNSUPPORTED,
    422: ErrorCode.INVALID_TENSOR,
    500: ErrorCode.MODEL_FAILED,
    501: ErrorCode.UNSUPPORTED,
}


def unchunked(body: bytes) -> bytes:
    parts = []
    while body:
        size, _, body = body.partition(b"\r\n")
        parts.append(body[: int(size, 16)])
        body = body[int(size, 16) + 2 :]
    return b"".join(parts)


def recorded(content: dict[str, Any]) -> bytes:
    return base64.b64decode(content["b64"]) if "b64" in content else content["text"].encode()


def exchanges() -> list[Any]:
    """Every finished exchange of the operations above: server, name, operation, reply."""
    found = []
    for server in SERVERS:
        for exchange in json.loads((GOLDEN / f"{server}_http.json").read_text()):
            target = " ".join(recorded(exchange["request"]).split(b"\r\n")[0].decode().split(" ")[:2])
            operation = next(
                (known for path, known in OPERATIONS.items() if re.fullmatch(path, target.split("?")[0])),
                None,
            )
            status = int((exchange["status"] or "HTTP/1.1 100").split(" ")[1])
            if operation is None or status == 100:
                continue
            headers = {name.lower(): value for name, value in exchange["headers"]}
            body = recorded(exchange["body"])
            if len(body) < int(headers.get("content-length", 0)):
                continue  # the recording was cut
            if headers.get("transfer-encoding") == "chunked":
                body = unchunked(body)
            coding = headers.get("content-encoding")
            body = {"gzip": gzip.decompress, "deflate": zlib.decompress}.get(coding, bytes)(body)
            reply = HttpReply(status, headers, body)
            found.append(
                pytest.param(server, exchange["name"], operation, reply, id=f"{server}-{exchange['name']}")
            )
    return found


def test_there_are_enough_of_them() -> None:
    operations = [case.values[2] for case in exchanges()]
    assert operations.count(Operation.INFER) > 200
    assert set(operations) == set(OPERATIONS.values())


@pytest.mark.parametrize(("server", "name", "operation", "reply"), exchanges())
def test_recorded_answer(server: str, name: str, operation: Operation, reply: HttpReply) -> None:
    decode = HTTP_CALLS[operation].decode
    if operation in (Operation.LIVE, Operation.READY, Operation.MODEL_READY):
        state = decode(None, reply)
        assert isinstance(state, Readiness)
        assert state.ready == (reply.status == 200)
        return
    place = SharedMemoryRef("out", 0, 16)
    placements = {"OUTPUT0": place, "OUTPUT1": place} if (server, name) == SHARED_MEMORY else {}
    form = (placements, "") if operation is Operation.INFER else None
    if reply.status != 200 or (server, name) in NONSENSE:
        with pytest.raises(InferenceError) as caught:
            decode(form, reply)
        expected = ErrorCode.BAD_UPSTREAM if reply.status in (200, 307) else CODES[reply.status]
        assert caught.value.code is expected
        if reply.status != 200 and bytes(reply.body).startswith(b'{"error"'):
            assert caught.value.message == json.loads(bytes(reply.body))["error"]
        return
    result = decode(form, reply)
    assert isinstance(result, RESULTS[operation])
    if isinstance(result, ModelMetadata):
        assert result.name
    if isinstance(result, InferResponse):
        assert_as_written(result, reply)


def assert_as_written(response: InferResponse, reply: HttpReply) -> None:
    """The same answer read with nothing but ``json`` and NumPy."""
    length = int(reply.headers.get("inference-header-content-length", len(reply.body)))
    document, tail = json.loads(bytes(reply.body[:length])), bytes(reply.body[length:])
    assert response.model == document["model_name"]
    assert response.version == (document.get("model_version") or "")
    assert response.id == (document.get("id") or "")
    assert [tensor.name for tensor in response.outputs] == [entry["name"] for entry in document["outputs"]]
    for tensor, entry in zip(response.outputs, document["outputs"], strict=True):
        assert (tensor.datatype.value, list(tensor.shape)) == (entry["datatype"], entry["shape"])
        size = (entry.get("parameters") or {}).get("binary_data_size")
        if size is not None:
            assert bytes(tensor.view) == tail[:size]
            tail = tail[size:]
        elif "data" not in entry:
            assert tensor.data == SharedMemoryRef("out", 0, 16)
        elif tensor.datatype is Datatype.BYTES:
            texts = entry["data"] if isinstance(entry["data"], list) else [entry["data"]]
            encoded = (entry.get("parameters") or {}).get("content_type") == "base64"
            written = base64.b64encode if encoded else bytes
            assert [written(element) for element in tensor.elements()] == [text.encode() for text in texts]
        elif tensor.count:
            expected = np.array(entry["data"], tensor.datatype.dtype).ravel()
            np.testing.assert_array_equal(tensor.numpy().ravel(), expected)
    assert not tail
