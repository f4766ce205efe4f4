"""Unmodified clients of other projects classify handwritten digits through the daemon.

The answers must be those that ONNX Runtime gives in this process, bit for bit.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import numpy as np
import onnxruntime
import pytest
import requests
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_grpc_aio
import tritonclient.http as triton_http
import tritonclient.http.aio as triton_http_aio
from graphpipe import convert, remote

from tests.e2e.daemon import ROOT, Daemon

BATCH = 36  # the hold-out divides into ten


@pytest.fixture(scope="module")
def holdout() -> tuple[Any, Any]:
    stored = np.load(ROOT / "examples" / "digits" / "holdout.npz")
    return stored["images"], stored["labels"]


@pytest.fixture(scope="module")
def expected(holdout: tuple[Any, Any]) -> list[tuple[Any, Any]]:
    """Label and probabilities of every batch, from ONNX Runtime in this process."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        str(ROOT / "examples/models/digits/1/model.onnx"), options, providers=["CPUExecutionProvider"]
    )
    return [
        tuple(session.run(["label", "probabilities"], {"image": images})) for images in batches(holdout[0])
    ]


def batches(images: Any) -> list[Any]:
    return [images[start : start + BATCH] for start in range(0, len(images), BATCH)]


def check(answers: list[tuple[Any, Any]], expected: list[tuple[Any, Any]], holdout: tuple[Any, Any]) -> None:
    assert len(answers) == len(expected) == 10
    for (label, probabilities), (true_label, true_probabilities) in zip(answers, expected, strict=True):
        assert label.dtype == np.int64 and probabilities.dtype == np.float32
        assert label.tobytes() == true_label.tobytes() and label.shape == true_label.shape
        assert probabilities.tobytes() == true_probabilities.tobytes()
        assert probabilities.shape == true_probabilities.shape
    said = np.concatenate([label.ravel() for label, _ in answers])
    assert (said == holdout[1]).mean() >= 0.95


def triton_input(module: Any, images: Any, **how: Any) -> list[Any]:
    given = module.InferInput("image", images.shape, "FP32")
    given.set_data_from_numpy(images, **how)
    return [given]


def outputs(answer: Any) -> tuple[Any, Any]:
    return answer.as_numpy("label"), answer.as_numpy("probabilities")


@pytest.mark.parametrize("binary", [True, False])
def test_tritonclient_http(examples: Daemon, holdout: Any, expected: Any, binary: bool) -> None:
    asked = [
        triton_http.InferRequestedOutput(name, binary_data=binary) for name in ("label", "probabilities")
    ]
    with triton_http.InferenceServerClient(examples.addresses[0]) as client:
        assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("digits")
        assert not client.is_model_ready("nothing")
        answers = [
            outputs(
                client.infer("digits", triton_input(triton_http, images, binary_data=binary), outputs=asked)
            )
            for images in batches(holdout[0])
        ]
    check(answers, expected, holdout)


def test_tritonclient_grpc(examples: Daemon, holdout: Any, expected: Any) -> None:
    with triton_grpc.InferenceServerClient(examples.addresses[1]) as client:
        assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("digits")
        assert not client.is_model_ready("nothing")
        assert client.get_server_metadata().name == "interlingua"
        answers = [
            outputs(client.infer("digits", triton_input(triton_grpc, images), model_version="1"))
            for images in batches(holdout[0])
        ]
    check(answers, expected, holdout)


async def test_tritonclient_http_aio(examples: Daemon, holdout: Any, expected: Any) -> None:
    async with triton_http_aio.InferenceServerClient(examples.addresses[0]) as client:
        answers = await asyncio.gather(
            *(client.infer("digits", triton_input(triton_http, images)) for images in batches(holdout[0]))
        )
    check([outputs(answer) for answer in answers], expected, holdout)


async def test_tritonclient_grpc_aio(examples: Daemon, holdout: Any, expected: Any) -> None:
    async with triton_grpc_aio.InferenceServerClient(examples.addresses[1]) as client:
        answers = await asyncio.gather(
            *(client.infer("digits", triton_input(triton_grpc, images)) for images in batches(holdout[0]))
        )
    check([outputs(answer) for answer in answers], expected, holdout)


@pytest.mark.parametrize(
    ("listener", "path"),
    [(0, "/graphpipe/digits"), (0, "/graphpipe/digits/1"), (3, "/"), (3, "/any/path?at=all")],
)
def test_graphpipe(examples: Daemon, holdout: Any, expected: Any, listener: int, path: str) -> None:
    url = f"http://{examples.addresses[listener]}{path}"
    assert remote.get_input_names(url) == ["image"]
    assert remote.get_output_names(url) == ["label", "probabilities"]
    assert remote.get_input_shapes(url) == [[None, 64]]
    answers = [tuple(remote.execute_multi(url, [images], None, None)) for images in batches(holdout[0])]
    check(answers, expected, holdout)
    named = remote.execute(url, holdout[0][:BATCH], "image", "label")
    assert (named == expected[0][0]).all()


def test_graphpipe_over_a_unix_socket(examples: Daemon, holdout: Any, expected: Any) -> None:
    path = examples.addresses[2].removeprefix("unix:")
    answers = []
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        for images in batches(holdout[0]):
            body = bytes(convert.serialize_infer_request(convert.InferReq("", [images], [], [])))
            connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            found, errors = convert.deserialize_infer_response(bytearray(read_answer(connection)))
            assert not errors
            answers.append(tuple(found))
    check(answers, expected, holdout)


def read_answer(connection: socket.socket) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    while len(body) < int(fields[b"content-length"]):
        body += connection.recv(65536)
    return body


def test_kserve_reads_our_probes_and_answers(examples: Daemon) -> None:
    """What KServe's REST client insists on: JSON in health answers, data or a binary size per output."""
    base = f"http://{examples.addresses[0]}/v2"
    assert requests.get(f"{base}/health/live", timeout=10).json() == {"live": True}
    assert requests.get(f"{base}/health/ready", timeout=10).json() == {"ready": True}
