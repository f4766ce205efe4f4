"""Sequences of any requests, each like the one before it but for some changes: answered by plans as without."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlingua.schemas import Datatype, InferenceError, Tensor
from tests.differential.calls import BINDINGS, Call, Kit, tensor
from tests.differential.pair import pair
from tests.differential.running import Running, running
from tests.differential.scenarios import reconnects, usual
from tests.differential.table import LOCAL, WITHOUT_PLANS, targets
from tests.differential.world import Do, Step

_PAIRS = [
    (caller, target)
    for caller in BINDINGS
    for target in targets(caller)
    if (caller, target) not in WITHOUT_PLANS
]

_EXAMPLES = max(4, settings.get_profile("untimed").max_examples // 12)
"""Of each pair: about 5,000 requests in ``make test``, with and without plans, and 100,000 in ``make properties``."""

_names = st.sampled_from(["a", "b", "c", "aa", ""])
_datatypes = st.sampled_from([Datatype.FP32, Datatype.INT32, Datatype.INT64, Datatype.UINT8])
_ids = st.sampled_from(
    ["", "1", "2", "10", "abc", "abd", "Ab_", "m:1", 'a"b', "\\", "é", *(each * 40 for each in "xyz")]
)
_headers = st.lists(
    st.tuples(
        st.sampled_from(["x-request-id", "x-other", "traceparent", "authorization"]),
        st.sampled_from(["1", "2", "12", "00-0af7651916cd43dd8448eb211c803100-b7ad6b7169203331-01"]),
    ),
    max_size=2,
    unique_by=lambda pair: pair[0],
)


@st.composite
def _tensors(draw: st.DrawFn, name: str | None = None, datatype: Datatype | None = None) -> Tensor:
    kind = datatype or draw(_datatypes)
    shape = draw(st.lists(st.integers(0, 3), min_size=1, max_size=2))
    size = kind.itemsize
    for each in shape:
        size *= each
    data = draw(st.binary(min_size=size, max_size=size) | st.just(b"\xff" * size) | st.just(bytes(size)))
    return tensor(name or draw(_names), kind, shape, data)


@dataclass(frozen=True)
class _Request:
    inputs: tuple[Tensor, ...]
    id: str = ""
    model: str = "m"
    headers: tuple[tuple[str, str], ...] = ()
    cut: int = 0
    again: bool = False


_FIRST = _Request((tensor("a", Datatype.FP32, (1, 2), bytes(8)), tensor("b", Datatype.INT32, (2,), bytes(8))))


@st.composite
def _changed(draw: st.DrawFn, request: _Request) -> _Request:
    """``request`` with a change, or with other contents."""
    match draw(st.integers(0, 9)):
        case 0:
            return replace(request, id=draw(_ids))
        case 1:
            return replace(request, headers=tuple(draw(_headers)))
        case 2:
            return replace(request, inputs=tuple(draw(st.permutations(request.inputs))))
        case 3:
            return replace(request, inputs=tuple(draw(st.lists(_tensors(), max_size=3))))
        case 4:
            return replace(request, model=draw(st.sampled_from(["m", "n", "unknown"])))
        case 5:
            return replace(request, cut=draw(st.integers(0, 40)))
        case 6:
            return replace(request, again=not request.again)
        case 7:
            return _FIRST
    inputs = [
        replace(each, data=memoryview(draw(st.binary(min_size=len(each.view), max_size=len(each.view)))))
        for each in request.inputs
    ]
    return replace(request, inputs=tuple(inputs), cut=0)


@st.composite
def _sequences(draw: st.DrawFn) -> list[_Request]:
    found = [_FIRST]
    for _ in range(draw(st.integers(4, 12))):
        found.append(draw(_changed(found[-1])))
    return found


def _calls(kit: Kit, requests: list[_Request]) -> list[Step]:
    """Those that the dialect can express, after some that repeat."""
    steps: list[Step] = [Do(reconnects), *usual(kit, 3)]
    for each in requests:
        try:
            call: Call = kit.call(each.inputs, id=each.id, model=each.model)
        except (InferenceError, ValueError):
            continue
        call = call.having(*each.headers)
        if each.cut:
            call = call.containing(call.body[: -each.cut])
        steps += [call, call] if each.again else [call]
    return steps


@pytest.fixture(scope="module")
def world() -> Iterator[Running]:
    with running() as made:
        yield made


@pytest.mark.hypothesis
@pytest.mark.parametrize(("caller", "target"), _PAIRS)
def test_any_requests(caller: str, target: str, world: Running) -> None:
    world.taken.clear()
    with pair(world, caller, target) as worlds:

        @settings(max_examples=_EXAMPLES)
        @given(_sequences())
        def holds(requests: list[_Request]) -> None:
            planned, unplanned = worlds.play(_calls(Kit.of(caller), requests))
            assert planned == unplanned

        holds()
    assert world.taken


def test_what_takes_plans_locally() -> None:
    """Every dialect does over some transport."""
    assert {caller.split("/")[0] for caller, target in _PAIRS if target == LOCAL} == {
        each.split("/")[0] for each in BINDINGS
    }
