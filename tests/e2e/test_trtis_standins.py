"""The version 1 stand-ins against each other, and the client against what the original wrote.

Were the two wrong in the same way, the end-to-end tests would prove nothing; the recordings of the
original client tie them down.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.e2e.background import Background
from tests.standins.trtis_client import ClientFailure, Top, TrtisError, question
from tests.standins.trtis_contract import NUMPY, one_line, parse
from tests.standins.trtis_grpc_client import TrtisGrpc
from tests.standins.trtis_http_client import HttpContext, Reply, TrtisHttp
from tests.standins.trtis_server import Seen, TrtisServer, start_grpc, trtis_http_server

RECORDED = Path(__file__).parents[1] / "golden" / "trtis" / "http_exchanges.json"
A = np.arange(16, dtype=np.int32)[None]
B = np.arange(16, dtype=np.int32)[None]


@pytest.fixture(scope="module")
def clients() -> Iterator[list[Any]]:
    background = Background()
    server = TrtisServer(Seen())
    address = background.serve(trtis_http_server(server))
    listening, port = background.run(start_grpc(server))
    both = [TrtisHttp(address), TrtisGrpc(f"127.0.0.1:{port}")]
    yield both
    for client in both:
        client.close()
    background.run(listening.stop(None))
    background.close()


def recordings() -> list[Any]:
    return list(json.loads(RECORDED.read_text()))


def halves(message: str) -> tuple[list[str], bytes]:
    head, _, body = base64.b64decode(message).partition(b"\r\n\r\n")
    return head.decode("latin-1").split("\r\n"), body


def recorded_reply(message: str) -> Reply:
    (first, *lines), body = halves(message)
    pairs = [tuple(line.split(":", 1)) for line in lines]
    return Reply(int(first.split()[1]), [(name, value.strip()) for name, value in pairs], body)


def recorded_config(model: str) -> Any:
    for each in recordings():
        if f"/api/status/{model}" in each["request_line"]:
            reply = recorded_reply(each["response_b64"])
            return parse("ServerStatus", reply.body).model_status[model].config
    raise LookupError(model)


QUESTIONS: list[tuple[int, str, dict[str, Any], Any]] = [
    (1, "simple", {"INPUT0": A, "INPUT1": B}, ["OUTPUT1", "OUTPUT0"]),
    (2, "simple", {"INPUT1": B, "INPUT0": A}, ["OUTPUT1"]),
    (4, "classy", {"DATA": np.arange(5, dtype=np.float32)[None]}, {"PROB": Top(2)}),
    (5, "simple", {"INPUT0": A[:, :15], "INPUT1": B}, ["OUTPUT1"]),
]


@pytest.mark.parametrize("case", QUESTIONS, ids=[str(case[0]) for case in QUESTIONS])
def test_the_client_writes_what_the_original_wrote(case: Any) -> None:
    index, model, inputs, outputs = case
    lines, body = halves(recordings()[index]["request_b64"])
    header, bodies = question(recorded_config(model), inputs, outputs)
    assert f"NV-InferRequest:{one_line(header)}" in lines
    assert b"".join(bodies) == body


def test_the_client_reads_what_the_original_read() -> None:
    def read(index: int, model: str) -> Any:
        reply = recorded_reply(recordings()[index]["response_b64"])
        return HttpContext(model, -1, recorded_config(model), None).read(reply, reply.nv_status("infer"))  # type: ignore[arg-type]

    answer = read(1, "simple")
    assert list(answer.outputs) == ["OUTPUT1", "OUTPUT0"]
    assert (answer.outputs["OUTPUT0"] == A + B).all() and (answer.outputs["OUTPUT1"] == 0).all()
    assert (answer.model_version, answer.batch_size, answer.request_id) == (1, 1, 2)
    assert read(4, "classy").outputs == {"PROB": [[(4, 4.0, "elk"), (3, 3.0, "dog")]]}
    with pytest.raises(TrtisError, match=r"Expected \[16\], got \[15\]") as caught:
        read(5, "simple")
    assert (caught.value.code, caught.value.server_id, caught.value.request_id) == (
        "INVALID_ARG",
        "inference:0",
        6,
    )


@pytest.mark.parametrize("which", [0, 1], ids=["http", "grpc"])
def test_client_and_server_agree(clients: list[Any], which: int) -> None:
    client = clients[which]
    answer = client.infer("simple", {"INPUT0": A, "INPUT1": B}, ["OUTPUT1", "OUTPUT0"], version=3)
    assert (answer.outputs["OUTPUT0"] == A + B).all() and (answer.outputs["OUTPUT1"] == A - B).all()
    rows = np.array([[1, 5, 2, 4, 3], [5, 4, 3, 2, 1]], np.float32)
    answer = client.infer("classy", {"DATA": rows}, {"PROB": Top(2)})
    assert answer.outputs["PROB"] == [[(1, 5.0, "bee"), (3, 4.0, "dog")], [(0, 5.0, "ant"), (1, 4.0, "bee")]]
    texts = np.array([[str(n).encode() for n in range(16)]], object)
    answer = client.infer("simple_string", {"INPUT0": texts, "INPUT1": texts}, ["OUTPUT0"])
    assert answer.outputs["OUTPUT0"].tolist() == [[str(2 * n).encode() for n in range(16)]]
    for name, dtype in NUMPY.items():
        given = (
            np.array([b"\xff\0", b"", b"x"], object) if dtype is np.object_ else np.array([0, 1, 1], dtype)
        )
        model = "identity_bytes" if name == "TYPE_STRING" else f"identity_{name[5:].lower()}"
        got = client.infer(model, {"INPUT0": given}, ["OUTPUT0"])
        assert got.outputs["OUTPUT0"].tolist() == given.tolist()
    assert client.health("live") and "simple" in client.repository()
    with pytest.raises(TrtisError, match="no status available for unknown model 'nobody'") as caught:
        client.context("nobody")
    assert caught.value.code == "INVALID_ARG"
    with pytest.raises(TrtisError, match="'simple' version 9 is not found") as caught:
        client.infer("simple", {"INPUT0": A, "INPUT1": B}, ["OUTPUT1"], version=9)
    assert caught.value.code == "UNAVAILABLE"


def test_the_client_refuses_what_the_original_could_not_read() -> None:
    config = recorded_config("simple")
    context = HttpContext("simple", -1, config, None)  # type: ignore[arg-type]
    good = recorded_reply(recordings()[2]["response_b64"])

    def spoiled(old: str, new: str) -> Reply:
        return Reply(200, [(name, value.replace(old, new)) for name, value in good.lines], good.body)

    status = good.nv_status("infer")
    with pytest.raises(ClientFailure, match="SIGFPE"):
        context.read(spoiled("batch_size: 1 ", ""), status)
    with pytest.raises(ClientFailure, match="did not return response header"):
        context.read(spoiled('model_name: "simple"', ""), status)
    with pytest.raises(ClientFailure, match="did not return response header"):
        context.read(spoiled("OUTPUT1", "OTHER"), status)
    with pytest.raises(ClientFailure, match="did not return result header"):
        context.read(Reply(200, good.lines, good.body[:64]), status)
    with pytest.raises(ClientFailure, match="did not return status"):
        Reply(200, [], b"").nv_status("infer")
