"""Rules for sequences: requests to one model with one sequence id, from a start to an end.

They apply to models with ``sequence_batching`` in their configuration. The other rules send sequences of one
request to these. Every sequence started here is also ended: an open one blocks others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from hypothesis import strategies as st

from interlingua.schemas import InferResponse, Tensor
from interlingua.schemas import Sequence as Place
from interlingua.translator.conformance.check import Draw, Group, InapplicableError
from interlingua.translator.conformance.comparison import expect_same
from interlingua.translator.conformance.exchange import Exchange
from interlingua.translator.conformance.subject import Subject
from interlingua.translator.conformance.values import distinct, inputs, usual
from interlingua.translator.conformance.wire import Mistake

SEQUENCES = Group("sequences", asks=True)

Inputs = tuple[Tensor, ...]

_LONGEST = 4


class _Sequence:
    """The client side of one sequence with the id ``number``."""

    def __init__(self, subject: Subject, number: int) -> None:
        self._subject = subject
        self.number = number
        self.open = False

    def ask(self, given: Inputs, *, start: bool = False, end: bool = False) -> Exchange:
        """Send a request of the sequence; it may fail."""
        self.open = (self.open or start) and not end
        return _asked(self._subject, Place(self.number, start, end), given)

    def answer(self, given: Inputs, *, start: bool = False, end: bool = False) -> InferResponse:
        """The answer to a request of the sequence that must succeed."""
        exchange = self.ask(given, start=start, end=end)
        return self._subject.judged(self._subject.request(given), exchange)


@SEQUENCES("A request of a sequence without a start is refused.")
def start_needed(subject: Subject, draw: Draw) -> None:
    _sequential(subject)
    place = Place(subject.fresh(), end=draw(st.booleans()))
    exchange = _asked(subject, place, distinct(subject.known, 1))
    subject.refuses(exchange, Mistake.INVALID, "a request of a sequence that nobody has begun")


@SEQUENCES("A request without the id of a sequence, or with the id 0, is refused.")
def id_needed(subject: Subject, draw: Draw) -> None:
    _sequential(subject)
    place = draw(st.sampled_from((None, Place(0, start=True, end=True))))
    exchange = _asked(subject, place, distinct(subject.known, 1))
    what = "a request without the id of a sequence" if place is None else "the id 0 of a sequence"
    subject.refuses(exchange, Mistake.INVALID, what)


@SEQUENCES("After its end, a sequence needs a new start.")
def ended(subject: Subject, draw: Draw) -> None:
    steps = _steps(subject, draw)
    with _sequence(subject, subject.fresh()) as one:
        _run(one, steps)
        exchange = one.ask(steps[-1])
        subject.refuses(exchange, Mistake.INVALID, "a request after the end of its sequence")


@SEQUENCES("The same sequence, sent again, gets the same answers.")
def same_again(subject: Subject, draw: Draw) -> None:
    steps, number = _steps(subject, draw), subject.fresh()
    for first, second in zip(_whole(subject, number, steps), _whole(subject, number, steps), strict=True):
        expect_same(subject, first, second, "the same sequence was answered otherwise")


@SEQUENCES("A start resets the sequence of its id.")
def begun_anew(subject: Subject, draw: Draw) -> None:
    before, steps = draw(inputs(subject.known, usual)), _steps(subject, draw)
    number = subject.fresh()
    right = _whole(subject, number, steps)
    with _sequence(subject, number) as one:
        one.answer(before, start=True)
        for first, second in zip(right, _run(one, steps), strict=True):
            expect_same(subject, first, second, "begun anew, a sequence is answered otherwise")


@SEQUENCES("Sequences whose requests come in turns do not touch each other.")
def apart(subject: Subject, draw: Draw) -> None:
    _sequential(subject)
    if _places(subject) < 2:
        raise InapplicableError("the model runs one sequence at a time")
    steps = [_steps(subject, draw) for _ in range(2)]
    numbers = [subject.fresh() for _ in steps]
    right = [_whole(subject, number, each) for number, each in zip(numbers, steps, strict=True)]
    order = draw(st.permutations([at for at, each in enumerate(steps) for _ in each]))
    have: list[list[InferResponse]] = [[], []]
    with _sequence(subject, numbers[0]) as one, _sequence(subject, numbers[1]) as other:
        for at in order:
            place, last = len(have[at]), len(steps[at]) - 1
            asked = (one, other)[at]
            have[at].append(asked.answer(steps[at][place], start=not place, end=place == last))
            expect_same(subject, right[at][place], have[at][place], "beside another, a sequence is another")


def _sequential(subject: Subject) -> None:
    if not subject.sequential:
        raise InapplicableError("the model takes no sequences, according to the server")


def _places(subject: Subject) -> int:
    """How many sequences the model runs at a time; others wait."""
    config = subject.config
    instances = sum(max(group.count, 1) for group in config.instance_group) or 1
    batching = config.sequence_batching
    oldest = batching.WhichOneof("strategy_choice") == "oldest"
    each = batching.oldest.max_candidate_sequences if oldest else config.max_batch_size
    return int(instances * max(each, 1))


def _steps(subject: Subject, draw: Draw) -> list[Inputs]:
    """The inputs of the requests of a sequence, one row each."""
    _sequential(subject)
    length = draw(st.integers(1, _LONGEST))
    return [draw(inputs(subject.known, usual, 1)) for _ in range(length)]


def _asked(subject: Subject, place: Place | None, given: Inputs) -> Exchange:
    return subject.infer(replace(subject.request(given), sequence=place))


def _run(one: _Sequence, steps: Sequence[Inputs]) -> list[InferResponse]:
    last = len(steps) - 1
    return [one.answer(given, start=not at, end=at == last) for at, given in enumerate(steps)]


def _whole(subject: Subject, number: int, steps: Sequence[Inputs]) -> list[InferResponse]:
    """The answers to a sequence without interference."""
    with _sequence(subject, number) as one:
        return _run(one, steps)


@contextmanager
def _sequence(subject: Subject, number: int) -> Iterator[_Sequence]:
    """A sequence that is ended on exit. Comparisons reuse the id: the model may depend on it."""
    one = _Sequence(subject, number)
    try:
        yield one
    finally:
        if one.open:
            last = subject.last
            one.ask(distinct(subject.known, 1), end=True)
            subject.last = last
