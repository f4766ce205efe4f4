from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from interlingua.schemas import (
    Context,
    Datatype,
    InferRequest,
    InferResponse,
    RequestedOutput,
    Sequence,
    Tensor,
    pack_bytes,
)
from interlingua.translator.recording.files import RecordingReader, RecordingWriter
from interlingua.translator.recording.record import ANSWER, MIRRORED, QUESTION, Record
from interlingua.translator.recording.redaction import Redaction, digest
from interlingua.translator.recording.tap import Tap
from interlingua.translator.serving.observation import Observed


def tensor(name: str, size: int = 4) -> Tensor:
    return Tensor.checked(name, Datatype.UINT8, (size,), bytes(size))


def observed(model: str = "m", size: int = 4, **fields: object) -> Observed:
    request = InferRequest(model, (tensor("x", size), tensor("secret", size)), **fields)  # type: ignore[arg-type]
    return Observed(request, model, "oip", "here", (InferResponse(model, (tensor("y", size),)),), None, 1000)


def read(path: Path) -> list[Record]:
    with RecordingReader(path) as reader:
        return list(reader)


def test_what_it_saw_is_in_the_file_once_it_is_closed(tmp_path: Path) -> None:
    tap = Tap(RecordingWriter(tmp_path / "r"))
    for number in range(50):
        tap.on_response(observed(id=str(number)))
    tap.close()
    tap.close()
    found = read(tmp_path / "r")
    assert [record.request.id for record in found] == [str(number) for number in range(50)]
    assert found[0].answer.responses == observed().responses
    assert tap.report() == {
        "recorded": 50,
        "cut": 0,
        "dropped": 0,
        "oversized": 0,
        "failed": 0,
        "queued_bytes": 0,
    }


def test_models_are_chosen_by_glob(tmp_path: Path) -> None:
    tap = Tap(RecordingWriter(tmp_path / "r"), models=("resnet*", "digits"))
    tap.close()
    assert [
        tap.should_observe(InferRequest(name, ())) for name in ("resnet50", "digits", "digits2", "x")
    ] == [
        True,
        True,
        False,
        False,
    ]


def test_a_share_of_the_requests_and_whole_sequences(tmp_path: Path) -> None:
    tap = Tap(RecordingWriter(tmp_path / "r"), percent=25.0)
    tap.close()
    wanted = sum(tap.should_observe(InferRequest("m", ())) for _ in range(4000))
    assert 800 < wanted < 1200
    sequences = {
        number: {
            tap.should_observe(InferRequest("m", (), sequence=Sequence(number, start)))
            for start in (True, False)
        }
        for number in range(1, 1000)
    }
    assert all(len(choices) == 1 for choices in sequences.values())
    assert 180 < sum(choices == {True} for choices in sequences.values()) < 320


def test_a_stream_that_was_cut_is_counted_and_marked(tmp_path: Path) -> None:
    tap = Tap(RecordingWriter(tmp_path / "r"), max_queue_bytes=1000)
    assert tap.max_stream_bytes == 500
    tap.close()
    tap = Tap(RecordingWriter(tmp_path / "s"))
    tap.on_response(replace(observed(), streamed=True, cut=True))
    tap.on_response(replace(observed(), streamed=True))
    tap.close()
    assert [record.answer.cut for record in read(tmp_path / "s")] == [True, False]
    assert (tap.counts.recorded, tap.counts.cut) == (1, 1)


def test_a_stream_of_nothing_takes_room_too(tmp_path: Path) -> None:
    tap = Tap(RecordingWriter(tmp_path / "r"), max_queue_bytes=100_000)
    tap.on_response(replace(observed(), responses=(InferResponse("m", ()),) * 1000, streamed=True))
    tap.close()
    assert (tap.counts.recorded, tap.counts.dropped) == (0, 1)


