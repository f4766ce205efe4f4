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
from interlingua.translator.conformance.check import Draw, Group
from interlingua.translator.conformance.errors import expect, skip_if
from interlingua.translator.conformance.server import ServerUnderTest
from interlingua.translator.conformance.values import distinct
from interlingua.translator.conformance.wire import Mistake

ABSENT = Group("absent")
"""Rules for unknown models; they need no answers of a known one."""

REFUSALS = Group("refusals", infers=True)

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789_"

_WORDS = st.text(_LETTERS, min_size=1, max_size=8).map("no_such_".__add__)
"""Names that no model or tensor has."""


@ABSENT("An unknown model is not found.")
def model(server: ServerUnderTest, draw: Draw) -> None:
    skip_if(not server.model, "the dialect names no models")
    request = replace(server.sample(), model=draw(_WORDS), version="")
    server.refuses(server.infer(request), Mistake.UNKNOWN_MODEL)


@ABSENT("An unknown version is not found.")
def version(server: ServerUnderTest, draw: Draw) -> None:
    skip_if(not server.capability.versions or not server.model, "the dialect has no versions")
    request = replace(server.sample(), version=str(draw(st.integers(10**6, 2**31 - 1))))
    server.refuses(server.infer(request), Mistake.UNKNOWN_VERSION)


@ABSENT("Metadata of an unknown model are refused.")
def metadata(server: ServerUnderTest, draw: Draw) -> None:
    skip_if(not server.model, "the dialect names no models")
    exchange = server.call(Operation.MODEL_METADATA, ModelRef(draw(_WORDS)))
    server.answered(exchange)
    expect(exchange.error is not None, "metadata of a model that is not there", exchange)


@ABSENT("An unknown model is not ready.")
def readiness(server: ServerUnderTest, draw: Draw) -> None:
    skip_if(not server.model or not server.capability.signatures, "the dialect has no readiness of models")
    exchange = server.call(Operation.MODEL_READY, ModelRef(draw(_WORDS)))
    server.answered(exchange)
    if exchange.error is None:
        expect(not exchange.result.ready, "a model that is not there is ready", exchange)


@REFUSALS("An input that the model does not have is refused.")
def unknown_input(server: ServerUnderTest, draw: Draw) -> None:
    _named(server)
    request, place, tensor = _drawn(server, draw)
    name = draw(_WORDS)
    _refused(server, _with(request, place, tensor.renamed(name)), f"an input '{name}'")


@REFUSALS("An extra input is refused.")
def extra_input(server: ServerUnderTest, draw: Draw) -> None:
    _named(server)
    request = server.sample()
    extra = request.inputs[0].renamed(draw(_WORDS))
    _refused(server, replace(request, inputs=(*request.inputs, extra)), f"an extra input '{extra.name}'")


@REFUSALS("A request without one of the inputs is refused.")
def missing_input(server: ServerUnderTest, draw: Draw) -> None:
    request, place, tensor = _drawn(server, draw)
    fewer = (*request.inputs[:place], *request.inputs[place + 1 :])
    _refused(server, replace(request, inputs=fewer), f"a request without '{tensor.name}'")


@REFUSALS("A repeated input is refused.", once=True)
def input_twice(server: ServerUnderTest, draw: Draw) -> None:
    _named(server)
    request = server.sample()
    _refused(server, replace(request, inputs=(*request.inputs, request.inputs[0])), "a repeated input")


@REFUSALS("An output that the model does not have is refused.")
def unknown_output(server: ServerUnderTest, draw: Draw) -> None:
    skip_if(not server.capability.requested_outputs, "requests of the dialect select no outputs")
    name = draw(_WORDS)
    known = [RequestedOutput(spec.name) for spec in server.known.outputs]
    outputs = (RequestedOutput(name), *draw(st.sampled_from((known[:1], []))))
    _refused(server, replace(server.sample(), outputs=outputs), f"an output '{name}'")


@REFUSALS("An input of another datatype than the model's is refused.")
def wrong_datatype(server: ServerUnderTest, draw: Draw) -> None:
    request, place, tensor = _drawn(server, draw)
    others = [kind for kind in _UNLIKE.get(tensor.datatype, _OTHERS) if server.capability.carries(kind)]
    kind = draw(st.sampled_from(others))
    wrong = Tensor.from_numpy(tensor.name, np.ones(tensor.shape, kind.dtype), kind)
    _refused(server, _with(request, place, wrong), f"{kind.value} instead of {tensor.datatype.value}")


