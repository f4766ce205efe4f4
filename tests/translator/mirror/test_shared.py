"""One mirror in two processes, here on one event loop: one queue, one limit of running copies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interlingua.schemas import InferRequest, InferResponse, Sequence
from interlingua.translator.config import parse
from interlingua.translator.config.mirror import KeepOptions, MirrorOptions
from interlingua.translator.mirror import Mirror
from interlingua.translator.mirror.judge import LocalJudge
from interlingua.translator.mirror.shared import SLOTS, SharedMirrors, kept_columns
from interlingua.translator.recording.files import RecordingReader
from interlingua.translator.workers.mirrors import MirrorsOwner
from tests.translator.mirror.mirrored import GONE, Model, answered, request, settled, tensor

CONFIG = """
listeners: [{listen: "127.0.0.1:0", transport: http}]
models: {m: &echo {backend: identity, signature: {inputs: [&x {name: x, datatype: FP32, shape: [1]}], outputs: [*x]}}, n: *echo}
routes: [%s]
"""
ROUTE = "{to: m, match: {model: %s}, mirror: {to: n}}"


class Processes:
    """The front ends of ``owner`` as each sees its memory."""

    def __init__(self) -> None:
        self.owner = MirrorsOwner(2, parse(CONFIG % ROUTE % "a"))
        self.rows = [
            SharedMirrors([each for part in self.owner.descriptors() for each in part], row)
            for row in range(4)
        ]

    def mirrors(self, model: Model, **options: Any) -> list[Mirror]:
        """A mirror to ``model``, in each of the front ends."""
        found = []
        for row in self.rows[:2]:
            settings = MirrorOptions.model_construct(to="other", **options)
            shared = row.of(5)
            judge = LocalJudge(settings, lambda _: model, True, shared)  # type: ignore[arg-type, return-value]
            found.append(Mirror(settings, judge, "route", lambda: 0.0, shared))
        return found


@pytest.fixture
async def processes() -> Any:
    found = Processes()
    yield found
    for row in found.rows:
        row.close()
    found.owner.close()


def of_both(mirrors: list[Mirror]) -> Iterator[Mirror]:
    """These in turns."""
    while True:
        yield from mirrors


async def test_the_queue_and_the_running_copies_are_limited_in_both(processes: Processes) -> None:
    model = Model()
    model.open.clear()
    mirrors = processes.mirrors(model, max_concurrency=3, max_queue_requests=5)
    for _, looker in zip(range(8), of_both(mirrors), strict=False):
        looker.on_response(answered(request(1.0), tensor(1.0)))
    await asyncio.sleep(0.05)
    assert len(model.asked) == 3
    assert sum(each.report.held for each in mirrors) == 5
    assert sum(each.report.dropped.get("queue", 0) for each in mirrors) == 3
    model.open.set()
    for each in mirrors:
        await settled(each)
    assert sum(each.report.counts.equal for each in mirrors) == 5
    # there is space again, for either
    for looker in mirrors:
        looker.on_response(answered(request(1.0), tensor(1.0)))
        await settled(looker)
    assert sum(each.report.counts.equal for each in mirrors) == 7
    for each in mirrors:
        await each.close()


async def test_bytes_are_limited_in_both(processes: Processes) -> None:
    model = Model()
    model.open.clear()
    one, other = processes.mirrors(model, max_queue_bytes=40)
    # 4 bytes asked and 4 answered; then 16 and 16
    one.on_response(answered(request(1.0), tensor(1.0)))
    other.on_response(answered(request(1.0, 2.0, 3.0, 4.0), tensor(1.0, 2.0, 3.0, 4.0)))
    # a mirror copies what it has seen in the next turn
    await asyncio.sleep(0.01)
    one.on_response(answered(request(1.0), tensor(1.0)))
    await asyncio.sleep(0.01)
    assert (one.report.held_bytes, other.report.held_bytes, one.report.dropped) == (8, 32, {"queue": 1})
    model.open.set()
    for each in (one, other):
        await settled(each)
        await each.close()


async def test_what_an_exited_process_had_is_free(processes: Processes) -> None:
    stuck, model = Model(), Model()
    stuck.open.clear()
    (one, _), (_, other) = (
        processes.mirrors(each, max_concurrency=1, max_queue_requests=2) for each in (stuck, model)
    )
    one.on_response(answered(request(1.0), tensor(1.0)))
    other.on_response(answered(request(1.0), tensor(1.0)))
    other.on_response(answered(request(1.0), tensor(1.0)))
    await asyncio.sleep(0.05)
    assert (len(stuck.asked), len(model.asked), other.report.dropped) == (1, 0, {"queue": 1})
    processes.owner.exited(0)
    await settled(other)
    assert other.report.counts.equal == 1
    other.on_response(answered(request(1.0), tensor(1.0)))
    await settled(other)
    assert other.report.counts.equal == 2
    stuck.open.set()
    for each in (one, other):
        await each.close()


def sequence(length: int, id_: int | str = 7) -> list[InferRequest]:
    places = [Sequence(id_, place == 0, place == length - 1) for place in range(length)]
    return [request(float(number), sequence=place) for number, place in enumerate(places)]


async def test_a_sequence_that_comes_to_both_is_copied_in_order(processes: Processes) -> None:
    model = Model()
    mirrors = processes.mirrors(model)
    for id_ in (7, "seven"):
        model.asked.clear()
        steps = sequence(5, id_)
        looking = [mirrors[place % 2] for place in range(5)]
        assert all(each.should_observe(step) for each, step in zip(looking, steps, strict=True))
        for place in (2, 0, 3, 1, 4):  # however the answers come
            looking[place].on_response(answered(steps[place], tensor(float(place))))
        for each in mirrors:
            await settled(each)
        assert [asked.inputs[0].numpy()[0] for asked in model.asked] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert sum(each.report.counts.equal for each in mirrors) == 10
    # which the second could not know of the first one
    assert not mirrors[1].should_observe(request(1.0, sequence=Sequence(7)))
    for each in mirrors:
        await each.close()


async def test_what_follows_a_failed_copy_is_dropped_in_both(processes: Processes) -> None:
    model = Model(lambda asked: GONE if len(model.asked) == 2 else InferResponse("other", (tensor(0.0),)))
    mirrors = processes.mirrors(model)
    steps = sequence(5)
    for place, step in enumerate(steps[:4]):
        assert mirrors[place % 2].should_observe(step)
        mirrors[place % 2].on_response(answered(step, tensor(0.0)))
    for each in mirrors:
        await settled(each)
    assert len(model.asked) == 2
    assert sum(each.report.dropped["sequence"] for each in mirrors) == 2
    assert not any(each.should_observe(steps[4]) for each in mirrors)
    # the next one of that id is another
    start, end = sequence(2)
    assert mirrors[1].should_observe(start)
    assert mirrors[0].should_observe(end)
    for each in mirrors:
        await each.close()


async def test_a_sequence_ends_with_a_front_end_that_has_a_part_of_it(processes: Processes) -> None:
    model = Model()
    one, other = processes.mirrors(model)
    steps = sequence(4)
    assert one.should_observe(steps[0])
    one.on_response(answered(steps[0], tensor(0.0)))
    await settled(one)
    assert other.should_observe(steps[1])
    assert one.should_observe(steps[2])
    processes.owner.exited(0)
    await asyncio.sleep(0.01)
    other.on_response(answered(steps[1], tensor(1.0)))
    await settled(other)
    assert (len(model.asked), other.report.dropped) == (1, {"sequence": 1})
    assert not other.should_observe(steps[3])
    await other.close()


async def test_the_limits_of_a_recording_hold_in_both(processes: Processes, tmp_path: Path) -> None:
    keep = KeepOptions(path=str(tmp_path / "pairs"), different=4, equal=1)
    mirrors = processes.mirrors(Model(), keep=keep, max_concurrency=1, max_queue_requests=9)
    for number, looker in zip(range(40), of_both(mirrors), strict=False):
        right = tensor(1.0) if number // 2 % 4 else tensor(3.0)
        looker.on_response(answered(request(1.0, id=str(number)), right))
        await settled(looker)
    for each in mirrors:
        await each.close()
    kept = [each.report.counts.kept for each in mirrors]
    assert sum(each.get("different", 0) for each in kept) == 4
    assert sum(each.get("equal", 0) for each in kept) == 1
    with RecordingReader(tmp_path / "pairs") as reader:
        # as one process does: the first half at once, then one at each doubling, whichever process has it
        assert [record.request.id for record in reader] == ["0", "1", "2", "9", "25"]


async def test_one_front_end_with_all_requests_may_record_all(processes: Processes, tmp_path: Path) -> None:
    keep = KeepOptions(path=str(tmp_path / "pairs"), different=4, equal=6, max_bytes=1 << 20)
    one, other = processes.mirrors(Model(), keep=keep, max_concurrency=1, max_queue_requests=9)
    for number in range(8):
        one.on_response(answered(request(1.0, id=str(number)), tensor(1.0)))
        await settled(one)
    assert one.report.counts.kept == {"equal": 4}
    await one.close()
    # what is recorded stays so after its process, in either way
    processes.rows[0].mirror_process_exited()
    processes.owner.slots = {("", 0): 5}
    processes.owner.exited(0)
    for number in range(8, 40):
        other.on_response(answered(request(1.0, id=str(number)), tensor(1.0)))
        await settled(other)
    assert other.report.counts.kept == {"equal": 2}
    await other.close()


def test_a_new_mirror_has_recorded_nothing() -> None:
    owner = MirrorsOwner(1, parse(CONFIG % ROUTE % "a"))
    (slot,) = owner.slots.values()
    counts = [owner._own.count(column) for column in kept_columns(slot)]
    for count in counts:
        count.add(7)
    for _ in range(SLOTS):
        (again,) = owner.slots_of(parse(CONFIG % ROUTE % "b")).values()
    assert again == slot
    assert [count.total() for count in counts] == [0] * len(counts)
    owner.close()


def test_a_mirror_that_stays_keeps_its_slot() -> None:
    def config(*models: str) -> Any:
        return parse(CONFIG % ", ".join(ROUTE % model for model in models))

    owner = MirrorsOwner(2, config("a", "b", "b"))
    assert list(owner.slots.values()) == [0, 1, 2]
    found = owner.slots_of(config("c", "b", "a", "b"))
    assert list(found.values()) == [3, 1, 0, 2]
    # the reload was refused
    assert list(owner.slots_of(config("b")).values()) == [1]
    owner.close()
