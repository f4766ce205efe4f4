"""What MLServer and KServe both accepted is accepted by us, except where Triton's rules are the stricter.

Their models check nothing, so the ones here do not either: it is the dialect that is held to account.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import orjson
import pytest

from interlingua.runtime.target import Target
from interlingua.schemas import InferRequest, InferResponse, ModelMetadata, Readiness, Signature
from tests.conformance.oip_recordings import (
    GrpcRecording,
    HttpRecording,
    grpc_recordings,
    http_recordings,
)
from tests.conformance.oip_replay import pipeline, send_grpc, send_http

Recording = TypeVar("Recording", HttpRecording, GrpcRecording)

SERVERS = ("mlserver", "kserve")


class Echo(Target):
    """A ``Target`` without a signature: each input is an output, under the output's name if it has one."""

    def __init__(self, name: str, *outputs: str) -> None:
        self.name = name
        self._outputs = outputs

    async def infer(self, request: InferRequest) -> InferResponse:
        names = self._outputs or tuple(tensor.name for tensor in request.inputs)
        made = tuple(tensor.renamed(name) for tensor, name in zip(request.inputs, names, strict=False))
        return InferResponse(self.name, made, "1", request.id)

    async def signature(self, version: str = "") -> Signature:
        return Signature((), ())

    async def metadata(self, version: str = "") -> ModelMetadata:
        return ModelMetadata(self.name, Signature((), ()), (version or "1",))

    async def ready(self, version: str = "") -> Readiness:
        return Readiness(True)

    async def close(self) -> None:
        """Nothing to let go."""


SERVER = pipeline({"add_sub": Echo("add_sub", "OUTPUT0", "OUTPUT1"), "echo": Echo("echo")})

REFUSED_OVER_HTTP = {
    "bool_int": "1 is no BOOL, as on Triton",
    "br_req": "they took plain JSON for what the request called brotli",
    "bytes_int": "1 is no text, as on Triton",
    "fp32_null": "null is no number, as on Triton",
    "i64_float": "1.5 is no INT64, as on Triton",
    "i64_str": "a text is no number, as on Triton",
    "neg_shape": "a negative dimension, as on Triton",
}
REFUSED_OVER_GRPC = {"params_unset": "a parameter without a value, as on Triton"}
"""What both accept and we do not."""


def accepted(
    read: Callable[[str], Sequence[Recording]], good: Callable[[Recording], bool]
) -> list[Recording]:
    """The recordings of both servers whose request each of them accepted."""
    both = [{one.name: one for one in read(server) if good(one)} for server in SERVERS]
    shared = both[0].keys() & both[1].keys()
    return [one for found in both for one in found.values() if one.name in shared and not one.later(())]


OVER_HTTP = accepted(http_recordings, lambda one: one.reply is not None and one.reply.status == 200)
OVER_GRPC = accepted(grpc_recordings, lambda one: one.reply.code == 0)


@pytest.mark.parametrize("recording", OVER_HTTP, ids=str)
def test_accepted_over_http(recording: HttpRecording) -> None:
    answer = send_http(SERVER, recording.request())
    if recording.name in REFUSED_OVER_HTTP:
        assert answer.status in (400, 501)
        assert orjson.loads(answer.body)["error"]
    else:
        assert answer.status == 200


@pytest.mark.parametrize("recording", OVER_GRPC, ids=str)
def test_accepted_over_grpc(recording: GrpcRecording) -> None:
    assert recording.request is not None
    answer = send_grpc(SERVER, recording.method, recording.request)
    assert answer.code == (3 if recording.name in REFUSED_OVER_GRPC else 0)


def test_what_was_sent() -> None:
    assert (len(OVER_HTTP), len(OVER_GRPC)) == (72, 68)
    assert REFUSED_OVER_HTTP.keys() <= {one.name for one in OVER_HTTP}
    assert REFUSED_OVER_GRPC.keys() <= {one.name for one in OVER_GRPC}