@REFUSALS("A fixed dimension of another size is refused.")
def wrong_size(server: ServerUnderTest, draw: Draw) -> None:
    request = server.sample()
    fixed = [
        (place, at)
        for place, spec in enumerate(server.known.inputs)
        for at, size in enumerate(spec.shape)
        if size > 0
    ]
    skip_if(not fixed, "every dimension of the inputs is free")
    place, at = draw(st.sampled_from(fixed))
    shape = list(request.inputs[place].shape)
    shape[at] += draw(st.integers(1, 3))
    _refused(server, _shaped(request, place, shape), f"shape {shape} of '{request.inputs[place].name}'")


@REFUSALS("An extra dimension is refused.")
def wrong_rank(server: ServerUnderTest, draw: Draw) -> None:
    request, place, tensor = _drawn(server, draw)
    shape = [*tensor.shape, draw(st.integers(1, 2))]
    _refused(server, _shaped(request, place, shape), f"shape {shape} of '{tensor.name}'")


@REFUSALS("A batch larger than the model's is refused.")
def batch_too_large(server: ServerUnderTest, draw: Draw) -> None:
    limit = server.known.max_batch_size
    skip_if(not 0 < limit <= 4096, "the model has no batches, according to the server")
    batch = limit + draw(st.integers(1, 3))
    _refused(server, server.request(distinct(server.known, 1, batch)), f"a batch of {batch}")


@REFUSALS("Data whose size does not fit the shape are refused.")
def data_and_shape_disagree(server: ServerUnderTest, draw: Draw) -> None:
    request, place, tensor = _drawn(server, draw)
    data = bytes(tensor.view)
    if tensor.datatype is Datatype.BYTES:
        elements = tensor.elements()
        wrong = pack_bytes(draw(st.sampled_from((elements[:-1], [*elements, b"7"]))))
    else:
        size = tensor.datatype.itemsize
        wrong = draw(st.sampled_from((data[:-size], data + data[:size])))
    broken = Tensor(tensor.name, tensor.datatype, tensor.shape, memoryview(wrong))
    what = f"{len(wrong)} bytes for the {len(data)} of '{tensor.name}'"
    _refused(server, _with(request, place, broken), what)


@REFUSALS("A negative dimension is refused.", once=True)
def negative_dimension(server: ServerUnderTest, draw: Draw) -> None:
    request = server.sample()
    tensor = request.inputs[0]
    skip_if(not tensor.shape, "the input is a scalar")
    shape = (*tensor.shape[:-1], -1)
    wrong = Tensor(tensor.name, tensor.datatype, shape, tensor.data)
    _refused(server, _with(request, 0, wrong), f"a shape of {list(shape)}")


@REFUSALS("After a refused request, the next good one has its right answer.")
def goes_on(server: ServerUnderTest, draw: Draw) -> None:
    good = server.sample()
    right = server.answer(good)
    bad = draw(st.sampled_from(("model", "inputs") if server.capability.many_models else ("inputs",)))
    wrong = replace(good, model="no_such_model") if bad == "model" else replace(good, inputs=())
    server.answered(server.infer(wrong))
    right_bytes, have = (
        [(tensor.name, bytes(tensor.view)) for tensor in answer.outputs]
        for answer in (right, server.answer(good))
    )
    expect(have == right_bytes, "after a refused request, the answer to a good one differs", server.last)


_OTHERS = (Datatype.INT64, Datatype.FP64, Datatype.INT8)

_UNLIKE = {
    Datatype.INT64: (Datatype.FP32, Datatype.INT32),
    Datatype.FP64: (Datatype.FP32, Datatype.INT64),
    Datatype.INT8: (Datatype.INT64, Datatype.FP32),
    Datatype.BOOL: (Datatype.FP32, Datatype.INT64),
}
"""Datatypes that are not mistaken for each other: they differ in size or kind."""


def _drawn(server: ServerUnderTest, draw: Draw) -> tuple[InferRequest, int, Tensor]:
    """A valid request, and one of its inputs with its place."""
    request = server.sample()
    place = draw(st.integers(0, len(request.inputs) - 1))
    return request, place, request.inputs[place]


def _named(server: ServerUnderTest) -> None:
    skip_if(not server.capability.input_names, "inputs have no names")


def _refused(server: ServerUnderTest, request: InferRequest, what: str) -> None:
    server.refuses(server.infer(request), Mistake.INVALID, what)


def _shaped(request: InferRequest, place: int, shape: list[int]) -> InferRequest:
    """``request`` with one input of another shape and a matching number of elements."""
    tensor = request.inputs[place]
    array = np.resize(tensor.numpy(), element_count(shape)).reshape(shape)
    return _with(request, place, Tensor.from_numpy(tensor.name, array, tensor.datatype))


def _with(request: InferRequest, place: int, tensor: Tensor) -> InferRequest:
    return replace(request, inputs=(*request.inputs[:place], tensor, *request.inputs[place + 1 :]))
