"""Everything that Triton was recorded to answer, asked of the running daemon in the recorded order.

The other replays hand single requests to a pipeline; here what one request changes (a model, a region of
shared memory, a setting) is there for the next, and the bytes go through the real listeners.
"""

from __future__ import annotations

import base64
import json
import secrets
import socket
import time
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import orjson
import pytest
from google.protobuf import json_format

from interlingua.protocols.content_coding import inflate
from interlingua.protocols.oip.grpc_messages import SERVICE
from interlingua.protocols.wire import GrpcAnswer
from interlingua.schemas.oip import MESSAGES
from tests.conformance.oip_checks import Server
from tests.conformance.oip_deviations import GRPC, HTTP, by_exchange
from tests.conformance.oip_recordings import GOLDEN, HttpRecording, Reply, grpc_recordings, http_recordings
from tests.conformance.oip_replay import grpc_differences, http_differences
from tests.e2e.oip_golden import golden_daemon

UNFIT = {"shm_status_after", "shm_reg_dup"}
"""Exchanges that depend on one that was not recorded."""


_OWN = {
    name.encode(): secrets.token_hex(4)[: len(name)].encode()
    for name in ("oip_in", "oip_out", "oip_gin", "oip_gout")
}
"""Recorded name of a shared memory object → as long a name of this process alone: suites may run side by side."""


def renamed(message: bytes) -> bytes:
    """``message`` with our names of shared memory objects in place of the recorded ones."""
    for recorded, own in _OWN.items():
        message = message.replace(recorded, own)
    return message


def restored(message: bytes) -> bytes:
    """``message`` with the recorded names in place of ours."""
    for recorded, own in _OWN.items():
        message = message.replace(own, recorded)
    return message


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with golden_daemon(tmp_path_factory.mktemp("replay")) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def shared_memory() -> Iterator[None]:
    """The shared memory objects that the recorded client had."""
    given = np.array([1, 2, 3, 4, 0.5, 0.25, 0.1, 0.001], np.float32).tobytes()
    contents = {b"oip_in": given, b"oip_gin": given, b"oip_out": b"", b"oip_gout": b""}
    paths = {
        Path("/dev/shm") / _OWN[name].decode(): content.ljust(64, b"\0") for name, content in contents.items()
    }
    for path, content in paths.items():
        path.write_bytes(content)
    try:
        yield
    finally:
        for path in paths:
            path.unlink()


