from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlingua.schemas import (
    Context,
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    RequestedOutput,
    Sequence,
    SharedMemoryRef,
    Tensor,
)
from interlingua.translator.recording.files import RecordingError, RecordingReader, RecordingWriter
from interlingua.translator.recording.record import ANSWER, QUESTION, Record, RecordedAnswer
from interlingua.translator.serving.observation import Observed
from tests.strategies import names, tensor_tuples

INTEGERS = st.integers(-(2**63), 2**64 - 1)
PARAMETERS = st.dictionaries(
    st.text(st.characters(codec="utf-8"), max_size=5),
    st.one_of(st.booleans(), INTEGERS, st.floats(allow_nan=False), st.text(st.characters(codec="utf-8"))),
    max_size=3,
)
SEQUENCES = st.builds(Sequence, st.one_of(st.integers(1, 2**64 - 1), names()), st.booleans(), st.booleans())
PLACEMENTS = st.none() | st.builds(SharedMemoryRef, names(), st.integers(0, 9), st.integers(1, 9))
OUTPUTS = st.builds(RequestedOutput, names(), st.integers(0, 5), PLACEMENTS, PARAMETERS)
REQUESTS = st.builds(
    InferRequest,
    model=names(),
    inputs=tensor_tuples(min_size=0),
    outputs=st.none() | st.lists(OUTPUTS, max_size=2).map(tuple),
    version=names(),
    id=names(),
    parameters=PARAMETERS,
    sequence=st.none() | SEQUENCES,
    priority=st.integers(0, 2**32 - 1),
    timeout_us=st.integers(0, 2**64 - 1),
    context=st.builds(
        Context, traceparent=names(), timings=st.dictionaries(names(), st.integers(0, 2**62), max_size=2)
    ),
)
RESPONSES = st.builds(
    InferResponse,
    model=names(),
    outputs=tensor_tuples(min_size=0),
    version=names(),
    id=names(),
    parameters=PARAMETERS,
    final=st.booleans(),
)
ANSWERS = st.builds(
    RecordedAnswer, names(), st.lists(RESPONSES, max_size=3).map(tuple), st.none(), st.integers(0, 2**62)
)
RECORDS = st.builds(
    Record,
    st.integers(0, 2**62),
    REQUESTS,
    names(),
    names(),
    ANSWERS,
    st.none() | ANSWERS,
    streamed=st.booleans(),
    max_batch_size=st.none() | st.integers(0, 64),
)


def record(number: int = 0, size: int = 100) -> Record:
    data = os.urandom(size)
    return Record(
        number,
        InferRequest("m", (Tensor.checked("x", Datatype.UINT8, (size,), data),)),
        "oip",
        "127.0.0.1:1",
        RecordedAnswer("m", (InferResponse("m", (Tensor.checked("y", Datatype.UINT8, (size,), data),)),)),
    )


def written(path: Path, *records: Record) -> Path:
    with RecordingWriter(path) as writer:
        for each in records:
            assert writer.write(each)
    return path


def read(path: Path) -> list[Record]:
    with RecordingReader(path) as reader:
        found = list(reader)
    assert not reader.damage
    return found


@settings(deadline=None)
@given(records=st.lists(RECORDS, max_size=3))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, records: list[Record]) -> None:
    path = written(tmp_path_factory.mktemp("recording") / "r", *records)
    found = read(path)
    assert found == records
    assert [each.request.context.timings for each in found] == [
        each.request.context.timings for each in records
    ]


def test_errors_and_numbers_that_json_lacks_come_back(tmp_path: Path) -> None:
    error = InferenceError(ErrorCode.OVERLOADED, "full", origin="up", retryable=False, details={"limit": 3})
    given = record()
    given.request.parameters = {
        "top": float("inf"),
        "low": float("-inf"),
        "none": float("nan"),
        "raw": b"\xff",
    }
    responses = (replace(given.answer.responses[0], final=False, error=error),)
    given = replace(given, answer=RecordedAnswer("m", responses, error, 5))

    [found] = read(written(tmp_path / "r", given))

    assert repr(found.request.parameters) == repr(given.request.parameters)
    for came in (found.answer.error, found.answer.responses[0].error):
        assert came is not None
        assert (came.code, came.message, came.origin, came.retryable) == (error.code, "full", "up", False)
        assert came.details == {"limit": "3"}


