"""Rules for invalid requests: the server refuses them in the dialect's form and answers the next one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from interlingua.schemas import (
    Datatype,
    InferRequest,
    ModelRef,
    Operation,
    RequestedOutput,
    Tensor,
    element_count,
    pack_bytes,
)
from interlingua.translator.conformance.check import Draw, Group, InapplicableError
from interlingua.translator.conformance.server import ServerUnderTest, carried
from interlingua.translator.conformance.values import distinct
from interlingua.translator.conformance.wire import Mistake, expect

ABSENT = Group("absent")
"""Rules for unknown models; they need no answers of a known one."""

REFUSALS = Group("refusals", asks=True)

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789_"

_WORDS = st.text(_LETTERS, min_size=1, max_size=8).map("no_such_".__add__)
"""Names that no model or tensor has."""


@ABSENT("An unknown model is not found.")
def model(server: ServerUnderTest, draw: Draw) -> None:
    if not server.model:
        raise InapplicableError("the dialect names no models")
    request = replace(_good(server), model=draw(_WORDS), version="")
    server.refuses(server.infer(request), Mistake.UNKNOWN_MODEL)


@ABSENT("An unknown version is not found.")
def version(server: ServerUnderTest, draw: Draw) -> None:
    if not server.capability.versions or not server.model:
        raise InapplicableError("the dialect has no versions")
    request = replace(_good(server), version=str(draw(st.integers(10**6, 2**31 - 1))))
    server.refuses(server.infer(request), Mistake.UNKNOWN_VERSION)


@ABSENT("Metadata of an unknown model are refused.")
def metadata(server: ServerUnderTest, draw: Draw) -> None:
    if not server.model:
        raise InapplicableError("the dialect names no models")
    exchange = server.call(Operation.MODEL_METADATA, ModelRef(draw(_WORDS)))
    server.answered(exchange)
    expect(exchange.error is not None, "metadata of a model that is not there", exchange)


@ABSENT("An unknown model is not ready.")
def readiness(server: ServerUnderTest, draw: Draw) -> None:
    if not server.model or not server.capability.signatures:
        raise InapplicableError("the dialect has no readiness of models")
    exchange = server.call(Operation.MODEL_READY, ModelRef(draw(_WORDS)))
    server.answered(exchange)
    if exchange.error is None:
        expect(not exchange.result.ready, "a model that is not there is ready", exchange)


@REFUSALS("An input that the model does not have is refused.")
def unknown_input(server: ServerUnderTest, draw: Draw) -> None:
    _named(server)
    request = _good(server)
    place = draw(st.integers(0, len(request.inputs) - 1))
    name = draw(_WORDS)
    wrong = [tensor.renamed(name) if at == place else tensor for at, tensor in enumerate(request.inputs)]
    _refused(server, replace(request, inputs=tuple(wrong)), f"an input '{name}'")


@REFUSALS("An input too many is refused.")
def extra_input(server: ServerUnderTest, draw: Draw) -> None:
    _named(server)
    request = _good(server)
    extra = request.inputs[0].renamed(draw(_WORDS))
    _refused(server, replace(request, inputs=(*request.inputs, extra)), f"an extra input '{extra.name}'")


@REFUSALS("A request without one of the inputs is refused.")
def missing_input(server: ServerUnderTest, draw: Draw) -> None:
    request = _good(server)
    place = draw(st.integers(0, len(request.inputs) - 1))
    fewer = tuple(tensor for at, tensor in enumerate(request.inputs) if at != place)
    _refused(server, replace(request, inputs=fewer), f"a request without '{request.inputs[place].name}'")


@REFUSALS("An input given twice is refused.", once=True)
def input_twice(server: ServerUnderTest, draw: Draw) -> None:
    _named(server)
    request = _good(server)
    _refused(server, replace(request, inputs=(*request.inputs, request.inputs[0])), "an input given twice")


@REFUSALS("An output that the model does not have is refused.")
def unknown_output(server: ServerUnderTest, draw: Draw) -> None:
    if not server.capability.requested_outputs:
        raise InapplicableError("the dialect cannot ask for outputs")
    name = draw(_WORDS)
    known = [RequestedOutput(spec.name) for spec in server.known.outputs]
    outputs = (RequestedOutput(name), *draw(st.sampled_from((known[:1], []))))
    _refused(server, replace(_good(server), outputs=outputs), f"an output '{name}'")


@REFUSALS("An input of another datatype than the model's is refused.")
def wrong_datatype(server: ServerUnderTest, draw: Draw) -> None:
    request = _good(server)
    place = draw(st.integers(0, len(request.inputs) - 1))
    tensor = request.inputs[place]
    others = [kind for kind in _UNLIKE.get(tensor.datatype, _OTHERS) if carried(server, kind)]
    kind = draw(st.sampled_from(others))
    wrong = Tensor.from_numpy(tensor.name, np.ones(tensor.shape, kind.dtype), kind)
    inputs = tuple(wrong if at == place else one for at, one in enumerate(request.inputs))
    _refused(server, replace(request, inputs=inputs), f"{kind.value} in place of {tensor.datatype.value}")


@REFUSALS("A fixed dimension of another size is refused.")
def wrong_size(server: ServerUnderTest, draw: Draw) -> None:
    request = _good(server)
    fixed = [
        (place, at)
        for place, spec in enumerate(server.known.inputs)
        for at, size in enumerate(spec.shape)
        if size > 0
    ]
    if not fixed:
        raise InapplicableError("every dimension of the inputs is free")
    place, at = draw(st.sampled_from(fixed))
    shape = list(request.inputs[place].shape)
    shape[at] += draw(st.integers(1, 3))
    _refused(server, _shaped(request, place, shape), f"shape {shape} of '{request.inputs[place].name}'")


@REFUSALS("A dimension too many is refused.")
def wrong_rank(server: ServerUnderTest, draw: Draw) -> None:
    request = _good(server)
    place = draw(st.integers(0, len(request.inputs) - 1))
    shape = [*request.inputs[place].shape, draw(st.integers(1, 2))]
    _refused(server, _shaped(request, place, shape), f"shape {shape} of '{request.inputs[place].name}'")


@REFUSALS("A batch larger than the model's is refused.")
def batch_too_large(server: ServerUnderTest, draw: Draw) -> None:
    limit = server.known.max_batch_size
    if not 0 < limit <= 4096:
        raise InapplicableError("the model has no batches, according to the server")
    batch = limit + draw(st.integers(1, 3))
    _refused(server, server.request(distinct(server.known, 1, batch)), f"a batch of {batch}")


@REFUSALS("Data that are shorter or longer than their shape says are refused.")
def data_and_shape_disagree(server: ServerUnderTest, draw: Draw) -> None:
    request = _good(server)
    place = draw(st.integers(0, len(request.inputs) - 1))
    tensor = request.inputs[place]
    data = bytes(tensor.view)
    if tensor.datatype is Datatype.BYTES:
        elements = tensor.elements()
        wrong = pack_bytes(draw(st.sampled_from((elements[:-1], [*elements, b"7"]))))
    else:
        size = tensor.datatype.itemsize
        wrong = draw(st.sampled_from((data[:-size], data + data[:size])))
    broken = Tensor(tensor.name, tensor.datatype, tensor.shape, memoryview(wrong))
    inputs = tuple(broken if at == place else one for at, one in enumerate(request.inputs))
    what = f"{len(wrong)} bytes for the {len(data)} of '{tensor.name}'"
    _refused(server, replace(request, inputs=inputs), what)


@REFUSALS("A negative dimension is refused.", once=True)
def negative_dimension(server: ServerUnderTest, draw: Draw) -> None:
    request = _good(server)
    tensor = request.inputs[0]
    if not tensor.shape:
        raise InapplicableError("the input is a scalar")
    shape = (*tensor.shape[:-1], -1)
    wrong = Tensor(tensor.name, tensor.datatype, shape, tensor.data)
    _refused(server, replace(request, inputs=(wrong, *request.inputs[1:])), f"a shape of {list(shape)}")


@REFUSALS("After a refused request, the next good one has its right answer.")
def goes_on(server: ServerUnderTest, draw: Draw) -> None:
    good = _good(server)
    right = server.answer(good)
    bad = draw(st.sampled_from(("model", "inputs") if server.capability.many_models else ("inputs",)))
    wrong = replace(good, model="no_such_model") if bad == "model" else replace(good, inputs=())
    server.answered(server.infer(wrong))
    again = server.answer(good)
    have = [(tensor.name, bytes(tensor.view)) for tensor in again.outputs]
    expect(
        have == [(tensor.name, bytes(tensor.view)) for tensor in right.outputs],
        "after a refused request, the answer to a good one is another",
        server.last,
    )


_OTHERS = (Datatype.INT64, Datatype.FP64, Datatype.INT8)

_UNLIKE = {
    Datatype.INT64: (Datatype.FP32, Datatype.INT32),
    Datatype.FP64: (Datatype.FP32, Datatype.INT64),
    Datatype.INT8: (Datatype.INT64, Datatype.FP32),
    Datatype.BOOL: (Datatype.FP32, Datatype.INT64),
}
"""Datatypes that are not mistaken for each other: they differ in size or kind."""


def _good(server: ServerUnderTest) -> InferRequest:
    return server.request(distinct(server.known, 1))


def _named(server: ServerUnderTest) -> None:
    if not server.capability.input_names:
        raise InapplicableError("inputs have no names")


def _refused(server: ServerUnderTest, request: InferRequest, what: str) -> None:
    server.refuses(server.infer(request), Mistake.INVALID, what)


def _shaped(request: InferRequest, place: int, shape: list[int]) -> InferRequest:
    """``request`` with one input of another shape and a matching number of elements."""
    tensor = request.inputs[place]
    array = np.resize(tensor.numpy(), element_count(shape)).reshape(shape)
    wrong = Tensor.from_numpy(tensor.name, array, tensor.datatype)
    return replace(
        request, inputs=tuple(wrong if at == place else one for at, one in enumerate(request.inputs))
    )