def sent(address: str, request: bytes, method: str) -> Reply:
    """The answer to the bytes of a recorded request."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 20) as connection:
        connection.sendall(renamed(request))
        answer = HTTPResponse(connection, method=method)
        answer.begin()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        body = answer.read()
        answer.close()
    if coding := headers.get("content-encoding"):
        body = bytes(inflate(coding, body, None))
    return Reply(answer.status, headers, restored(body))


def requests() -> dict[str, bytes]:
    """The bytes of the recorded HTTP requests, by name."""
    entries = orjson.loads((GOLDEN / "triton_http.json").read_bytes())
    parts = {entry["name"]: entry["request"] for entry in entries}
    return {
        name: part["text"].encode() if "text" in part else base64.b64decode(part["b64"])
        for name, part in parts.items()
    }


def differences(recording: HttpRecording, ours: Reply) -> set[str]:
    """As ``http_differences``, for the answers too that it cannot read."""
    theirs = recording.reply
    assert theirs is not None
    if recording.path.endswith("/stats") and theirs.status == ours.status == 200:
        # the numbers are each server's own, and a long recording was cut off
        return set() if _counted(ours.body) <= set(theirs.body.split(b'"')[1::2]) else {"body"}
    if "event-stream" in theirs.headers.get("content-type", ""):
        same = (theirs.status, theirs.headers["content-type"], theirs.body) == (
            ours.status, ours.headers.get("content-type"), ours.body
        )  # fmt: skip
        return set() if same else {"status"}
    if recording.method == "HEAD":
        return set() if theirs.status == ours.status else {"status"}
    if recording.path.endswith("/index") and theirs.status == ours.status == 200:
        told = _states(theirs.body)
        # it was made without some of the models, and what failed to load was not recorded
        mine = _states(ours.body)
        return {f"{key}: {value} / {mine.get(key)}" for key, value in told.items() if mine.get(key) != value}
    if theirs.body.startswith(b"[") and theirs.status == ours.status == 200:
        return set() if json.loads(theirs.body) == json.loads(ours.body) else {"body"}
    if ours.headers.get("content-type", "").startswith("text/plain") and ours.status != theirs.status:
        return {"status"}
    return http_differences(recording, ours)


def _states(body: bytes) -> dict[tuple[str, str], tuple[str, str]]:
    """State and reason of every version of every model but the one that cannot be loaded."""
    return {
        (entry["name"], entry.get("version", "")): (entry.get("state", ""), entry.get("reason", ""))
        for entry in json.loads(body)
        if entry["name"] != "broken"
    }


def _counted(body: bytes) -> set[bytes]:
    """The names of what the statistics of the first model tell."""
    model = json.loads(body)["model_stats"][0]
    return {key.encode() for key in model}


def test_http(server: Server) -> None:
    raw, listed = requests(), by_exchange(HTTP)
    equal, deviating, differing = [], [], {}
    for recording in http_recordings("triton"):
        whole = len(recording.body) >= int(recording.headers.get("content-length", 0))
        if recording.reply is None or not whole or recording.name in UNFIT:
            continue
        reply = sent(server.http, raw[recording.name], recording.method)
        while b"UNLOADING" in reply.body:
            # the recorded client waited too
            time.sleep(0.05)
            reply = sent(server.http, raw[recording.name], recording.method)
        found, row = differences(recording, reply), listed.get(recording.name)
        if row is not None and (found, reply.status) == (row.differs, row.status):
            deviating.append(recording.name)
        elif found or row is not None:
            differing[recording.name] = found, reply.status
        else:
            equal.append(recording.name)
    print(f"{len(equal)} equal, {len(deviating)} deviating, {len(differing)} differing: {differing}")
    assert not differing
    assert deviating == [name for name in raw if name in listed]
    assert len(equal) >= 165


def test_grpc(server: Server) -> None:
    listed = by_exchange(GRPC)
    equal, deviating, differing = [], [], {}
    with grpc.insecure_channel(server.grpc) as channel:
        # its registration was not recorded
        message = MESSAGES["inference.SystemSharedMemoryRegisterRequest"]
        region = message(name="gin", key="/oip_gin", byte_size=64).SerializeToString()
        channel.unary_unary(f"{SERVICE}SystemSharedMemoryRegister")(renamed(region), timeout=20)
        for recording in grpc_recordings("triton"):
            if recording.request is None or recording.name in UNFIT:
                continue
            try:
                reply = channel.unary_unary(recording.method)(renamed(recording.request), timeout=20)
                answer = GrpcAnswer(restored(reply))
            except grpc.RpcError as error:
                details = restored((error.details() or "").encode()).decode()
                answer = GrpcAnswer(b"", error.code().value[0], details)
            if recording.rpc == "ModelStatistics" and not answer.code:
                # the numbers are each server's own
                found = _models(recording.reply) ^ _models(answer)
            else:
                found = grpc_differences(recording, answer)
            row = listed.get(recording.name)
            if row is not None and (found, answer.code) == (row.differs, row.status):
                deviating.append(recording.name)
            elif found or row is not None:
                differing[recording.name] = found, answer.code
            else:
                equal.append(recording.name)
    print(f"{len(equal)} equal, {len(deviating)} deviating, {len(differing)} differing: {differing}")
    assert not differing
    assert set(deviating) == listed.keys()
    assert len(equal) >= 95


def _models(answer: GrpcAnswer) -> set[str]:
    message: Any = MESSAGES["inference.ModelStatisticsResponse"].FromString(bytes(answer.message))
    return {f"{each.name} {each.version}" for each in message.model_stats}


STREAMS = [entry for entry in orjson.loads((GOLDEN / "triton_grpc.json").read_bytes()) if "requests" in entry]


@pytest.mark.parametrize("entry", STREAMS, ids=lambda entry: entry["name"])
def test_streams(server: Server, entry: dict[str, Any]) -> None:
    """The same answers to each request in the same order; those of different requests may come in another."""
    request, response = (
        MESSAGES[f"inference.{name}"] for name in ("ModelInferRequest", "ModelStreamInferResponse")
    )
    given = [
        json_format.ParseDict(each, request()).SerializeToString(deterministic=True)
        for each in entry["requests"]
    ]
    metadata = (("triton_grpc_error", "true"),) if "grpc_error" in entry["name"] else ()
    got: list[Any] = []
    with grpc.insecure_channel(server.grpc) as channel:
        call = channel.stream_stream(f"{SERVICE}ModelStreamInfer")(iter(given), timeout=20, metadata=metadata)
        try:
            got.extend(response.FromString(message) for message in call)
            code, details = "OK", ""
        except grpc.RpcError as error:
            code, details = error.code().name, error.details()
    assert (code, details) == (entry["code"], entry["details"])
    wanted = [json_format.ParseDict(each, response()) for each in entry["responses"]]
    for name in {each.infer_response.id for each in [*wanted, *got]}:
        ours = [each for each in got if each.infer_response.id == name]
        theirs = [each for each in wanted if each.infer_response.id == name]
        if code == "OK":
            assert ours == theirs
