"""The recorded inferences, through a bridge to the same models: the answers are equal whether messages pass
through or are decoded."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from interlingua.protocols.oip import DIALECT
from interlingua.runtime.upstream.model import UpstreamModel
from interlingua.translator.serving.pipeline import Pipeline
from tests.conformance.golden_models import golden_models
from tests.conformance.oip_recordings import grpc_recordings, http_recordings
from tests.conformance.oip_replay import pipeline, send_grpc, send_http
from tests.loopback import LOOPBACKS
from tests.properties.passing import Counting, Decoding

RECORDINGS: dict[str, list[Any]] = {
    "http": [
        one
        for one in http_recordings("triton")
        if one.path.endswith("/infer") and not one.later(()) and b"sequence" not in one.body
    ],
    "grpc": [
        one
        for one in grpc_recordings("triton")
        if one.rpc == "ModelInfer" and one.request and not one.later(()) and b"sequence" not in one.request
    ],
}


@functools.cache
def bridge(transport: str, kind: type[Counting]) -> tuple[Pipeline, Counting]:
    models, _ = golden_models()
    client = LOOPBACKS[transport](pipeline(models))
    upstream = kind("there", DIALECT.bindings[transport].calls, [client], 5.0)
    return pipeline({name: UpstreamModel(name, upstream, name) for name in models}), upstream


def answer(transport: str, kind: type[Counting], recording: Any) -> tuple[Any, int]:
    """The answer, and how many messages passed."""
    server, upstream = bridge(transport, kind)
    before = upstream.passed
    if transport == "grpc":
        found: Any = send_grpc(server, recording.method, recording.request)
        shown = found.code, found.details, bytes(found.message)
    else:
        found = send_http(server, recording.request())
        shown = found.status, found.headers.get("inference-header-content-length"), found.body
    return shown, upstream.passed - before


@pytest.mark.parametrize("transport", RECORDINGS)
def test_answers_are_equal(transport: str) -> None:
    passed = 0
    for recording in RECORDINGS[transport]:
        one, passes = answer(transport, Counting, recording)
        assert one == answer(transport, Decoding, recording)[0], recording
        passed += passes
    # most recorded requests are JSON, or wrong
    assert passed > 5
