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
from interlingua.translator.conformance.subject import Subject, carried
from interlingua.translator.conformance.values import distinct
from interlingua.translator.conformance.wire import Mistake, expect

ABSENT = Group("absent")
"""Rules for unknown models; they need no answers of a known one."""

REFUSALS = Group("refusals", asks=True)

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789_"

_WORDS = st.text(_LETTERS, min_size=1, max_size=8).map("no_such_".__add__)
"""Names that no model or tensor has."""


@ABSENT("An unknown model is not found.")
def model(subject: Subject, draw: Draw) -> None:
    if not subject.model:
        raise InapplicableError("the dialect names no models")
    request = replace(_good(subject), model=draw(_WORDS), version="")
    subject.refuses(subject.infer(request), Mistake.UNKNOWN_MODEL)


@ABSENT("An unknown version is not found.")
def version(subject: Subject, draw: Draw) -> None:
    if not subject.capability.versions or not subject.model:
        raise InapplicableError("the dialect has no versions")
    request = replace(_good(subject), version=str(draw(st.integers(10**6, 2**31 - 1))))
    subject.refuses(subject.infer(request), Mistake.UNKNOWN_VERSION)


@ABSENT("Metadata of an unknown model are refused.")
def metadata(subject: Subject, draw: Draw) -> None:
    if not subject.model:
        raise InapplicableError("the dialect names no models")
    exchange = subject.call(Operation.MODEL_METADATA, ModelRef(draw(_WORDS)))
    subject.answered(exchange)
    expect(exchange.error is not None, "metadata of a model that is not there", exchange)


@ABSENT("An unknown model is not ready.")
def readiness(subject: Subject, draw: Draw) -> None:
    if not subject.model or not subject.capability.signatures:
        raise InapplicableError("the dialect has no readiness of models")
    exchange = subject.call(Operation.MODEL_READY, ModelRef(draw(_WORDS)))
    subject.answered(exchange)
    if exchange.error is None:
        expect(not exchange.result.ready, "a model that is not there is ready", exchange)


@REFUSALS("An input that the model does not have is refused.")
def unknown_input(subject: Subject, draw: Draw) -> None:
    _named(subject)
    request = _good(subject)
    place = draw(st.integers(0, len(request.inputs) - 1))
    name = draw(_WORDS)
    wrong = [tensor.renamed(name) if at == place else tensor for at, tensor in enumerate(request.inputs)]
    _refused(subject, replace(request, inputs=tuple(wrong)), f"an input '{name}'")


@REFUSALS("An input too many is refused.")
def extra_input(subject: Subject, draw: Draw) -> None:
    _named(subject)
    request = _good(subject)
    extra = request.inputs[0].renamed(draw(_WORDS))
    _refused(subject, replace(request, inputs=(*request.inputs, extra)), f"an extra input '{extra.name}'")


@REFUSALS("A request without one of the inputs is refused.")
def missing_input(subject: Subject, draw: Draw) -> None:
    request = _good(subject)
    place = draw(st.integers(0, len(request.inputs) - 1))
    fewer = tuple(tensor for at, tensor in enumerate(request.inputs) if at != place)
    _refused(subject, replace(request, inputs=fewer), f"a request without '{request.inputs[place].name}'")


@REFUSALS("An input given twice is refused.", once=True)
def input_twice(subject: Subject, draw: Draw) -> None:
    _named(subject)
    request = _good(subject)
    _refused(subject, replace(request, inputs=(*request.inputs, request.inputs[0])), "an input given twice")


@REFUSALS("An output that the model does not have is refused.")
def unknown_output(subject: Subject, draw: Draw) -> None:
    if not subject.capability.requested_outputs:
        raise InapplicableError("the dialect cannot ask for outputs")
    name = draw(_WORDS)
    known = [RequestedOutput(spec.name) for spec in subject.known.outputs]
    outputs = (RequestedOutput(name), *draw(st.sampled_from((known[:1], []))))
    _refused(subject, replace(_good(subject), outputs=outputs), f"an output '{name}'")


@REFUSALS("An input of another datatype than the model's is refused.")
def wrong_datatype(subject: Subject, draw: Draw) -> None:
    request = _good(subject)
    place = draw(st.integers(0, len(request.inputs) - 1))
    tensor = request.inputs[place]
    others = [kind for kind in _UNLIKE.get(tensor.datatype, _OTHERS) if carried(subject, kind)]
    kind = draw(st.sampled_from(others))
    wrong = Tensor.from_numpy(tensor.name, np.ones(tensor.shape, kind.dtype), kind)
    inputs = tuple(wrong if at == place else one for at, one in enumerate(request.inputs))
    _refused(subject, replace(request, inputs=inputs), f"{kind.value} in place of {tensor.datatype.value}")


