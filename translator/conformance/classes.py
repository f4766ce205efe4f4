"""Rules for classification: the highest elements of an output instead of the output, with indices and labels.

The expected classes are computed from the whole output, requested separately. Equal elements may come in any
order: the protocols do not define one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from interlingua.protocols.classification import Ranked, check_ranked
from interlingua.schemas import Datatype, InferenceError, InferRequest, RequestedOutput, TensorSpec
from interlingua.translator.conformance.check import Draw, Group
from interlingua.translator.conformance.comparison import expect_same
from interlingua.translator.conformance.errors import InapplicableError, ViolationError, expect, skip_if
from interlingua.translator.conformance.exchange import WireExchange
from interlingua.translator.conformance.server import ServerUnderTest
from interlingua.translator.conformance.values import distinct, inputs, usual
from interlingua.translator.conformance.wire import Mistake, Ranking

CLASSES = Group("classification", infers=True)

_TOLERANCE = 2e-6
"""Values are sent as 32-bit floats or with six decimals."""

_MOST = 6


@CLASSES("A request for k classes gets the k highest elements, or all: highest first, each with its index.")
def highest_first(server: ServerUnderTest, draw: Draw) -> None:
    spec = draw(st.sampled_from(_ranked(server)))
    given = draw(inputs(server.known, usual))
    raw = {tensor.name: tensor for tensor in server.answer(server.request(given)).outputs}
    values = raw[spec.name].numpy()
    entries = len(values) if server.known.max_batch_size else 1
    rows = values.reshape(entries, -1)
    count = draw(st.integers(1, min(rows.shape[1] + 2, _MOST)))
    exchange, ranking = _exchange(server, draw, server.request(given), {spec.name: count})
    found = ranking.classes.get(spec.name)
    if found is None:
        raise ViolationError(f"no classes of '{spec.name}'", exchange)
    expect(len(found) == entries, f"'{spec.name}': {len(found)} lists for {entries} entries", exchange)
    for entry, row in zip(found, rows, strict=True):
        _judge(f"'{spec.name}'", entry, row, count, exchange)


@CLASSES("An output is the same next to another one requested as classes.")
def beside_others(server: ServerUnderTest, draw: Draw) -> None:
    ranked = _ranked(server)
    skip_if(len(server.known.outputs) < 2, "there is only one output")
    spec = draw(st.sampled_from(ranked))
    others = [other.name for other in server.known.outputs if other.name != spec.name]
    given = draw(inputs(server.known, usual))
    names = draw(st.permutations([spec.name, *others]))
    right = server.answer(server.request(given, others))
    exchange, ranking = _exchange(server, draw, server.request(given, names), {spec.name: 1})
    expect(list(ranking.classes) == [spec.name], f"classes of {list(ranking.classes)}", exchange)
    expect_same(server, right, ranking.response, f"next to the classes of '{spec.name}'")


@CLASSES("An element always has the same label.")
def labels(server: ServerUnderTest, draw: Draw) -> None:
    spec = draw(st.sampled_from(_ranked(server)))
    known: dict[int, str] = {}
    for _ in range(2):
        request = server.request(draw(inputs(server.known, usual)))
        exchange, ranking = _exchange(server, draw, request, {spec.name: _MOST})
        for ranked in (ranked for entry in ranking.classes.get(spec.name, ()) for ranked in entry):
            label = known.setdefault(ranked.place, ranked.label)
            what = f"the label of element {ranked.place} was {label!a}, now {ranked.label!a}"
            expect(ranked.label == label, what, exchange)


@CLASSES("Classes of an output whose elements have no order are refused.", once=True)
def unordered(server: ServerUnderTest, draw: Draw) -> None:
    _forms(server)
    # not BYTES, which crash some servers
    kinds = (Datatype.BOOL, Datatype.FP16, Datatype.BF16)
    spec = next((spec for spec in server.known.outputs if spec.datatype in kinds), None)
    if spec is None:
        raise InapplicableError("no output is of BOOL, FP16 or BF16")
    request = _with_classes(server.request(distinct(server.known, 1), [spec.name]), {spec.name: 1})
    call = server.wire.classes[_forms(server)[0]]
    server.refuses(server.exchange(call, request), Mistake.INVALID, f"classes of {spec.datatype.value}")


def _forms(server: ServerUnderTest) -> list[str]:
    """The forms of requests for classes. Raises ``InapplicableError`` if there are none."""
    skip_if(not server.wire.classes, "the dialect has no classes")
    skip_if(not server.has("classes"), "the server does not list classification")
    return [form for form in server.forms if form in server.wire.classes]


def _ranked(server: ServerUnderTest) -> list[TensorSpec]:
    """The outputs that have classes."""
    _forms(server)
    found = [spec for spec in server.known.outputs if _has_order(spec)]
    skip_if(not found, "the elements of the outputs have no order")
    return found


def _has_order(spec: TensorSpec) -> bool:
    try:
        check_ranked(spec.name, spec.datatype)
    except InferenceError:
        return False
    return True


def _with_classes(request: InferRequest, counts: dict[str, int]) -> InferRequest:
    """``request`` with classes instead of the outputs in ``counts``; only those outputs if it selects
    none."""
    names = list(counts) if request.outputs is None else [output.name for output in request.outputs]
    return replace(request, outputs=tuple(RequestedOutput(name, counts.get(name, 0)) for name in names))


def _exchange(
    server: ServerUnderTest, draw: Draw, request: InferRequest, counts: dict[str, int]
) -> tuple[WireExchange, Ranking]:
    request = _with_classes(request, counts)
    form = draw(st.sampled_from(_forms(server)))
    exchange = server.exchange(server.wire.classes[form], request)
    ranking = exchange.result
    if not isinstance(ranking, Ranking):
        text = exchange.error.message if exchange.error is not None else ""
        raise ViolationError(f"a good request for classes got none: {text}", exchange)
    server.wire.check_answer(request, replace(exchange, result=ranking.response))
    return exchange, ranking


def _judge(what: str, found: Sequence[Ranked], row: NDArray[Any], count: int, exchange: WireExchange) -> None:
    """Require that ``found`` are the ``count`` highest elements of ``row``, in order."""
    right = min(count, row.size)
    expect(len(found) == right, f"{what}: {len(found)} classes, requested {count} of {row.size}", exchange)
    places = [ranked.place for ranked in found]
    expect(len(set(places)) == len(places), f"{what}: the places {places} of classes", exchange)
    expect(all(0 <= place < row.size for place in places), f"{what}: the places {places}", exchange)
    wide = row.astype(np.float64)
    skip_if(np.isnan(wide).any(), "NaN has no rank")
    for ranked in found:
        have, want = float(ranked.value), float(wide[ranked.place])
        close = have == want or abs(have - want) <= _TOLERANCE * max(abs(want), 1)
        expect(close, f"{what}: the element at {ranked.place} is {want}, but the class has {have}", exchange)
    chosen = wide[places]
    expect(
        bool((chosen[:-1] >= chosen[1:]).all()), f"{what}: {chosen.tolist()} is not highest first", exchange
    )
    left = np.delete(wide, places)
    if left.size and chosen.size:
        expect(
            chosen.min() >= left.max(),
            f"{what}: {left.max()} is higher than {chosen.min()}, which is in the classes",
            exchange,
        )