def test_a_redacted_tensor_leaves_its_digest(tmp_path: Path) -> None:
    places = {(QUESTION, 0, 0): "ab12", (ANSWER, 0, 0): "cd34"}
    path = written(tmp_path / "r", replace(record(size=5000), redacted=places))
    assert path.stat().st_size < 2000

    [found] = read(path)

    assert found.redacted == places
    tensor = found.request.inputs[0]
    assert (tensor.name, tensor.shape, bytes(tensor.view)) == ("x", (5000,), b"")


def test_headers_are_kept_only_where_the_record_says_so(tmp_path: Path) -> None:
    given = record()
    given.request.context.headers = {"authorization": "secret"}
    path = written(tmp_path / "r", given, replace(given, headers={"x-tenant": "a"}))
    assert b"secret" not in path.read_bytes()
    assert [found.headers for found in read(path)] == [{}, {"x-tenant": "a"}]


@pytest.mark.parametrize("cut", [1, 40, 150])
def test_a_file_is_read_up_to_its_last_whole_record(tmp_path: Path, cut: int) -> None:
    path = written(tmp_path / "r", record(1), record(2))
    path.write_bytes(path.read_bytes()[:-cut])

    with RecordingReader(path) as reader:
        assert [found.began_unix_ns for found in reader] == [1]
    assert "record 2, at byte" in reader.damage
    assert "the file ends within it" in reader.damage


@settings(deadline=None, max_examples=200)
@given(at=st.integers(0, 5000), value=st.integers(1, 255))
def test_every_changed_byte_is_reported(
    tmp_path_factory: pytest.TempPathFactory, at: int, value: int
) -> None:
    path = written(tmp_path_factory.mktemp("recording") / "r", record(1), record(2))
    whole = bytearray(path.read_bytes())
    whole[at % len(whole)] ^= value
    path.write_bytes(whole)
    try:
        with RecordingReader(path) as reader:
            assert len(list(reader)) < 2
        assert reader.damage
    except RecordingError:
        assert at % len(whole) < len(b"interlingua-recording 1\n")


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("listeners: []\n")
    with pytest.raises(RecordingError, match="is not a recording"):
        RecordingReader(tmp_path / "r")
    (tmp_path / "r").write_bytes(b"interlingua-recording 7\n")
    with pytest.raises(RecordingError, match="version 7; this program reads version 1"):
        RecordingReader(tmp_path / "r")


def test_a_full_file_is_set_aside_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "r"
    with RecordingWriter(path, max_bytes=2000, max_files=3) as writer:
        for number in range(10):
            assert writer.write(record(number, size=400))
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["r", "r.1", "r.2"]
    assert all(file.stat().st_size <= 2000 for file in files)
    assert [found.began_unix_ns for name in ("r.2", "r.1", "r") for found in read(tmp_path / name)] == [
        7,
        8,
        9,
    ]


def test_a_record_that_no_file_could_hold_is_dropped(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r", max_bytes=1500) as writer:
        assert not writer.write(record(1, size=2000))
        assert writer.write(record(2))
    assert [found.began_unix_ns for found in read(tmp_path / "r")] == [2]
    assert not (tmp_path / "r.1").exists()


def test_what_is_there_is_not_written_over(tmp_path: Path) -> None:
    path = written(tmp_path / "r", record(1))
    written(path, record(2))
    assert [read(each)[0].began_unix_ns for each in (path, tmp_path / "r.1")] == [2, 1]
    assert path.stat().st_mode & 0o077 == 0


def test_a_record_is_made_of_what_was_observed() -> None:
    given = record()
    error = InferenceError(ErrorCode.CANCELLED, "gone")
    observed = Observed(given.request, "other", "oip", "here", given.answer.responses, error, 10**9)
    found = Record.of(observed)
    assert found.request is given.request
    assert found.answer == RecordedAnswer("other", given.answer.responses, error, 10**9)
    assert found.nbytes == 200
