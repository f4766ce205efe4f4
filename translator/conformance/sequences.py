"""Rules for sequences: requests to one model with one sequence id, from a start to an end.

They apply to models with ``sequence_batching`` in their configuration. The other rules send sequences of one
request to these. Every sequence started here is also ended: an open one blocks others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from hypothesis import strategies as st

from interlingua.schemas import InferResponse, Tensor
from interlingua.schemas import Sequence as Place
from interlingua.translator.conformance.check import Draw, Group
from interlingua.translator.conformance.comparison import expect_same
from interlingua.translator.conformance.errors import skip_if
from interlingua.translator.conformance.exchange import WireExchange
from interlingua.translator.conformance.server import ServerUnderTest
from interlingua.translator.conformance.values import distinct, inputs, usual
from interlingua.translator.conformance.wire import Mistake

SEQUENCES = Group("sequences", infers=True)

Inputs = tuple[Tensor, ...]

_LONGEST = 4


class _Sequence:
    """The client side of one sequence with the id ``number``."""

    def __init__(self, server: ServerUnderTest, number: int) -> None:
        self._server = server
        self.number = number
        self.open = False

    def exchange(self, given: Inputs, *, start: bool = False, end: bool = False) -> WireExchange:
        """Send a request of the sequence; it may fail."""
        self.open = (self.open or start) and not end
        return _exchange(self._server, Place(self.number, start, end), given)

    def answer(self, given: Inputs, *, start: bool = False, end: bool = False) -> InferResponse:
        """The answer to a request of the sequence that must succeed."""
        exchange = self.exchange(given, start=start, end=end)
        return self._server.judged(self._server.request(given), exchange)


@SEQUENCES("A request of a sequence without a start is refused.")
def start_needed(server: ServerUnderTest, draw: Draw) -> None:
    _sequential(server)
    place = Place(server.fresh(), end=draw(st.booleans()))
    exchange = _exchange(server, place, distinct(server.known, 1))
    server.refuses(exchange, Mistake.INVALID, "a request of a sequence without a start")


@SEQUENCES("A request without the id of a sequence, or with the id 0, is refused.")
def id_needed(server: ServerUnderTest, draw: Draw) -> None:
    _sequential(server)
    place = draw(st.sampled_from((None, Place(0, start=True, end=True))))
    exchange = _exchange(server, place, distinct(server.known, 1))
    what = "a request without the id of a sequence" if place is None else "the id 0 of a sequence"
    server.refuses(exchange, Mistake.INVALID, what)


@SEQUENCES("After its end, a sequence needs a new start.")
def ended(server: ServerUnderTest, draw: Draw) -> None:
    steps = _steps(server, draw)
    with _sequence(server, server.fresh()) as one:
        _run(one, steps)
        exchange = one.exchange(steps[-1])
        server.refuses(exchange, Mistake.INVALID, "a request after the end of its sequence")


@SEQUENCES("The same sequence, sent again, gets the same answers.")
def same_again(server: ServerUnderTest, draw: Draw) -> None:
    steps, number = _steps(server, draw), server.fresh()
    for first, second in zip(_whole(server, number, steps), _whole(server, number, steps), strict=True):
        expect_same(server, first, second, "the same sequence got other answers")


@SEQUENCES("A start resets the sequence of its id.")
def restarted(server: ServerUnderTest, draw: Draw) -> None:
    before, steps = draw(inputs(server.known, usual)), _steps(server, draw)
    number = server.fresh()
    right = _whole(server, number, steps)
    with _sequence(server, number) as one:
        one.answer(before, start=True)
        for first, second in zip(right, _run(one, steps), strict=True):
            expect_same(server, first, second, "after a restart, the sequence gets other answers")


@SEQUENCES("Interleaved sequences do not affect each other.")
def apart(server: ServerUnderTest, draw: Draw) -> None:
    _sequential(server)
    skip_if(_places(server) < 2, "the model runs one sequence at a time")
    steps = [_steps(server, draw) for _ in range(2)]
    numbers = [server.fresh() for _ in steps]
    right = [_whole(server, number, each) for number, each in zip(numbers, steps, strict=True)]
    order = draw(st.permutations([at for at, each in enumerate(steps) for _ in each]))
    have: list[list[InferResponse]] = [[], []]
    with _sequence(server, numbers[0]) as one, _sequence(server, numbers[1]) as other:
        for at in order:
            place, last = len(have[at]), len(steps[at]) - 1
            sequence = (one, other)[at]
            have[at].append(sequence.answer(steps[at][place], start=not place, end=place == last))
            expect_same(
                server,
                right[at][place],
                have[at][place],
                "interleaved with another, a sequence gets other answers",
            )


def _sequential(server: ServerUnderTest) -> None:
    skip_if(not server.sequential, "the model takes no sequences, according to the server")


def _places(server: ServerUnderTest) -> int:
    """How many sequences the model runs at a time; others wait."""
    config = server.config
    instances = sum(max(group.count, 1) for group in config.instance_group) or 1
    batching = config.sequence_batching
    oldest = batching.WhichOneof("strategy_choice") == "oldest"
    each = batching.oldest.max_candidate_sequences if oldest else config.max_batch_size
    return int(instances * max(each, 1))


def _steps(server: ServerUnderTest, draw: Draw) -> list[Inputs]:
    """The inputs of the requests of a sequence, one row each."""
    _sequential(server)
    length = draw(st.integers(1, _LONGEST))
    return [draw(inputs(server.known, usual, 1)) for _ in range(length)]


def _exchange(server: ServerUnderTest, place: Place | None, given: Inputs) -> WireExchange:
    return server.infer(replace(server.request(given), sequence=place))


def _run(one: _Sequence, steps: Sequence[Inputs]) -> list[InferResponse]:
    last = len(steps) - 1
    return [one.answer(given, start=not at, end=at == last) for at, given in enumerate(steps)]


def _whole(server: ServerUnderTest, number: int, steps: Sequence[Inputs]) -> list[InferResponse]:
    """The answers to a sequence without interference."""
    with _sequence(server, number) as one:
        return _run(one, steps)


@contextmanager
def _sequence(server: ServerUnderTest, number: int) -> Iterator[_Sequence]:
    """A sequence that is ended on exit. Comparisons reuse the id: the model may depend on it."""
    one = _Sequence(server, number)
    try:
        yield one
    finally:
        if one.open:
            last = server.last
            one.exchange(distinct(server.known, 1), end=True)
            server.last = last
