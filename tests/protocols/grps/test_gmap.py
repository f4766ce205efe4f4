"""gmaps to and from tensors: names of entries, datatypes, the form of a message from grps to grps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.grps.codec import decode_request, decode_response, encode_request, encode_response
from interlingua.protocols.grps.gmap import entry_name, entry_of
from interlingua.protocols.grps.message import GMAP_FIELDS, OK, GenericTensor, GrpsMessage, Kind
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Signature,
    Tensor,
    TensorSpec,
)

NOTHING = Signature((), ())
EXAMPLE = {
    "s_s": {"key": "hello"},
    "s_b": {"key": b"\0\xff"},
    "s_i32": {"key": -(2**31)},
    "s_i64": {"key": 2**63 - 1},
    "s_f": {"key": 0.5},
    "s_d": {"key": 0.1},
}
"""As the example clients of the grps repository send it: one key in all six maps."""


def gmap(**maps: Any) -> GrpsMessage:
    return GrpsMessage(Kind.GMAP, gmap=maps)


def declared(*names: str | tuple[str, Datatype]) -> tuple[TensorSpec, ...]:
    pairs = [(name, Datatype.INT32) if isinstance(name, str) else name for name in names]
    return tuple(TensorSpec(name, datatype, (1,)) for name, datatype in pairs)


def scalar(name: str, value: Any, datatype: Datatype) -> Tensor:
    return Tensor.from_numpy(name, np.array([value], datatype.dtype), datatype)


def answered(question: GrpsMessage, *outputs: Tensor, signature: Signature = NOTHING) -> GrpsMessage:
    """What a model here answers to ``question`` with ``outputs``."""
    _, form = decode_request(question, signature)
    return encode_response(form, InferResponse("m", outputs))


def through(
    question: GrpsMessage, answer: GrpsMessage, signature: Signature = NOTHING
) -> tuple[GrpsMessage, GrpsMessage]:
    """What reaches a grps server of ``question``, and the caller of its ``answer``."""
    request, form = decode_request(question, signature)
    sent = encode_request(request)
    outputs, told = decode_response(answer, signature if signature.outputs else None)
    return sent, encode_response(form, InferResponse("m", outputs, wire_form=told))


KEYS = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(["", ".", "gmap.s_i32.k", "s_s.k"])


@given(st.lists(st.tuples(st.sampled_from(GMAP_FIELDS), KEYS), unique=True))
def test_every_entry_has_a_name_of_its_own(entries: list[tuple[str, str]]) -> None:
    names = [entry_name(*entry) for entry in entries]
    assert len(set(names)) == len(names)
    assert [entry_of(name) for name in names] == entries


@pytest.mark.parametrize(
    "name", ["k", "gmap", "gmap.", "gmap.s_t.k", "gmap.s_i32", "Gmap.s_i32.k", "s_i32.k"]
)
def test_what_is_no_name_of_an_entry(name: str) -> None:
    assert entry_of(name) is None


def test_one_key_in_every_map_is_six_tensors() -> None:
    request, form = decode_request(gmap(**EXAMPLE), NOTHING)
    assert {each.name: (each.datatype, each.shape, each.numpy().item()) for each in request.inputs} == {
        "gmap.s_s.key": (Datatype.BYTES, (), b"hello"),
        "gmap.s_b.key": (Datatype.BYTES, (), b"\0\xff"),
        "gmap.s_i32.key": (Datatype.INT32, (), -(2**31)),
        "gmap.s_i64.key": (Datatype.INT64, (), 2**63 - 1),
        "gmap.s_f.key": (Datatype.FP32, (), 0.5),
        "gmap.s_d.key": (Datatype.FP64, (), 0.1),
    }
    echoed = encode_response(form, InferResponse("m", request.inputs))
    assert echoed == GrpsMessage(Kind.GMAP, status=OK, gmap=EXAMPLE)
    assert encode_request(request) == gmap(**EXAMPLE)


def test_a_key_alone_is_the_model_s_input_where_it_is_one() -> None:
    question = gmap(s_i32={"a": 1, "c": 3}, s_i64={"c": 4}, s_b={"b": b"\xff"})
    inputs = declared("a", ("b", Datatype.BYTES), ("gmap.s_i64.c", Datatype.INT64))
    request, _ = decode_request(question, Signature(inputs, ()))
    assert [tensor.name for tensor in request.inputs] == ["b", "a", "gmap.s_i32.c", "gmap.s_i64.c"]
    assert all(tensor.shape == (1,) for tensor in request.inputs if tensor.name != "gmap.s_i32.c")
    # to a grps server it goes as the entry that it was
    assert encode_request(request) == question


def test_a_key_that_is_ambiguous_is_refused() -> None:
    question = gmap(s_i32={"key": 1}, s_d={"key": 1.0})
    with pytest.raises(InferenceError, match="'key' twice.*'gmap.s_i32.key' and 'gmap.s_d.key'") as caught:
        decode_request(question, Signature(declared("key"), ()))
    assert caught.value.code is ErrorCode.INVALID_TENSOR
    both = declared("key", ("gmap.s_d.key", Datatype.FP64))
    request, _ = decode_request(question, Signature(both, ()))
    assert [tensor.name for tensor in request.inputs] == ["key", "gmap.s_d.key"]


def test_a_key_that_reads_like_an_entry_is_none_other_than_itself() -> None:
    question = gmap(s_s={"gmap.s_i32.k": "text"})
    request, _ = decode_request(question, Signature(declared("gmap.s_i32.k"), ()))
    assert [tensor.name for tensor in request.inputs] == ["gmap.s_s.gmap.s_i32.k"]
    assert encode_request(request) == question


NARROW = {
    Datatype.BOOL: ("s_i32", 1),
    Datatype.UINT8: ("s_i32", 255),
    Datatype.UINT16: ("s_i32", 65535),
    Datatype.UINT32: ("s_i64", 2**32 - 1),
    Datatype.INT8: ("s_i32", -128),
    Datatype.INT16: ("s_i32", -(2**15)),
    Datatype.INT32: ("s_i32", -(2**31)),
    Datatype.INT64: ("s_i64", -(2**63)),
    Datatype.FP16: ("s_f", -0.5),
    Datatype.BF16: ("s_f", -0.5),
    Datatype.FP32: ("s_f", float("-inf")),
    Datatype.FP64: ("s_d", 1e300),
    Datatype.BYTES: ("s_s", "é"),
}


@pytest.mark.parametrize("datatype", NARROW)
def test_every_datatype_that_has_a_map(datatype: Datatype) -> None:
    field, value = NARROW[datatype]
    signature = Signature(declared(("x", datatype)), declared(("y", datatype)))
    request, form = decode_request(gmap(**{field: {"x": value}}), signature)
    (given_,) = request.inputs
    assert given_.datatype is datatype
    answer = encode_response(form, InferResponse("m", (given_.renamed("y"),)))
    assert answer == GrpsMessage(Kind.GMAP, status=OK, gmap={field: {"y": value}})


@pytest.mark.parametrize(("datatype", "field", "value"), [
    (Datatype.BOOL, "s_i32", 2), (Datatype.UINT8, "s_i32", 256), (Datatype.INT16, "s_i32", 2**15),
    (Datatype.UINT32, "s_i64", -1), (Datatype.FP16, "s_f", 1e30), (Datatype.BF16, "s_f", 0.1),
])  # fmt: skip
def test_values_beyond_the_narrow_datatype_are_refused(datatype: Datatype, field: str, value: Any) -> None:
    with pytest.raises(InferenceError, match=f"'x'.*out of range for {datatype.value}"):
        decode_request(gmap(**{field: {"x": value}}), Signature(declared(("x", datatype)), ()))


def test_strings_of_an_answer_stand_where_those_of_the_request_did() -> None:
    text, raw = scalar("y", b"abc", Datatype.BYTES), scalar("y", b"\xff", Datatype.BYTES)
    for question, output, wanted in (
        (gmap(s_s={"x": "a"}), text, {"s_s": {"y": "abc"}}),
        (gmap(s_s={"x": "a"}), raw, {"s_b": {"y": b"\xff"}}),
        (gmap(s_b={"x": b"a"}), text, {"s_b": {"y": b"abc"}}),
        (gmap(s_b={"x": b"a"}, s_s={"z": "a"}), text, {"s_s": {"y": "abc"}}),
        (gmap(s_b={"y": b"a"}, s_s={"x": "a"}), text, {"s_b": {"y": b"abc"}}),
        (gmap(s_i32={"x": 1}), text, {"s_s": {"y": "abc"}}),
    ):  # fmt: skip
        signature = Signature(declared("x", "y", "z"), ())
        assert answered(question, output, signature=signature).gmap == wanted
    exact = scalar("gmap.s_b.y", b"abc", Datatype.BYTES)
    assert answered(gmap(s_s={"x": "a"}), exact).gmap == {"s_b": {"y": b"abc"}}


@pytest.mark.parametrize(
    "output",
    [Tensor.from_numpy("y", np.zeros(2, np.float32)), scalar("y", 1, Datatype.UINT64)],
    ids=["two elements", "UINT64"],
)
def test_outputs_that_are_no_entries_are_tensors(output: Tensor) -> None:
    if output.datatype is Datatype.UINT64:
        with pytest.raises(InferenceError, match="'y'.*UINT64"):
            answered(gmap(s_i32={"x": 1}), output)
    else:
        assert answered(gmap(s_i32={"x": 1}), output).kind is Kind.GTENSORS


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ([scalar("gmap.s_i32.k", 1, Datatype.INT64)], "'gmap.s_i32.k'.*INT64, and s_i32 holds INT32"),
        ([scalar("gmap.s_s.k", b"\xff", Datatype.BYTES)], "'gmap.s_s.k'.*UTF-8"),
    ],
)
def test_names_of_entries_that_contradict_their_tensor(tensors: list[Tensor], words: str) -> None:
    with pytest.raises(InferenceError, match=words) as caught:
        encode_request(InferRequest("m", tuple(tensors)))
    assert caught.value.code is ErrorCode.UNREPRESENTABLE


def test_two_outputs_are_not_one_entry() -> None:
    outputs = scalar("y", 1, Datatype.INT32), scalar("gmap.s_i32.y", 2, Datatype.INT32)
    with pytest.raises(InferenceError, match="'gmap.s_i32.y'.*another tensor is the entry 'y' of s_i32"):
        answered(gmap(s_i32={"x": 1}), *outputs)


def test_clients_of_any_dialect_send_a_gmap_by_the_names_of_its_entries() -> None:
    tensors = tuple(
        scalar(entry_name(field, "k"), *each)
        for field, each in {"s_b": (b"\xff", Datatype.BYTES), "s_d": (0.1, Datatype.FP64)}.items()
    )
    assert encode_request(InferRequest("m", tensors)) == gmap(s_b={"k": b"\xff"}, s_d={"k": 0.1})
    mixed = (*tensors[1:], scalar("other", 1, Datatype.INT32))
    assert encode_request(InferRequest("m", mixed)).kind is Kind.GTENSORS


# --- from grps to grps


def floats(name: str, *values: float) -> GenericTensor:
    return GenericTensor(name, 7, (len(values),), np.array(values, "<f4"))


ANSWERS = [
    gmap(**EXAMPLE),
    gmap(),
    GrpsMessage(Kind.GTENSORS),
    GrpsMessage(Kind.NDARRAY),
    GrpsMessage(),
    GrpsMessage(Kind.STR_DATA, str_data="é"),
    GrpsMessage(Kind.STR_DATA),
    GrpsMessage(Kind.BIN_DATA, bin_data=b"abc"),
    GrpsMessage(Kind.BIN_DATA),
    GrpsMessage(Kind.GTENSORS, tensors=(floats("", 1, 2),)),
    GrpsMessage(Kind.GTENSORS, tensors=(floats("", 1, 2), floats("", 3))),
    GrpsMessage(Kind.GTENSORS, tensors=(floats("0", 1, 2), floats("1", 3))),
    GrpsMessage(Kind.GTENSORS, tensors=(floats("gmap.s_f.k", 1),)),
    GrpsMessage(Kind.GTENSORS, tensors=(GenericTensor("said", 9, (1,), ["text"]),)),
]  # fmt: skip


def comparable(message: GrpsMessage) -> Any:
    """``message`` without its status, and arrays as lists."""
    tensors = [(each.name, each.dtype, each.shape, list(each.flat)) for each in message.tensors]
    return message.kind, message.str_data, bytes(message.bin_data), tensors, message.gmap


@pytest.mark.parametrize("answer", ANSWERS, ids=str)
@pytest.mark.parametrize("question", ANSWERS, ids=str)
def test_whole_messages_pass_from_grps_to_grps(question: GrpsMessage, answer: GrpsMessage) -> None:
    """Of a model that declares nothing: whatever the payload of the question, and of the answer."""
    sent, told = through(question, answer)
    assert comparable(sent) == comparable(question)
    assert comparable(told) == comparable(answer)
    assert told.status == OK


@pytest.mark.parametrize("empty", [gmap(), GrpsMessage(Kind.GTENSORS), GrpsMessage(Kind.NDARRAY)], ids=str)
def test_an_empty_payload_stays_set_in_the_answer(empty: GrpsMessage) -> None:
    """Both original servers echo ``gtensors {}``, ``gmap {}`` and ``ndarray {}`` as they came."""
    assert answered(empty).kind is empty.kind
    assert answered(GrpsMessage(Kind.STR_DATA, str_data="nothing, please")).kind is Kind.NOTHING


def test_unnamed_tensors_bind_by_order_and_are_unnamed_where_nothing_is_declared() -> None:
    two = GrpsMessage(Kind.GTENSORS, tensors=(floats("", 1), floats("", 2)))
    outputs, form = decode_response(two, None)
    # callers of other dialects tell them apart
    assert [tensor.name for tensor in outputs] == ["0", "1"]
    assert set(form.names.values()) == {""}
    named, form = decode_response(two, Signature((), declared(("a", Datatype.FP32), ("b", Datatype.FP32))))
    assert [tensor.name for tensor in named] == ["a", "b"] and not form.names
