"""A message that passes through has the same effect as one that is decoded and encoded, on every wire: what
the caller gets, what the server gets, and which messages are refused."""

from __future__ import annotations

import asyncio
import atexit
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.wire import HttpRequest
from interlingua.schemas import Datatype, InferenceError, InferRequest, InferResponse, Signature, Tensor
from tests.properties.passing import MODEL, PASSING, Bridge, Outcome, damaged, with_bytes
from tests.strategies import carried, carried_batches, common, requests, responses, signature_of

Wire = tuple[str, str]

wires = pytest.mark.parametrize("wire", PASSING, ids="/".join)
unhurried = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)

# a loop for each example would take half of the time
_LOOP = asyncio.Runner()
atexit.register(_LOOP.close)


@cache
def capability(wire: Wire) -> Any:
    return common(DIALECTS[wire[0]].bindings[wire[1]].capability)


@st.composite
def exchanges(draw: st.DrawFn, wire: Wire, *, strings: bool = True) -> tuple[Bridge, InferRequest, Any]:
    """A bridge, a request, and the response of the upstream, in its names; ``strings`` allows BYTES."""
    can = capability(wire)
    if not strings:
        can = replace(can, exact=can.exact - {Datatype.BYTES})
    batched = draw(st.booleans())
    inputs, outputs = draw(carried_batches(can) if batched else st.tuples(carried(can), carried(can)))
    signature = signature_of(inputs, outputs, max_batch_size=4 if batched else 0)
    fields = draw(st.booleans())
    request = (
        draw(requests(can, st.just(inputs), outputs))
        if fields
        else InferRequest(MODEL, inputs, id=draw(st.sampled_from(["", "7"])) if can.ids else "")
    )
    renames = draw(st.booleans())
    bridge = Bridge(
        wire,
        signature,
        {spec.name: f"there {spec.name}" for spec in signature.inputs} if renames else {},
        {spec.name: f"there {spec.name}" for spec in signature.outputs} if renames else {},
        draw(st.sampled_from([MODEL, "other"])),
    )
    response = (
        draw(responses(can, outputs)) if fields else InferResponse(MODEL, outputs, "3" * can.answer_versions)
    )
    names = {each.name for each in request.outputs or ()}
    chosen = [each for each in outputs if not names or each.name in names]
    theirs = tuple(each.renamed(bridge.outputs.get(each.name, each.name)) for each in chosen)
    if wire[0] == "graphpipe":
        # its servers get a request for every output
        theirs = tuple(each.renamed(bridge.outputs.get(each.name, each.name)) for each in outputs)
    return bridge, request, replace(response, model=bridge.remote, outputs=theirs, id=request.id)


def both(bridge: Bridge, message: Any, reply: Any, request: InferRequest) -> Outcome:
    """The outcome of passing; asserts that decoding has the same."""
    passed, decoded = (_LOOP.run(bridge.ask(message, reply, passing=passing)) for passing in (True, False))
    assert not decoded.passed
    bridge.agreed(request, passed, decoded)
    return passed


@wires
@unhurried
@given(data=st.data())
def test_both_ways_agree(wire: Wire, data: st.DataObject) -> None:
    bridge, request, response = data.draw(exchanges(wire))
    reply = bridge.reply(_every_output(bridge, request), response)
    both(bridge, bridge.message(request), reply, request)


@wires
@unhurried
@given(data=st.data())
def test_both_ways_agree_on_damaged_requests(wire: Wire, data: st.DataObject) -> None:
    bridge, request, response = data.draw(exchanges(wire, strings=False))
    reply = bridge.reply(_every_output(bridge, request), response)
    spoilt = with_bytes(bridge.message(request), lambda body: data.draw(damaged(body)))
    if isinstance(spoilt, HttpRequest):
        spoilt.headers = {name: data.draw(_headers(value)) for name, value in spoilt.headers.items()}
    both(bridge, spoilt, reply, request)


