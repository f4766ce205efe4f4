"""Rules for answers, whatever a model computes: they apply to every server of every dialect."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from interlingua.schemas import Datatype, InferResponse, Tensor
from interlingua.translator.conformance.check import Draw, Group
from interlingua.translator.conformance.comparison import HALVES, expect_right, expect_same, is_text
from interlingua.translator.conformance.errors import InapplicableError, ViolationError, expect, skip_if
from interlingua.translator.conformance.server import ServerUnderTest
from interlingua.translator.conformance.values import extreme, halved, inputs, usual

ANSWERS = Group("answers", infers=True)

_BATCH_TOLERANCE = 1e-3
"""Another batch size may select another algorithm."""

_AT_ONCE = 8


@ANSWERS("Names, datatypes and shapes of the outputs are those of the metadata.")
def as_declared(server: ServerUnderTest, draw: Draw) -> None:
    signature = server.known
    given = draw(inputs(signature, usual))
    response = server.answer(server.request(given))
    names = [tensor.name for tensor in response.outputs]
    declared = [spec.name for spec in signature.outputs]
    expect(sorted(names) == sorted(declared), f"outputs {names} instead of {declared}", server.last)
    for tensor in response.outputs:
        spec = signature.output_names[tensor.name]
        kind = server.capability.widened.get(spec.datatype, spec.datatype)
        expect(
            tensor.datatype in (spec.datatype, kind),
            f"output '{tensor.name}' is {tensor.datatype.value}, its metadata say {spec.datatype.value}",
            server.last,
        )
        shape = list(spec.shape)
        if signature.max_batch_size:
            shape[0] = given[0].shape[0]
        expect(
            len(shape) == len(tensor.shape)
            and all(want in (-1, have) for want, have in zip(shape, tensor.shape, strict=True)),
            f"output '{tensor.name}' has the shape {list(tensor.shape)}, its metadata say {shape}",
            server.last,
        )


@ANSWERS("The same request gets the same answer again.")
def same_twice(server: ServerUnderTest, draw: Draw) -> None:
    request = server.request(draw(inputs(server.known, usual)))
    first = server.answer(request)
    expect_same(server, first, server.answer(request), "the same request got another answer")


@ANSWERS("Every request gets its own answer, not that of the request before it.")
def interleaved(server: ServerUnderTest, draw: Draw) -> None:
    batch = 1 if server.known.max_batch_size else None
    one, other = (server.request(draw(inputs(server.known, usual, batch))) for _ in range(2))
    first, second = server.answer(one), server.answer(other)
    expect_same(server, first, server.answer(one), "after another request, the answer differs")
    expect_same(server, second, server.answer(other), "after another request, the answer differs")


@ANSWERS("Of requests at the same time, each gets its own answer.")
def at_once(server: ServerUnderTest, draw: Draw) -> None:
    start = draw(st.integers(0, 50))
    requests = [server.sample(start + number) for number in range(_AT_ONCE)]
    alone = [server.answer(request) for request in requests]
    for request, exchange, before in zip(requests, server.together(requests), alone, strict=True):
        expect_same(server, before, server.judged(request, exchange), "among others the answer differs")


@ANSWERS("Rows of a batch are independent: in another order they have the same answers.")
def rows_in_any_order(server: ServerUnderTest, draw: Draw) -> None:
    skip_if(server.known.max_batch_size < 2, "the model has no batches, according to the server")
    batch = draw(st.integers(2, min(server.known.max_batch_size, 4)))
    given = draw(inputs(server.known, usual, batch))
    order = draw(st.permutations(range(batch)))
    straight = server.answer(server.request(given))
    shuffled = server.answer(server.request([_rows(tensor, order) for tensor in given]))
    expect_same(
        server,
        _response(straight, [_rows(tensor, order) for tensor in straight.outputs]),
        shuffled,
        f"rows in the order {list(order)} have other answers",
        _BATCH_TOLERANCE,
    )


@ANSWERS("A row has the same answer alone as in a batch.")
def row_alone(server: ServerUnderTest, draw: Draw) -> None:
    skip_if(server.known.max_batch_size < 2, "the model has no batches, according to the server")
    batch = draw(st.integers(2, min(server.known.max_batch_size, 4)))
    given = draw(inputs(server.known, usual, batch))
    row = draw(st.integers(0, batch - 1))
    whole = server.answer(server.request(given))
    alone = server.answer(server.request([_rows(tensor, [row]) for tensor in given]))
    rows = _response(whole, [_rows(tensor, [row]) for tensor in whole.outputs])
    expect_same(server, rows, alone, f"row {row} has another answer alone", _BATCH_TOLERANCE)


@ANSWERS("A request for some outputs gets exactly those, with the values that a request for all gets.")
def requested_outputs(server: ServerUnderTest, draw: Draw) -> None:
    skip_if(not server.capability.requested_outputs, "requests of the dialect select no outputs")
    names = [spec.name for spec in server.known.outputs]
    given = draw(inputs(server.known, usual))
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    whole = server.answer(server.request(given))
    part = server.answer(server.request(given, chosen))
    have = sorted(tensor.name for tensor in part.outputs)
    expect(have == sorted(chosen), f"requested {chosen}, got {have}", server.last)
    wanted = _response(whole, [tensor for tensor in whole.outputs if tensor.name in chosen])
    expect_same(server, wanted, part, "an output requested by name differs")


@ANSWERS("The order of the inputs does not matter.")
def inputs_in_any_order(server: ServerUnderTest, draw: Draw) -> None:
    skip_if(
        len(server.known.inputs) < 2 or not server.capability.input_names,
        "there is only one input" if server.capability.input_names else "no names",
    )
    given = draw(inputs(server.known, usual))
    other = draw(st.permutations(given))
    first = server.answer(server.request(given))
    expect_same(server, first, server.answer(server.request(other)), "inputs in another order")


@ANSWERS("The id of a request comes back with its answer.")
def id_comes_back(server: ServerUnderTest, draw: Draw) -> None:
    _id_comes_back(server, draw, server.wire.ids)


@ANSWERS("An id may be any text.")
def id_of_any_text(server: ServerUnderTest, draw: Draw) -> None:
    _id_comes_back(server, draw, server.wire.any_ids)


@ANSWERS("A request needs no id.", once=True)
def without_id(server: ServerUnderTest, draw: Draw) -> None:
    if server.wire.ids is None:
        raise InapplicableError("the dialect has no ids")
    request = server.sample()
    right = server.answer(request)
    request.id = ""
    expect_same(server, right, server.answer(request), "without an id the answer differs")


@ANSWERS("The answer names the requested model.", once=True)
def model_named(server: ServerUnderTest, draw: Draw) -> None:
    response = server.answer(server.sample())
    skip_if(not server.capability.model_name, "the dialect does not name models")
    expect(response.model == server.model, f"the answer names the model {response.model!a}", server.last)


@ANSWERS("A request for the version that answered gets the same answer.", once=True)
def version_named(server: ServerUnderTest, draw: Draw) -> None:
    request = server.sample()
    response = server.answer(request)
    skip_if(not response.version or not server.capability.versions, "the answer names no version")
    request.version = response.version
    again = server.answer(request)
    expect(again.version == response.version, f"version {again.version!a} answered", server.last)
    expect_same(server, response, again, "requested by version, the answer differs")


@ANSWERS("Where an output is an input, or the sum or difference of two, every bit of it is right.")
def exact_values(server: ServerUnderTest, draw: Draw) -> None:
    signature, relations = server.known, server.relations
    skip_if(not relations, "the outputs are neither inputs nor sums or differences of them")
    textual = server.forms[0] in server.wire.textual
    contents = extreme(finite=textual, text=textual or server.capability.text_only)
    if any(relation.kind != "echo" for relation in relations):
        contents = halved(contents)
    given = draw(inputs(signature, contents))
    exchange = server.infer(server.request(given))
    server.answered(exchange)
    if not server.wire.succeeded(exchange) and not _all_text(given):
        # the server may refuse bytes that are not text, but not change them
        return
    expect_right(server, relations, given, server.judged(server.request(given), exchange))


@ANSWERS("Tensors without elements are answered with what follows from them, or refused; never otherwise.")
def no_elements(server: ServerUnderTest, draw: Draw) -> None:
    free = [
        size
        for spec in server.known.inputs
        for at, size in enumerate(spec.shape)
        if size < 0 and not (at == 0 and server.known.max_batch_size)
    ]
    skip_if(not free, "no dimension of an input is free")
    given = draw(
        inputs(server.known, usual, min_side=0).filter(lambda tensors: any(not t.count for t in tensors))
    )
    exchange = server.infer(server.request(given))
    server.answered(exchange)
    if server.wire.succeeded(exchange):
        response = server.judged(server.request(given), exchange)
        expect_right(server, server.relations, given, response)


@ANSWERS("A request means the same in every form that it can be written in.")
def forms_agree(server: ServerUnderTest, draw: Draw) -> None:
    usual_form, *others = server.forms
    skip_if(not others, "there is only one form")
    skip_if(
        any(spec.datatype in HALVES for spec in (*server.known.inputs, *server.known.outputs)),
        "floats of 16 bits have one form",
    )
    echoes = server.relations and all(relation.kind == "echo" for relation in server.relations)
    # an echo model takes every value that both forms can carry
    contents = extreme(finite=True, text=True) if echoes else usual
    request = server.request(draw(inputs(server.known, contents)))
    form = draw(st.sampled_from(others))
    first = server.answer(request)
    other = server.answer(request, form)
    expect_same(server, first, other, f"as {form} the answer is not that to {usual_form}", 0.0)


def _id_comes_back(server: ServerUnderTest, draw: Draw, ids: st.SearchStrategy[str] | None) -> None:
    if ids is None:
        raise InapplicableError("the dialect has no ids")
    request = server.sample()
    request.id = draw(ids)
    response = server.answer(request)
    expect(response.id == request.id, f"the id {request.id!a} came back as {response.id!a}", server.last)


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
