"""Rules for answers, whatever a model computes: they apply to every server of every dialect."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from interlingua.schemas import Datatype, InferResponse, Tensor
from interlingua.translator.conformance.check import Draw, Group, InapplicableError, ViolationError
from interlingua.translator.conformance.comparison import HALVES, expect_right, expect_same, is_text
from interlingua.translator.conformance.subject import Subject
from interlingua.translator.conformance.values import distinct, extreme, halved, inputs, usual
from interlingua.translator.conformance.wire import expect

ANSWERS = Group("answers", asks=True)

_BATCH_TOLERANCE = 1e-3
"""Another batch size may select another algorithm."""

_AT_ONCE = 8


@ANSWERS("Names, datatypes and shapes of the outputs are those of the metadata.")
def as_declared(subject: Subject, draw: Draw) -> None:
    signature = subject.known
    given = draw(inputs(signature, usual))
    response = subject.answer(subject.request(given))
    names = [tensor.name for tensor in response.outputs]
    declared = [spec.name for spec in signature.outputs]
    expect(sorted(names) == sorted(declared), f"outputs {names} in place of {declared}", subject.last)
    for tensor in response.outputs:
        spec = signature.output_names[tensor.name]
        kind = subject.capability.widened.get(spec.datatype, spec.datatype)
        expect(
            tensor.datatype in (spec.datatype, kind),
            f"output '{tensor.name}' is {tensor.datatype.value}, its metadata say {spec.datatype.value}",
            subject.last,
        )
        shape = list(spec.shape)
        if signature.max_batch_size:
            shape[0] = given[0].shape[0]
        expect(
            len(shape) == len(tensor.shape)
            and all(want in (-1, have) for want, have in zip(shape, tensor.shape, strict=True)),
            f"output '{tensor.name}' has the shape {list(tensor.shape)}, its metadata say {shape}",
            subject.last,
        )


@ANSWERS("The same request gets the same answer again.")
def same_twice(subject: Subject, draw: Draw) -> None:
    request = subject.request(draw(inputs(subject.known, usual)))
    first = subject.answer(request)
    expect_same(subject, first, subject.answer(request), "the same request was answered otherwise")


@ANSWERS("Every request gets its own answer, not that of the request before it.")
def interleaved(subject: Subject, draw: Draw) -> None:
    batch = 1 if subject.known.max_batch_size else None
    one, other = (subject.request(draw(inputs(subject.known, usual, batch))) for _ in range(2))
    first, second = subject.answer(one), subject.answer(other)
    expect_same(subject, first, subject.answer(one), "after another request, the answer is another")
    expect_same(subject, second, subject.answer(other), "after another request, the answer is another")


@ANSWERS("Of requests at the same time, each gets its own answer.")
def at_once(subject: Subject, draw: Draw) -> None:
    start = draw(st.integers(0, 50))
    requests = [subject.request(distinct(subject.known, start + number)) for number in range(_AT_ONCE)]
    alone = [subject.answer(request) for request in requests]
    for request, exchange, before in zip(requests, subject.together(requests), alone, strict=True):
        expect_same(subject, before, subject.judged(request, exchange), "beside others the answer is another")


@ANSWERS("Rows of a batch are independent: in another order they have the same answers.")
def rows_in_any_order(subject: Subject, draw: Draw) -> None:
    if subject.known.max_batch_size < 2:
        raise InapplicableError("the model has no batches, according to the server")
    batch = draw(st.integers(2, min(subject.known.max_batch_size, 4)))
    given = draw(inputs(subject.known, usual, batch))
    order = draw(st.permutations(range(batch)))
    straight = subject.answer(subject.request(given))
    shuffled = subject.answer(subject.request([_rows(tensor, order) for tensor in given]))
    expect_same(
        subject,
        _response(straight, [_rows(tensor, order) for tensor in straight.outputs]),
        shuffled,
        f"rows in the order {list(order)} have other answers",
        _BATCH_TOLERANCE,
    )


@ANSWERS("A row has the same answer alone as in a batch.")
def row_alone(subject: Subject, draw: Draw) -> None:
    if subject.known.max_batch_size < 2:
        raise InapplicableError("the model has no batches, according to the server")
    batch = draw(st.integers(2, min(subject.known.max_batch_size, 4)))
    given = draw(inputs(subject.known, usual, batch))
    row = draw(st.integers(0, batch - 1))
    whole = subject.answer(subject.request(given))
    alone = subject.answer(subject.request([_rows(tensor, [row]) for tensor in given]))
    rows = _response(whole, [_rows(tensor, [row]) for tensor in whole.outputs])
    expect_same(subject, rows, alone, f"row {row} has another answer alone", _BATCH_TOLERANCE)


@ANSWERS("A request for some outputs gets exactly those, with the values that a request for all gets.")
def requested_outputs(subject: Subject, draw: Draw) -> None:
    if not subject.capability.requested_outputs:
        raise InapplicableError("the dialect cannot ask for outputs")
    names = [spec.name for spec in subject.known.outputs]
    given = draw(inputs(subject.known, usual))
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    whole = subject.answer(subject.request(given))
    part = subject.answer(subject.request(given, chosen))
    have = sorted(tensor.name for tensor in part.outputs)
    expect(have == sorted(chosen), f"asked for {chosen}, got {have}", subject.last)
    wanted = _response(whole, [tensor for tensor in whole.outputs if tensor.name in chosen])
    expect_same(subject, wanted, part, "an output asked for by name is another")


@ANSWERS("The order of the inputs does not matter.")
def inputs_in_any_order(subject: Subject, draw: Draw) -> None:
    if len(subject.known.inputs) < 2 or not subject.capability.input_names:
        raise InapplicableError("there is only one input" if subject.capability.input_names else "no names")
    given = draw(inputs(subject.known, usual))
    other = draw(st.permutations(given))
    first = subject.answer(subject.request(given))
    expect_same(subject, first, subject.answer(subject.request(other)), "inputs in another order")


@ANSWERS("The id of a request comes back with its answer.")
def id_comes_back(subject: Subject, draw: Draw) -> None:
    _id_comes_back(subject, draw, subject.wire.ids)


@ANSWERS("An id may be any text.")
def id_of_any_text(subject: Subject, draw: Draw) -> None:
    _id_comes_back(subject, draw, subject.wire.any_ids)


@ANSWERS("A request needs no id.", once=True)
def without_id(subject: Subject, draw: Draw) -> None:
    if subject.wire.ids is None:
        raise InapplicableError("the dialect has no ids")
    request = subject.request(distinct(subject.known, 1))
    right = subject.answer(request)
    request.id = ""
    expect_same(subject, right, subject.answer(request), "without an id the answer is another")


@ANSWERS("The answer names the model that was asked.", once=True)
def model_named(subject: Subject, draw: Draw) -> None:
    response = subject.answer(subject.request(distinct(subject.known, 1)))
    if not subject.capability.model_name:
        raise InapplicableError("the dialect does not name models")
    expect(response.model == subject.model, f"the answer names the model {response.model!a}", subject.last)


@ANSWERS("The version that answered can be asked for by its number, and answers the same.", once=True)
def version_named(subject: Subject, draw: Draw) -> None:
    request = subject.request(distinct(subject.known, 1))
    response = subject.answer(request)
    if not response.version or not subject.capability.versions:
        raise InapplicableError("the answer names no version")
    request.version = response.version
    again = subject.answer(request)
    expect(again.version == response.version, f"version {again.version!a} answered", subject.last)
    expect_same(subject, response, again, "asked for by version, the answer is another")


@ANSWERS("Where an output is an input, or the sum or difference of two, every bit of it is right.")
def exact_values(subject: Subject, draw: Draw) -> None:
    signature, relations = subject.known, subject.relations
    if not relations:
        raise InapplicableError("the outputs are neither inputs nor sums or differences of them")
    textual = subject.forms[0] in subject.wire.textual
    contents = extreme(finite=textual, text=textual or subject.capability.text_only)
    if any(relation.kind != "echo" for relation in relations):
        contents = halved(contents)
    given = draw(inputs(signature, contents))
    exchange = subject.infer(subject.request(given))
    subject.answered(exchange)
    if not subject.wire.succeeded(exchange) and not _all_text(given):
        # the server may refuse bytes that are not text, but not change them
        return
    expect_right(subject, relations, given, subject.judged(subject.request(given), exchange))


@ANSWERS("Tensors without elements are answered with what follows from them, or refused; never otherwise.")
def no_elements(subject: Subject, draw: Draw) -> None:
    free = [
        size
        for spec in subject.known.inputs
        for at, size in enumerate(spec.shape)
        if size < 0 and not (at == 0 and subject.known.max_batch_size)
    ]
    if not free:
        raise InapplicableError("no dimension of an input is free")
    given = draw(
        inputs(subject.known, usual, min_side=0).filter(lambda tensors: any(not t.count for t in tensors))
    )
    exchange = subject.infer(subject.request(given))
    subject.answered(exchange)
    if subject.wire.succeeded(exchange):
        response = subject.judged(subject.request(given), exchange)
        expect_right(subject, subject.relations, given, response)


@ANSWERS("A request means the same in every form that it can be written in.")
def forms_agree(subject: Subject, draw: Draw) -> None:
    usual_form, *others = subject.forms
    if not others:
        raise InapplicableError("there is only one form")
    if any(spec.datatype in HALVES for spec in (*subject.known.inputs, *subject.known.outputs)):
        raise InapplicableError("floats of 16 bits have one form")
    echoes = subject.relations and all(relation.kind == "echo" for relation in subject.relations)
    # an echo model takes every value that both forms can carry
    contents = extreme(finite=True, text=True) if echoes else usual
    request = subject.request(draw(inputs(subject.known, contents)))
    form = draw(st.sampled_from(others))
    first = subject.answer(request)
    other = subject.answer(request, form)
    expect_same(subject, first, other, f"as {form} the answer is not that to {usual_form}", 0.0)


def _id_comes_back(subject: Subject, draw: Draw, ids: st.SearchStrategy[str] | None) -> None:
    if ids is None:
        raise InapplicableError("the dialect has no ids")
    request = subject.request(distinct(subject.known, 1))
    request.id = draw(ids)
    response = subject.answer(request)
    expect(response.id == request.id, f"the id {request.id!a} came back as {response.id!a}", subject.last)


def _all_text(tensors: Sequence[Tensor]) -> bool:
    """Whether every BYTES element is UTF-8 without NUL."""
    words = [word for tensor in tensors if tensor.datatype is Datatype.BYTES for word in tensor.elements()]
    return all(b"\0" not in word and is_text(word) for word in words)


def _rows(tensor: Tensor, order: Sequence[int]) -> Tensor:
    if not tensor.shape or max(order) >= tensor.shape[0]:
        raise ViolationError(
            f"'{tensor.name}' of shape {list(tensor.shape)} has not one row per batch element"
        )
    return Tensor.from_numpy(tensor.name, tensor.numpy()[list(order)], tensor.datatype)


def _response(response: InferResponse, outputs: Sequence[Tensor]) -> InferResponse:
    return InferResponse(response.model, tuple(outputs), response.version)