@pytest.mark.parametrize(
    ("dialect", "told", "left"),
    [
        ("grps", b'{"authorization": "s3cret", "x-tenant": "a"}', b'{"x-tenant":"a"}'),
        ("grps", b"no JSON", b"no JSON"),
        ("grps", b"[1]", b"[1]"),
        ("oip", b'{"authorization": "mine"}', b'{"authorization": "mine"}'),
    ],
)
def test_headers_that_a_model_receives_are_redacted_too(dialect: str, told: bytes, left: bytes) -> None:
    given = Tensor.checked("http_headers", Datatype.BYTES, (1,), pack_bytes([told]))
    seen = replace(observed(), dialect=dialect, request=InferRequest("m", (tensor("x"), given)))
    kept = Redaction(headers=("x-*",)).apply(Record.of(seen)).request.inputs
    assert [each.name for each in kept] == ["x", "http_headers"]
    assert kept[1].elements() == [left]
    assert seen.request.inputs[1] is given


class Slow(RecordingWriter):
    """A disk that takes nothing until it may."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.may = threading.Event()

    def write(self, record: Record) -> bool:
        self.may.wait(10)
        return super().write(record)


def test_what_finds_no_room_is_dropped_and_counted_without_a_wait(tmp_path: Path) -> None:
    writer = Slow(tmp_path / "r")
    tap = Tap(writer, max_queue_bytes=50_000)
    for number in range(10):
        tap.on_response(observed(size=5000, id=str(number)))  # 15 kB and what is beside it
    assert tap.counts.dropped == 8
    writer.may.set()
    tap.close()
    assert [record.request.id for record in read(tmp_path / "r")] == ["0", "1"]
    assert (tap.counts.recorded, tap.report()["queued_bytes"]) == (2, 0)


def test_what_cannot_be_written_is_counted_and_the_next_is_written(tmp_path: Path) -> None:
    tap = Tap(RecordingWriter(tmp_path / "r", max_bytes=4000))
    tap.on_response(observed(id="\ud800"))
    tap.on_response(observed(size=5000))
    tap.on_response(observed(id="good"))
    tap.close()
    assert [record.request.id for record in read(tmp_path / "r")] == ["good"]
    assert (tap.counts.failed, tap.counts.oversized, tap.counts.recorded) == (1, 1, 1)


def test_a_disk_that_is_full_leaves_whole_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    real, full = os.write, threading.Event()

    def write(file: int, data: memoryview) -> int:
        if full.is_set() and len(data) > 4000:
            real(file, data[:1000])
            raise OSError(28, "No space left on device")
        return real(file, data)

    monkeypatch.setattr(os, "write", write)
    with RecordingWriter(tmp_path / "r") as writer:
        writer.write(Record.of(observed(id="1")))
        full.set()
        with pytest.raises(OSError, match="No space"):
            writer.write(Record.of(observed(id="2", size=5000)))
        full.clear()
        writer.write(Record.of(observed(id="3")))
    assert [record.request.id for record in read(tmp_path / "r")] == ["1", "3"]


def test_redaction_leaves_digests_and_names(tmp_path: Path) -> None:
    context = Context(headers={"Authorization": "Bearer s3cret", "X-Tenant": "a"})
    seen = observed(
        size=16,
        context=context,
        parameters={"api_key": "s3cret", "top": 1},
        outputs=(RequestedOutput("y", parameters={"api_key": "s3cret"}),),
    )
    seen.responses[0].parameters = {"api_key": "s3cret"}
    record = replace(Record.of(seen), mirrored=Record.of(seen).answer)
    redaction = Redaction(tensors=("secret", "y"), parameters=("api_*",), headers=("x-*",))

    with RecordingWriter(tmp_path / "r") as writer:
        writer.write(redaction.apply(record))

    assert b"s3cret" not in (tmp_path / "r").read_bytes()
    [found] = read(tmp_path / "r")
    y = digest(tensor("y", 16))
    assert found.redacted == {
        (QUESTION, 0, 1): digest(tensor("secret", 16)),
        (ANSWER, 0, 0): y,
        (MIRRORED, 0, 0): y,
    }
    assert found.request.parameters == {"top": 1}
    assert (found.dropped_parameters, found.headers) == (("api_key",), {"x-tenant": "a"})
    # what observers share is as it was
    assert seen.request.parameters == {"api_key": "s3cret", "top": 1}
