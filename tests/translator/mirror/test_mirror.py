"""A mirror by itself: what is copied, what is found, what is left out, and that nothing of it is told twice."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    RequestedOutput,
    Sequence,
    SharedMemoryRef,
    Tensor,
)
from interlingua.translator.config.mirror import KeepOptions, MirrorOptions
from interlingua.translator.config.tap import RedactOptions
from interlingua.translator.mirror import Mirror, reports
from interlingua.translator.mirror import judge as judging
from interlingua.translator.mirror.comparison import Copy
from interlingua.translator.mirror.findings import Findings
from interlingua.translator.mirror.judge import LocalJudge, OnFindings
from interlingua.translator.mirror.table import as_text
from interlingua.translator.recording import listening
from interlingua.translator.recording.files import RecordingReader
from interlingua.translator.recording.record import ANSWER, MIRRORED
from tests.translator.mirror.mirrored import GONE, Model, answered, mirror, request, settled, tensor
from tests.waiting import until


async def shown(looker: Mirror, *seen: Any) -> None:
    """Have ``looker`` see answers that it wants, and wait for what comes of it."""
    for each in seen:
        assert looker.should_observe(each.request)
        looker.on_response(each)
    await settled(looker)


async def test_an_equal_answer() -> None:
    model = Model()
    looker = mirror(model)
    await shown(looker, answered(request(1.0, 2.0), tensor(1.0, 2.0)))
    report = looker.report
    assert (report.counts.compared, report.counts.equal, report.counts.different) == (1, 1, 0)
    assert (report.counts.outputs["out"].compared, report.counts.outputs["out"].different) == (1, 0)
    assert sum(report.counts.primary.counts) == sum(report.counts.mirror.counts) == 1
    assert report.counts.primary.ns == 2_000_000
    await looker.close()


async def test_the_copy_is_the_request_without_a_caller() -> None:
    model = Model()
    looker = mirror(model, request_timeout_secs=5.0)
    asked = request(
        1.0,
        version="3",
        id="7",
        priority=2,
        timeout_us=500,
        parameters={"a": 1},
        outputs=(RequestedOutput("out", 5, SharedMemoryRef("region", 0, 4), {"b": True}),),
    )
    asked.context.traceparent, asked.context.headers = "00-1", {"x": "y", "x-request-id": "seven"}
    await shown(looker, answered(asked, tensor(1.0)))
    (copy,) = model.asked
    assert (copy.model, copy.version, copy.id, copy.priority, copy.timeout_us) == ("other", "", "7", 2, 500)
    assert copy.inputs is asked.inputs and copy.parameters == {"a": 1}
    # whole tensors, in a message
    assert copy.outputs == (RequestedOutput("out", parameters={"b": True}),)
    assert copy.context.copied and not asked.context.copied
    assert copy.context.cancel is not asked.context.cancel
    assert copy.context.timings is not asked.context.timings
    assert (copy.context.traceparent, copy.context.headers) == ("00-1", {"x": "y"})
    assert copy.context.deadline == pytest.approx(time.monotonic() + 5.0, abs=1.0)
    assert asked.model == "m" and asked.outputs[0].classification == 5
    await looker.close()


async def test_a_callers_own_limit_goes_with_the_copy() -> None:
    model = Model()
    looker = mirror(model)
    asked = request(1.0)
    asked.context.deadline = time.monotonic() + 3
    looker.should_observe(asked)
    await asyncio.sleep(0.01)
    looker.on_response(answered(asked, tensor(1.0)))
    await settled(looker)
    assert model.asked[0].context.deadline == pytest.approx(time.monotonic() + 3, abs=1)
    await looker.close()


async def test_one_wrong_element() -> None:
    wrong = np.ones((2, 3), np.float32)
    wrong[1, 2] += np.float32(1e-3)
    looker = mirror(Model(lambda asked: InferResponse("other", (Tensor.from_numpy("out", wrong),))))
    right = Tensor.from_numpy("out", np.ones((2, 3), np.float32))
    await shown(looker, answered(request(1.0, id="first"), right), answered(request(1.0, id="2"), right))
    found = looker.report.counts.outputs["out"]
    assert (looker.report.counts.different, found.different, found.faults) == (2, 2, {"values": 2})
    assert found.max_absolute == pytest.approx(1e-3, rel=1e-3)
    differences = reports([looker.report])["mirrors"][0]["differences"]
    assert [each for each in differences if each["count"]] == [{"up_to": 1e-2, "count": 2}]
    assert found.first is not None
    assert (found.first.request_id, found.first.number, found.first.index) == ("first", 1, (1, 2))
    await looker.close()


async def test_the_tolerance_is_the_options() -> None:
    model = Model(lambda asked: InferResponse("other", (tensor(1.0 + 1e-3),)))
    for options, equal in (({"rtol": 2e-3}, 1), ({"atol": 2e-3}, 1), ({"rtol": 1e-4, "atol": 1e-4}, 0)):
        looker = mirror(model, **options)
        await shown(looker, answered(request(1.0), tensor(1.0)))
        assert looker.report.counts.equal == equal
        await looker.close()


async def test_failures_of_either_side() -> None:
    busy = InferenceError(ErrorCode.OVERLOADED, "busy")
    answers: list[Any] = [GONE, InferResponse("other", (tensor(1.0),)), busy, GONE]
    looker = mirror(Model(lambda asked: answers.pop(0)), max_concurrency=1)
    await shown(
        looker,
        answered(request(1.0), tensor(1.0)),
        answered(request(1.0), error=GONE),
        answered(request(1.0), error=GONE),
        answered(request(1.0), error=GONE),
    )
    report = looker.report
    assert (report.counts.compared, report.counts.equal, report.counts.different) == (4, 1, 3)
    assert {kind: failure.count for kind, failure in report.counts.failures.items()} == {
        "failed": 1,
        "answered": 1,
        "code": 1,
    }
    assert report.counts.failures["failed"].last == "UNAVAILABLE: gone"
    # what failed says nothing of how long answers take
    assert (sum(report.counts.primary.counts), sum(report.counts.mirror.counts)) == (1, 1)
    await looker.close()


async def test_an_answer_that_only_its_caller_could_not_be_given() -> None:
    looker = mirror(Model())
    no_form = InferenceError(ErrorCode.UNREPRESENTABLE, "no form")
    await shown(looker, answered(request(1.0), tensor(1.0), error=no_form))
    assert looker.report.counts.equal == 1
    await looker.close()


async def test_what_is_unforeseen_is_a_failure_of_the_other_model(caplog: pytest.LogCaptureFixture) -> None:
    looker = mirror(Model(lambda asked: ValueError("oops")))
    await shown(looker, answered(request(1.0), tensor(1.0)))
    assert looker.report.counts.failures["failed"].last == "INTERNAL: unexpected: oops"
    assert len(caplog.records) == 1
    await looker.close()


async def test_a_model_that_is_not_served() -> None:
    def find(name: str) -> Any:
        raise InferenceError(ErrorCode.NOT_FOUND, "unknown model")

    options = MirrorOptions.model_construct(to="other")
    looker = Mirror(options, LocalJudge(options, find), "route")
    await shown(looker, answered(request(1.0), tensor(1.0)))
    assert looker.report.counts.failures["failed"].last == "NOT_FOUND: unknown model"
    await looker.close()


async def test_a_model_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "_GRACE_SECS", 0.0)
    model = Model()
    model.open.clear()
    looker = mirror(model, request_timeout_secs=0.05)
    await shown(looker, answered(request(1.0), tensor(1.0)))
    assert looker.report.counts.failures["failed"].last.startswith("DEADLINE_EXCEEDED")
    await looker.close()


async def test_who_is_not_copied() -> None:
    model = Model()
    looker = mirror(model)
    cancelled = InferenceError(ErrorCode.CANCELLED, "gone away")
    await shown(
        looker,
        answered(request(1.0), error=cancelled),
        answered(request(1.0), tensor(1.0), by="other"),
    )
    assert looker.report.dropped == {"cancelled": 1, "same_model": 1}
    assert not model.asked
    await looker.close()


async def test_the_queue_is_bounded_by_requests() -> None:
    model = Model()
    model.open.clear()
    looker = mirror(model, max_concurrency=2, max_queue_requests=5)
    for _ in range(8):
        looker.on_response(answered(request(1.0), tensor(1.0)))
    await until(lambda: len(model.asked) == 2)
    assert (looker.report.held, looker.report.dropped) == (5, {"queue": 3})
    model.open.set()
    await settled(looker)
    assert (looker.report.counts.equal, looker.report.held_bytes) == (5, 0)
    await looker.close()


async def test_the_queue_is_bounded_by_bytes() -> None:
    model = Model()
    model.open.clear()
    looker = mirror(model, max_queue_bytes=40)
    # 4 bytes asked and 4 answered; then 16 and 16
    looker.on_response(answered(request(1.0), tensor(1.0)))
    looker.on_response(answered(request(1.0, 2.0, 3.0, 4.0), tensor(1.0, 2.0, 3.0, 4.0)))
    looker.on_response(answered(request(1.0), tensor(1.0)))
    await asyncio.sleep(0.01)
    assert (looker.report.held, looker.report.held_bytes, looker.report.dropped) == (2, 40, {"queue": 1})
    model.open.set()
    await settled(looker)
    assert looker.report.held_bytes == 0
    await looker.close()


class Patient:
    """A judge whose copies wait for others."""

    gather_secs = 0.2

    def __init__(self) -> None:
        self.copies: list[Copy] = []

    async def start(self) -> None:
        """Nothing to prepare."""

    def submit(self, copy: Copy, on_findings: OnFindings) -> None:
        self.copies.append(copy)
        on_findings(Findings.of(copy, None))

    async def close(self) -> None:
        """Nothing to release."""


def patient(**options: Any) -> tuple[Mirror, Patient]:
    judge = Patient()
    return Mirror(MirrorOptions.model_construct(to="other", **options), judge, "route", lambda: 0.0), judge


async def test_copies_are_made_together_and_some_in_each_turn() -> None:
    looker, judge = patient()
    for value in range(40):
        looker.on_response(answered(request(float(value)), tensor(1.0)))
    for _ in range(8):
        await asyncio.sleep(0)
    assert (judge.copies, looker.report.held) == ([], 40), "they wait for others, and count as held"
    made = [0]
    while looker.report.held:
        await asyncio.sleep(0)
        made.append(len(judge.copies))
    assert max(after - before for before, after in pairwise(made)) <= 16
    values = [copy.record.request.inputs[0].numpy()[0] for copy in judge.copies]
    assert values == list(range(40)), "in the order of the answers"
    await looker.close()


@pytest.mark.parametrize("what", ["many", "large input", "large output", "sequence"])
async def test_what_does_not_wait_for_others(what: str) -> None:
    looker, judge = patient()
    large = tensor(*[1.0] * 20_000)
    asked = request(*[1.0] * 20_000) if what == "large input" else request(1.0)
    if what == "sequence":
        asked = request(1.0, sequence=Sequence(7, True, True))
        assert looker.should_observe(asked)
    for _ in range(64 if what == "many" else 1):
        looker.on_response(answered(asked, large if what == "large output" else tensor(1.0)))
    for _ in range(8):
        await asyncio.sleep(0)
    assert len(judge.copies) == (64 if what == "many" else 1)
    assert looker.report.held == 0
    await looker.close()


async def test_the_queue_is_bounded_while_copies_wait() -> None:
    looker, judge = patient(max_queue_requests=2, finish_secs=0.01)
    judge.submit = lambda copy, _: judge.copies.append(copy)  # type: ignore[method-assign]
    for value in range(5):
        looker.on_response(answered(request(float(value)), tensor(1.0)))
    looker._gathered.flush()
    assert (looker.report.held, looker.report.dropped) == (2, {"queue": 3})
    assert [copy.record.request.inputs[0].numpy()[0] for copy in judge.copies] == [0, 1], "the first ones"
    looker.on_response(answered(request(9.0), tensor(1.0)))
    await looker.close()
    assert looker.report.dropped == {"queue": 4, "shutdown": 2}
    assert looker.report.held == 0


async def test_a_wait_takes_nothing_of_the_deadline_of_a_copy() -> None:
    looker, judge = patient()
    asked = request(1.0)
    asked.context.deadline = time.monotonic() + 0.5
    observed = answered(asked, tensor(1.0))
    observed.ended = time.monotonic_ns()
    looker.on_response(observed)
    await asyncio.sleep(0.2)
    await until(lambda: judge.copies)
    (copy,) = judge.copies
    began = observed.ended - observed.elapsed_ns
    assert copy.secs == pytest.approx(asked.context.deadline - began / 1e9, abs=0.1)
    assert time.time_ns() - copy.record.began_unix_ns >= 190_000_000
    await looker.close()


async def test_the_share_is_chosen_by_chance() -> None:
    chances = iter([0.05, 0.1, 0.5, 0.0])
    looker = mirror(Model(), lambda: next(chances), percent=10.0)
    assert [looker.should_observe(request(1.0)) for _ in range(4)] == [True, False, False, True]
    await looker.close()


async def test_large_answers_are_compared_in_a_thread() -> None:
    large = tuple(float(each) for each in range(30_000))
    looker = mirror(Model())
    await shown(looker, answered(request(*large), tensor(*large)))
    assert looker.report.counts.equal == 1
    await looker.close()


async def test_closing_finishes_what_is_held() -> None:
    model = Model()
    model.open.clear()
    looker = mirror(model, max_concurrency=1, finish_secs=5.0)
    for _ in range(3):
        looker.on_response(answered(request(1.0), tensor(1.0)))
    asyncio.get_running_loop().call_later(0.02, model.open.set)
    await looker.close()
    assert looker.report.counts.equal == 3
    assert not looker.should_observe(request(1.0))
    looker.on_response(answered(request(1.0), tensor(1.0)))
    await asyncio.sleep(0)
    assert looker.report.dropped == {"shutdown": 1}


async def test_closing_drops_what_takes_too_long(caplog: pytest.LogCaptureFixture) -> None:
    model = Model()
    model.open.clear()
    looker = mirror(model, max_concurrency=2, finish_secs=0.02)
    for _ in range(5):
        looker.on_response(answered(request(1.0), tensor(1.0)))
    for number in range(3):
        asked = request(1.0, sequence=Sequence(1, start=number == 0))
        assert looker.should_observe(asked)
        looker.on_response(answered(asked, tensor(1.0)))
    await looker.close()
    assert looker.report.dropped == {"shutdown": 8}
    assert (looker.report.held, looker.report.held_bytes, looker.report.counts.compared) == (0, 0, 0)
    assert caplog.messages == ["mirror copies dropped"]


# --- streams


def stream(*values: float) -> list[InferResponse]:
    return [InferResponse("m", (tensor(value),), final=False) for value in values]


async def test_streams_are_requested_and_compared_as_such() -> None:
    model = Model(lambda asked: [*stream(1.0, 2.5), InferResponse("other", ())])
    looker = mirror(model)
    await shown(looker, answered(request(1.0), *stream(1.0, 2.0), streamed=True))
    found = looker.report.counts.outputs["out"]
    assert (found.compared, found.different) == (2, 1)
    assert found.first is not None and found.first.response == 1
    await looker.close()


async def test_a_stream_that_breaks_off_or_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_SURPLUS", 4)
    answers: list[list[Any]] = [[*stream(1.0), GONE], stream(*range(100))]
    looker = mirror(Model(lambda asked: answers.pop(0)))
    await shown(
        looker,
        answered(request(1.0), *stream(1.0, 2.0), streamed=True),
        answered(request(1.0), *stream(0.0), streamed=True),
    )
    assert looker.report.counts.failures["failed"].last == "UNAVAILABLE: gone"
    assert looker.report.counts.failures["responses"].last == "5 responses, expected 1"
    await looker.close()


async def test_a_stream_that_was_cut_is_compared_as_far_as_it_is_known() -> None:
    heard: list[float] = []

    def endless(asked: InferRequest) -> Iterator[InferResponse]:
        for number in itertools.count():
            heard.append(number)
            yield from stream(number)

    answers: list[Any] = [endless(request()), stream(0.0), stream(0.0, 2.0)]
    looker = mirror(Model(lambda asked: answers.pop(0)), max_concurrency=1)
    began = answered(request(1.0), *stream(0.0, 1.0), streamed=True, cut=True)
    await shown(looker, began, began, began)
    report = looker.report
    assert heard == [0, 1], "no more than there is to compare"
    assert (report.counts.equal, report.counts.different, report.counts.cut) == (1, 2, 3)
    assert report.counts.failures["responses"].last == "1 responses, expected 2"
    assert report.counts.outputs["out"].faults == {"values": 1}
    assert sum(report.counts.primary.counts) == sum(report.counts.mirror.counts) == 0
    # of one whose first response had no room there is nothing to compare
    await shown(looker, replace(began, responses=()))
    assert report.dropped == {"queue": 1}
    assert "3 long streams" in as_text(orjson.loads(orjson.dumps(reports([report]))))
    await looker.close()


# --- what is kept


async def test_pairs_are_kept_for_replay(tmp_path: Path) -> None:
    model = Model()
    path = tmp_path / "folder" / "pairs"
    looker = mirror(model, keep=KeepOptions(path=str(path), different=4, equal=1))
    for number in range(40):
        right = tensor(1.0) if number % 4 else tensor(3.0)
        await shown(looker, answered(request(1.0, id=str(number)), right))
    await looker.close()
    assert looker.report.counts.kept == {"different": 4, "equal": 1}
    with RecordingReader(path) as reader:
        kept = list(reader)
    # differences 1 and 2 at once, then ever more rarely; the first that is equal
    assert [record.request.id for record in kept] == ["0", "1", "4", "12", "28"]
    assert kept[0].mirrored is not None
    assert kept[0].mirrored.answered_by == "other"
    assert kept[0].answer.responses[0].outputs[0].numpy().tolist() == [3.0]
    assert kept[0].mirrored.responses[0].outputs[0].numpy().tolist() == [1.0]
    assert abs(kept[0].began_unix_ns - time.time_ns()) < 60e9


@pytest.mark.parametrize("where", ["keep", "mirror", "mirror and keep"])
async def test_reports_lack_the_values_of_redacted_outputs(tmp_path: Path, where: str) -> None:
    model = Model(lambda asked: InferResponse("other", (tensor(5.0), tensor(5.0, name="open"))))
    hidden, path = RedactOptions(tensors=("ou*",)), tmp_path / "pairs"
    options: dict[str, Any] = {
        "keep": {"keep": KeepOptions(path=str(path), redact=hidden)},
        "mirror": {"redact": hidden},
        "mirror and keep": {"redact": hidden, "keep": KeepOptions(path=str(path))},
    }[where]
    looker = mirror(model, **options)
    await shown(looker, answered(request(1.0), tensor(1.0), tensor(1.0, name="open")))
    outputs = reports([looker.report])["mirrors"][0]["outputs"]
    assert outputs["out"]["worst"]["answers"] == {"expected": None, "actual": None}
    for example in ("first", "worst"):
        found = outputs["out"][example]
        assert (found["expected"], found["actual"], found["index"]) == ("[redacted]", "[redacted]", (0,))
        assert (outputs["open"][example]["expected"], outputs["open"][example]["actual"]) == ("1.0", "5.0")
    assert outputs["open"]["worst"]["answers"]["actual"]["data"] == [5.0]
    await looker.close()
    if path.exists():
        with RecordingReader(path) as reader:
            (kept,) = reader
        assert set(kept.redacted) == {(ANSWER, 0, 0), (MIRRORED, 0, 0)}


async def test_what_is_kept_is_bounded_in_bytes(tmp_path: Path) -> None:
    looker = mirror(Model(), keep=KeepOptions(path=str(tmp_path / "pairs"), equal=10, max_bytes=5000))
    for _ in range(6):
        await shown(looker, answered(request(1.0), tensor(1.0)))
    await looker.close()
    assert looker.report.counts.kept == {"equal": 2}
    assert (tmp_path / "pairs").stat().st_size < 5000


async def test_an_unwritable_file_harms_no_request(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    looker = mirror(Model(), keep=KeepOptions(path=str(tmp_path / "file" / "pairs"), equal=5))
    for _ in range(3):
        await shown(looker, answered(request(1.0), tensor(1.0)))
    await looker.close()
    assert (looker.report.counts.equal, looker.report.counts.kept) == (3, {"failed": 1})
    assert caplog.messages == ["mirror pairs not written"]


# --- sequences


def sequence(length: int, id_: int | str = 7) -> list[Any]:
    """Requests of one sequence, with their places as values."""
    return [
        request(float(place), sequence=Sequence(id_, place == 0, place == length - 1))
        for place in range(length)
    ]


async def test_a_sequence_is_copied_in_order() -> None:
    model = Model()
    looker = mirror(model)
    steps = sequence(4)
    assert all(looker.should_observe(step) for step in steps)
    for place in (2, 0, 3, 1):  # however the answers come
        looker.on_response(answered(steps[place], tensor(float(place))))
    await settled(looker)
    assert [asked.inputs[0].numpy()[0] for asked in model.asked] == [0.0, 1.0, 2.0, 3.0]
    assert [asked.sequence for asked in model.asked] == [step.sequence for step in steps]
    assert looker.report.counts.equal == 4
    await looker.close()


async def test_a_sequence_is_chosen_as_a_whole() -> None:
    chances = iter([0.9, 0.1])
    looker = mirror(Model(), lambda: next(chances), percent=50.0)
    assert [looker.should_observe(step) for step in sequence(3, 1)] == [False] * 3
    assert [looker.should_observe(step) for step in sequence(3, "text")] == [True] * 3
    await looker.close()


async def test_after_a_failure_on_one_side_the_rest_of_a_sequence_is_skipped() -> None:
    model = Model(lambda asked: GONE if len(model.asked) == 2 else InferResponse("other", (tensor(0.0),)))
    looker = mirror(model)
    steps = sequence(5)
    for step in steps[:4]:
        assert looker.should_observe(step)
        looker.on_response(answered(step, tensor(0.0)))
    await settled(looker)
    assert len(model.asked) == 2
    assert (looker.report.counts.equal, looker.report.counts.different, looker.report.dropped) == (
        1,
        1,
        {"sequence": 2},
    )
    assert not looker.should_observe(steps[4])
    # the next one of that id is another
    assert all(looker.should_observe(step) for step in sequence(2))
    await looker.close()