@REFUSALS("A fixed dimension of another size is refused.")
def wrong_size(subject: Subject, draw: Draw) -> None:
    request = _good(subject)
    fixed = [
        (place, at)
        for place, spec in enumerate(subject.known.inputs)
        for at, size in enumerate(spec.shape)
        if size > 0
    ]
    if not fixed:
        raise InapplicableError("every dimension of the inputs is free")
    place, at = draw(st.sampled_from(fixed))
    shape = list(request.inputs[place].shape)
    shape[at] += draw(st.integers(1, 3))
    _refused(subject, _shaped(request, place, shape), f"shape {shape} of '{request.inputs[place].name}'")


@REFUSALS("A dimension too many is refused.")
def wrong_rank(subject: Subject, draw: Draw) -> None:
    request = _good(subject)
    place = draw(st.integers(0, len(request.inputs) - 1))
    shape = [*request.inputs[place].shape, draw(st.integers(1, 2))]
    _refused(subject, _shaped(request, place, shape), f"shape {shape} of '{request.inputs[place].name}'")


@REFUSALS("A batch larger than the model's is refused.")
def batch_too_large(subject: Subject, draw: Draw) -> None:
    limit = subject.known.max_batch_size
    if not 0 < limit <= 4096:
        raise InapplicableError("the model has no batches, according to the server")
    batch = limit + draw(st.integers(1, 3))
    _refused(subject, subject.request(distinct(subject.known, 1, batch)), f"a batch of {batch}")


@REFUSALS("Data that are shorter or longer than their shape says are refused.")
def data_and_shape_disagree(subject: Subject, draw: Draw) -> None:
    request = _good(subject)
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
    _refused(subject, replace(request, inputs=inputs), what)


@REFUSALS("A negative dimension is refused.", once=True)
def negative_dimension(subject: Subject, draw: Draw) -> None:
    request = _good(subject)
    tensor = request.inputs[0]
    if not tensor.shape:
        raise InapplicableError("the input is a scalar")
    shape = (*tensor.shape[:-1], -1)
    wrong = Tensor(tensor.name, tensor.datatype, shape, tensor.data)
    _refused(subject, replace(request, inputs=(wrong, *request.inputs[1:])), f"a shape of {list(shape)}")


@REFUSALS("After a refused request, the next good one has its right answer.")
def goes_on(subject: Subject, draw: Draw) -> None:
    good = _good(subject)
    right = subject.answer(good)
    bad = draw(st.sampled_from(("model", "inputs") if subject.capability.many_models else ("inputs",)))
    wrong = replace(good, model="no_such_model") if bad == "model" else replace(good, inputs=())
    subject.answered(subject.infer(wrong))
    again = subject.answer(good)
    have = [(tensor.name, bytes(tensor.view)) for tensor in again.outputs]
    expect(
        have == [(tensor.name, bytes(tensor.view)) for tensor in right.outputs],
        "after a refused request, the answer to a good one is another",
        subject.last,
    )


_OTHERS = (Datatype.INT64, Datatype.FP64, Datatype.INT8)

_UNLIKE = {
    Datatype.INT64: (Datatype.FP32, Datatype.INT32),
    Datatype.FP64: (Datatype.FP32, Datatype.INT64),
    Datatype.INT8: (Datatype.INT64, Datatype.FP32),
    Datatype.BOOL: (Datatype.FP32, Datatype.INT64),
}
"""Datatypes that are not mistaken for each other: they differ in size or kind."""


def _good(subject: Subject) -> InferRequest:
    return subject.request(distinct(subject.known, 1))


def _named(subject: Subject) -> None:
    if not subject.capability.input_names:
        raise InapplicableError("inputs have no names")


def _refused(subject: Subject, request: InferRequest, what: str) -> None:
    subject.refuses(subject.infer(request), Mistake.INVALID, what)


def _shaped(request: InferRequest, place: int, shape: list[int]) -> InferRequest:
    """``request`` with one input of another shape and a matching number of elements."""
    tensor = request.inputs[place]
    array = np.resize(tensor.numpy(), element_count(shape)).reshape(shape)
    wrong = Tensor.from_numpy(tensor.name, array, tensor.datatype)
    return replace(
        request, inputs=tuple(wrong if at == place else one for at, one in enumerate(request.inputs))
    )
