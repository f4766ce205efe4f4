"""The recorded HTTP requests, answered by us as the recorded grps servers did, in the quirks of both: the same
HTTP status, content type and code in band, the same members of the JSON, the same chunks of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.grps_deviations import DEVIATIONS, MAPPED, NOT_COMPARED, Row
from tests.conformance.grps_echo import Converter, Echo, Writer
from tests.conformance.grps_replay import (
    OPTIONS,
    Recording,
    Reply,
    differences,
    layout,
    pipeline,
    recordings,
    send,
)
from tests.conformance.mutations import mutated
from tests.conformance.oip_replay import UNFORESEEN

PAGE = Path(__file__).parents[2] / "docs" / "dialects" / "grps.md"

ALL = recordings()
WRITERS = "custom_body_true_body_ctrl"


def names(rows: Iterable[Row]) -> list[str]:
    return [case for row in rows for case in row.cases]


DIFFERENT = {*names(DEVIATIONS), *names(MAPPED)}
LEFT_OUT = set(names(NOT_COMPARED))


def models_of(group: str, flavor: str) -> dict[str, Echo]:
    """The models of the recorded server."""
    if group == WRITERS:
        return {"your_model": Writer(tells_method=flavor == "py")}
    if group == "tensor_converter":
        return {"your_model": Converter("your_model", "1.0.0")}
    return {
        "your_model": Echo("your_model", "1.0.0"),
        "my-dashed-model": Echo("my-dashed-model", "2.0.0-rc1", b"tag:dashed"),
    }


@pytest.fixture(scope="module")
def answers() -> dict[tuple[str, str, str], Reply]:
    """Our answers, asked for in the order of the recordings, which put the servers online and offline."""
    told = {}
    for group, options in OPTIONS.items():
        for flavor in ("py", "cpp"):
            server, over_brpc = (
                pipeline(models_of(group, flavor), flavor, options, "your_model"),
                group == "brpc_port_http",
            )
            for one in ALL:
                if (one.group, one.flavor) != (group, flavor):
                    continue
                if one.name in ("ready_after_online", "m_CheckReadiness"):
                    # they were put online over a connection that was not recorded
                    server.service.switch(True)
                told[group, flavor, one.name] = send(server, one.request(), over_brpc)
    return told


@pytest.mark.parametrize("recording", [one for one in ALL if str(one) not in LEFT_OUT], ids=str)
def test_answered_as_recorded(recording: Recording, answers: dict[tuple[str, str, str], Reply]) -> None:
    ours = answers[recording.group, recording.flavor, recording.name]
    assert bool(differences(recording, ours)) == (str(recording) in DIFFERENT), differences(recording, ours)


def test_what_is_held_against_the_recordings() -> None:
    known = {str(one) for one in ALL}
    rows = (*DEVIATIONS, *MAPPED, *NOT_COMPARED)
    listed = names(rows)
    assert len(listed) == len(set(listed)), "no case stands in two rows"
    assert set(listed) <= known
    crashed = {str(one) for one in ALL if one.reply is None}
    assert crashed <= LEFT_OUT
    assert len(known - set(listed)) > 250, "most are answered alike"


@pytest.mark.parametrize("recording", [one for one in ALL if one.group == "streaming" and one.reply], ids=str)
def test_pieces_are_laid_out_as_recorded(
    recording: Recording, answers: dict[tuple[str, str, str], Reply]
) -> None:
    ours = answers[recording.group, recording.flavor, recording.name]
    assert ours.chunks and recording.reply and recording.reply.chunks
    first = recording.reply.chunks[0]
    if first.startswith(b"{"):
        assert layout(ours.chunks[0]) == layout(first)


def test_the_page_lists_the_deviations() -> None:
    page = " ".join(PAGE.read_text().split())
    for row in (*DEVIATIONS, *MAPPED):
        assert row.what in page, row.what


@settings(max_examples=200, deadline=None)
@given(recording=st.sampled_from([one for one in ALL if one.body]), data=st.data())
def test_broken_requests_are_answered_too(recording: Recording, data: st.DataObject) -> None:
    models = models_of(recording.group, recording.flavor)
    server = pipeline(models, recording.flavor, OPTIONS[recording.group], "your_model")
    request = recording.request()
    request.body = memoryview(data.draw(mutated(recording.body)))
    answer = send(server, request, recording.group == "brpc_port_http")
    assert answer.body is not None
    assert UNFORESEEN.encode() not in answer.body
    if recording.group != WRITERS and answer.content_type.startswith("application/json") and answer.body:
        status = json.loads(answer.body)["status"]
        assert (status["code"] == 200) == (status["status"] == "SUCCESS")
        mirrors = recording.flavor == "py"
        assert answer.status == (status["code"] if mirrors else 200)
