"""Which requests make a batch, and how long it waits for more."""

import asyncio

import pytest

from interlingua.runtime.scheduling.forming import Rules, choose
from interlingua.runtime.scheduling.policy import DynamicBatching
from interlingua.runtime.scheduling.queue import Entry
from interlingua.schemas import InferRequest

MS = 1_000_000


def entries(*each: tuple[object, int]) -> list[Entry]:
    """Entries of a key and a number of rows; they arrived at 0."""
    answer: asyncio.Future[object] = asyncio.Future(loop=asyncio.new_event_loop())
    answer.get_loop().close()
    request = InferRequest("m", ())
    return [Entry(request, (), (), rows, key, 0, answer) for key, rows in each]


def chosen(
    waiting: list[Entry], batching: DynamicBatching, now: int = 0, room: int = 100, most: int = 8
) -> tuple[list[int], int]:
    taken, wait_ns = choose(waiting, Rules.of(batching, most), room, now)
    return [waiting.index(entry) for entry in taken], wait_ns


A, B = "a", "b"
PLAIN = DynamicBatching()
DELAY = DynamicBatching(max_delay_us=1000)
PREFERRED = DynamicBatching(preferred_sizes=(4, 2), max_delay_us=1000)
PREFERRED_NOW = DynamicBatching(preferred_sizes=(4,))
ORDERED = DynamicBatching(preserve_ordering=True)


@pytest.mark.parametrize(
    ("waiting", "batching", "expected"),
    [
        ([], PLAIN, ([], 0)),
        ([(A, 1)], PLAIN, ([0], 0)),
        ([(A, 1)] * 10, PLAIN, (list(range(8)), 0)),
        ([(A, 5), (A, 3), (A, 1)], PLAIN, ([0, 1], 0)),
        ([(A, 5), (A, 4), (A, 1)], PLAIN, ([0], 0)),
        # nobody meets another key, or without one
        ([(A, 1), (B, 1), (A, 2)], PLAIN, ([0, 2], 0)),
        ([(A, 1), (B, 1), (A, 2)], ORDERED, ([0], 0)),
        ([(None, 1), (None, 1)], PLAIN, ([0], 0)),
        ([(A, 1), (None, 1), (A, 1)], PLAIN, ([0, 2], 0)),
        # waiting for more
        ([(A, 1), (A, 1)], DELAY, ([0, 1], MS)),
        ([(A, 7), (A, 1)], DELAY, ([0, 1], 0)),
        ([(A, 7), (A, 2)], DELAY, ([0], 0)),
        ([(A, 1), (B, 1)], DELAY, ([0], 0)),
        ([(None, 1)], DELAY, ([0], 0)),
        # preferred sizes
        ([(A, 1)], PREFERRED, ([0], MS)),
        ([(A, 1)] * 2, PREFERRED, ([0, 1], 0)),
        ([(A, 1)] * 3, PREFERRED, ([0, 1], 0)),
        ([(A, 1)] * 7, PREFERRED, ([0, 1, 2, 3], 0)),
        ([(A, 3), (A, 3)], PREFERRED, ([0], 0)),
        ([(A, 5)], PREFERRED, ([0], 0)),
        ([(A, 3)], PREFERRED_NOW, ([0], 0)),
        ([(A, 1)] * 6, PREFERRED_NOW, ([0, 1, 2, 3], 0)),
    ],
)
def test_what_runs_next(waiting, batching, expected) -> None:
    assert chosen(entries(*waiting), batching) == expected


def test_a_batch_that_has_waited_enough_takes_all() -> None:
    waiting = entries(*[(A, 1)] * 3)
    assert chosen(waiting, PREFERRED, now=MS) == ([0, 1, 2], 0)
    assert chosen(waiting[:1], DELAY, now=MS - 1) == ([0], 1)
    waiting[2].arrived = -MS
    assert chosen(waiting, DELAY) == ([0, 1, 2], 0), "the oldest counts, whatever its place"


def test_a_place_has_room_for_so_many() -> None:
    assert chosen(entries(*[(A, 1)] * 5), DELAY, room=3) == ([0, 1, 2], 0)


def test_the_search_is_bounded() -> None:
    waiting = entries((A, 1), *[(B, 1)] * 100, (A, 1))
    assert chosen(waiting, PLAIN) == ([0], 0)
