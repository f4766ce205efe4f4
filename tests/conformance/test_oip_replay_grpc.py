"""The recorded gRPC calls, answered by us as the recorded Triton did: same code, same message, raw contents
byte for byte."""

from __future__ import annotations

import functools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlingua.protocols.grpc_status import GRPC_STATUS
from interlingua.protocols.oip.grpc_probes import HEALTH_CHECK
from interlingua.schemas.oip import HEALTH_MESSAGES
from interlingua.translator.serving.pipeline import Pipeline
from tests.conformance.golden_models import golden_models
from tests.conformance.mutations import mutated
from tests.conformance.oip_deviations import GRPC, by_exchange
from tests.conformance.oip_recordings import GrpcRecording, grpc_recordings
from tests.conformance.oip_replay import UNFORESEEN, grpc_differences, pipeline, send_grpc

PROBES = ("ServerLive", "Check")

OK, INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED = 0, 3, 5, 12

RECORDINGS = grpc_recordings("triton")
LATER = {str(one): one.later(()) for one in RECORDINGS}
SELECTED = [one for one in RECORDINGS if not LATER[str(one)]]
DEVIATIONS = by_exchange(GRPC)


@functools.cache
def server() -> Pipeline:
    """Made by the first test that needs it: each model is a process."""
    models, failed = golden_models()
    assert not failed
    return pipeline(models)


@pytest.mark.parametrize("recording", SELECTED, ids=str)
def test_answered_as_by_triton(recording: GrpcRecording) -> None:
    assert recording.request is not None
    answer = send_grpc(server(), recording.method, recording.request)
    row = DEVIATIONS.get(recording.name)
    assert grpc_differences(recording, answer) == (row.differs if row else set())
    if row:
        assert answer.code == row.status
    assert bool(answer.code) == bool(answer.details)


def test_what_is_held_against_the_recording() -> None:
    names = {one.name for one in SELECTED}
    counts = Counter(LATER.values())
    counts["equal"] = len(names - DEVIATIONS.keys())
    counts["deviating"] = len(names & DEVIATIONS.keys())
    print(counts)
    assert counts.pop("") == len(names) == 68
    assert counts == {
        "equal": 62,
        "deviating": 6,
        "control": 30,
        "operation": 5,
        "shared memory": 5,
        "request not kept": 3,
    }


@pytest.mark.parametrize("recording", [one for one in RECORDINGS if one.rpc in PROBES], ids=str)
def test_a_server_that_failed_to_load_a_model(recording: GrpcRecording) -> None:
    # as the recorded one by then: alive, not ready, and the health check is about the latter
    unready = pipeline(golden_models()[0], failed={"nope": "failed to poll from model repository"})
    answer = send_grpc(unready, recording.method, recording.request or b"")
    assert (answer.code, answer.message) == (OK, recording.reply.message)


def test_the_health_check_of_a_server_that_is_ready() -> None:
    answer = send_grpc(server(), HEALTH_CHECK, b"")
    response = HEALTH_MESSAGES["grpc.health.v1.HealthCheckResponse"]
    assert response.FromString(answer.message) == response(status="SERVING")


NOT_OFFERED = [one for one in RECORDINGS if LATER[str(one)] not in ("", "control") and one.rpc not in PROBES]


@pytest.mark.parametrize("recording", NOT_OFFERED, ids=str)
def test_what_is_not_offered_yet_is_refused(recording: GrpcRecording) -> None:
    # streams are more than Triton had: its health was not watched, its contracts not reflected
    if server().handlers["grpc"].offers(recording.method) == "unary":
        answer = send_grpc(server(), recording.method, recording.request or b"")
        assert answer.code in (INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED)
    else:
        assert recording.rpc != "ModelInfer"


@settings(max_examples=150, deadline=None)
@given(recording=st.sampled_from(SELECTED), data=st.data())
def test_broken_requests_are_answered_too(recording: GrpcRecording, data: st.DataObject) -> None:
    message = data.draw(mutated(recording.request or b""))
    answer = send_grpc(server(), recording.method, message)
    assert answer.code in {OK, *GRPC_STATUS.values()}
    assert bool(answer.code) == bool(answer.details)
    assert answer.details != UNFORESEEN
