from __future__ import annotations

from itertools import islice

import pytest

from interlingua.schemas import Datatype, InferRequest, Tensor
from interlingua.translator.recording.pace import Pace, in_order
from interlingua.translator.recording.record import Record, RecordedAnswer


def record(began: int, size: int = 0) -> Record:
    inputs = (Tensor.checked("x", Datatype.UINT8, (size,), bytes(size)),)
    return Record(began, InferRequest("m", inputs), "oip", "here", RecordedAnswer("m"))


def test_requests_come_in_the_order_in_which_they_began() -> None:
    given = [record(began) for began in (3, 1, 2, 7, 5)]
    found = list(in_order(given))
    assert [each.began_unix_ns for _, each in found] == [1, 2, 3, 5, 7]
    assert [number for number, _ in found] == [2, 3, 1, 5, 4]


def test_what_is_looked_at_ahead_is_bounded() -> None:
    endless = (record(began) for began in iter(int, 1))
    assert len(list(islice(in_order(endless), 3))) == 3
    taken = 0

    def large() -> object:
        nonlocal taken
        while True:
            taken += 1
            yield record(taken, 20 << 20)

    next(iter(in_order(large())))  # type: ignore[arg-type]
    assert taken == 4


@pytest.mark.parametrize(
    ("pace", "due"),
    [
        (Pace(rate=10), [0.0, 0.1, 0.2]),
        (Pace(speed=2), [0.0, 1.0, 2.5]),
        (Pace(concurrency=3), [0.0, 0.0, 0.0]),
    ],
)
def test_when_requests_are_due(pace: Pace, due: list[float]) -> None:
    assert [pace.due_secs(place, secs) for place, secs in enumerate((0.0, 2.0, 5.0))] == pytest.approx(due)
    assert pace.is_open == (pace.concurrency is None)


def test_what_began_before_the_first_is_due_at_once() -> None:
    assert Pace(speed=1).due_secs(1, -0.5) == 0
