"""The recorded HTTP requests, answered by us as the recorded Triton did: same status, same JSON up to the
way that numbers are written, same binary data, an error where it had one."""

from __future__ import annotations

import functools
import time
from collections import Counter

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlingua.schemas.errors import HTTP_STATUS
from interlingua.translator.serving.pipeline import Pipeline
from tests.conformance.golden_models import golden_models
from tests.conformance.mutations import mutated
from tests.conformance.oip_deviations import HTTP, by_exchange
from tests.conformance.oip_recordings import HEADER_LENGTH, HttpRecording, http_recordings
from tests.conformance.oip_replay import UNFORESEEN, http_differences, pipeline, send_http

RECORDINGS = http_recordings("triton")
LATER = {str(one): one.later(()) for one in RECORDINGS}
SELECTED = [one for one in RECORDINGS if not LATER[str(one)]]
DEVIATIONS = by_exchange(HTTP)


@functools.cache
def server() -> Pipeline:
    """Made by the first test that needs it: each model is a process."""
    models, failed = golden_models()
    assert not failed
    return pipeline(models)


@pytest.mark.parametrize("recording", SELECTED, ids=str)
def test_answered_as_by_triton(recording: HttpRecording) -> None:
    answer = send_http(server(), recording.request())
    row = DEVIATIONS.get(recording.name)
    assert http_differences(recording, answer) == (row.differs if row else set())
    if row:
        assert answer.status == row.status
    assert answer.headers["content-type"] in ("application/json", "application/octet-stream")
    document = orjson.loads(answer.body[: int(answer.headers.get(HEADER_LENGTH, len(answer.body)))])
    assert (answer.status == 200) == ("error" not in document)


def test_what_is_held_against_the_recording() -> None:
    names = {one.name for one in SELECTED}
    counts = Counter(LATER.values())
    counts["equal"] = len(names - DEVIATIONS.keys())
    counts["deviating"] = len(names & DEVIATIONS.keys())
    print(counts)
    assert counts.pop("") == len(names) == 159
    assert counts == {
        "equal": 121,
        "deviating": 38,
        "control": 44,
        "operation": 15,
        "shared memory": 7,
        "rest of the request": 1,
        "a host, for the transport": 1,
    }


NOT_OFFERED = [one for one in RECORDINGS if LATER[str(one)] in ("model", "shared memory")]


@pytest.mark.parametrize("recording", NOT_OFFERED, ids=str)
def test_what_is_not_offered_yet_is_refused(recording: HttpRecording) -> None:
    answer = send_http(server(), recording.request())
    assert answer.status in (400, 404, 405, 501)
    assert orjson.loads(answer.body)["error"]


@settings(max_examples=150, deadline=None)
@given(recording=st.sampled_from(SELECTED), data=st.data())
def test_broken_requests_are_answered_too(recording: HttpRecording, data: st.DataObject) -> None:
    request = recording.request()
    request.body = data.draw(mutated(recording.body))
    if HEADER_LENGTH in request.headers:
        length = st.one_of(st.integers(-1, len(request.body) + 1).map(str), st.text(max_size=5))
        request.headers = {**request.headers, HEADER_LENGTH: data.draw(length)}
    # a sequence without an end makes the next one wait
    request.context.deadline = time.monotonic() + 10
    answer = send_http(server(), request)
    assert answer.status in {200, 405, *HTTP_STATUS.values()}
    document = orjson.loads(answer.body[: int(answer.headers.get(HEADER_LENGTH, len(answer.body)))])
    assert (answer.status == 200) == ("error" not in document)
    assert document.get("error") != UNFORESEEN