@wires
@unhurried
@given(data=st.data())
def test_both_ways_agree_on_damaged_answers(wire: Wire, data: st.DataObject) -> None:
    bridge, request, response = data.draw(exchanges(wire, strings=False))
    reply = bridge.reply(_every_output(bridge, request), response)
    reply = with_bytes(reply, lambda body: data.draw(damaged(body)))
    if wire[1] == "http":
        headers = {name: data.draw(_headers(value)) for name, value in reply.headers.items()}
        reply = replace(reply, headers=headers, status=data.draw(st.sampled_from([200, 200, 200, 400, 500])))
    both(bridge, bridge.message(request), reply, request)


@wires
@unhurried
@given(data=st.data())
def test_observers_get_the_same(wire: Wire, data: st.DataObject) -> None:
    bridge, request, response = data.draw(exchanges(wire))
    reply = bridge.reply(_every_output(bridge, request), response)
    if data.draw(st.booleans()):
        reply = with_bytes(reply, lambda body: body[: data.draw(st.integers(0, len(body)))])
    message = bridge.message(request)
    passed, decoded = (
        _LOOP.run(bridge.ask(message, reply, passing=passing, observed=True)) for passing in (True, False)
    )
    assert passed.observed == decoded.observed and len(decoded.observed) <= 1
    bridge.agreed(request, passed, decoded)


@wires
@unhurried
@given(data=st.data())
def test_both_ways_agree_on_other_answers(wire: Wire, data: st.DataObject) -> None:
    """Outputs in another order, missing, more, of another datatype or shape, under other names."""
    bridge, request, response = data.draw(exchanges(wire))
    can = capability(wire)
    outputs = list(response.outputs)
    for _ in range(data.draw(st.integers(1, 2))):
        change = data.draw(st.sampled_from(["reverse", "drop", "add", "replace", "rename", "id"]))
        place = data.draw(st.integers(0, max(len(outputs) - 1, 0)))
        if change == "reverse":
            outputs.reverse()
        elif change == "drop":
            del outputs[place : place + 1]
        elif change == "add":
            outputs.insert(place, data.draw(carried(can, max_size=1))[0])
        elif change == "id":
            response.id = "8" if can.ids else ""
        elif outputs:
            (other,) = data.draw(carried(can, max_size=1))
            name = other.name if change == "rename" else outputs[place].name
            outputs[place] = other.renamed(name)
    asked = _every_output(bridge, request)
    try:
        reply = _bridge_for(bridge, outputs).reply(
            replace(asked, outputs=None), replace(response, outputs=tuple(outputs))
        )
    except InferenceError:
        return  # no server of this dialect can say that
    both(bridge, bridge.message(request), reply, request)


def _bridge_for(bridge: Bridge, outputs: list[Tensor]) -> Bridge:
    """A server whose model has these outputs."""
    signature = bridge.remote_signature
    theirs = signature_of((), outputs, max_batch_size=signature.max_batch_size).outputs
    return Bridge(bridge.wire, Signature(signature.inputs, theirs, signature.max_batch_size))


def _every_output(bridge: Bridge, request: InferRequest) -> InferRequest:
    """The request as the upstream gets it."""
    request = bridge.renamed(request)
    return replace(request, outputs=None) if bridge.wire[0] == "graphpipe" else request


def _headers(value: str) -> st.SearchStrategy[str]:
    numbers = st.integers(0, 300).map(str)
    return st.just(value) | st.just(value) | numbers | st.text(st.characters(max_codepoint=126), max_size=3)


@wires
def test_a_usual_message_passes(wire: Wire) -> None:
    tensor = Tensor.checked("x", Datatype.FP32, (1, 4), bytes(range(16)))
    signature = signature_of([tensor], [tensor.renamed("y")])
    request = InferRequest(MODEL, (tensor,))
    response = InferResponse(MODEL, (tensor.renamed("y"),), "3")
    bridge = Bridge(wire, signature)
    outcome = both(bridge, bridge.message(request), bridge.reply(request, response), request)
    assert outcome.passed
