"""Whatever grps can carry survives both codings and all flavors; whatever the bytes, no other error comes out."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.grps.codec import decode_request, decode_response, encode_request, encode_response
from interlingua.protocols.grps.codec_grpc import read_message, write_message
from interlingua.protocols.grps.codec_json import parse_document, read_document
from interlingua.protocols.grps.json_quirks import COMPACT, CPP, PY, REPLY, JsonQuirks
from interlingua.protocols.grps.json_writer import write_message as write_json
from interlingua.protocols.grps.message import DTYPES, GMAP_FIELDS, OK, GrpsMessage, Kind, Status
from interlingua.protocols.grps.tensors import DATATYPES, WIDENED
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Signature,
    Tensor,
    pack_bytes,
)
from interlingua.schemas.grps import MESSAGES
from tests.conformance.mutations import mutated
from tests.strategies import names, shapes, signature_of, tensors

MESSAGE: Any = MESSAGES["grps.protos.v1.GrpsMessage"]
CARRIED = frozenset(DATATYPES.values()) | WIDENED.keys()
FLAVORS = pytest.mark.parametrize("quirks", [PY, CPP, COMPACT], ids=lambda quirks: quirks.name)

TEXT = st.text(st.characters(codec="utf-8"), max_size=9)


@st.composite
def carried(draw: st.DrawFn) -> tuple[Tensor, ...]:
    """Tensors that grps carries: their BYTES are text."""
    found = []
    for name in draw(st.lists(names(), min_size=1, max_size=3, unique=True)):
        tensor = draw(tensors(CARRIED, name))
        if tensor.datatype is Datatype.BYTES:
            elements = draw(st.lists(TEXT, min_size=tensor.count, max_size=tensor.count))
            tensor = Tensor.checked(
                name, tensor.datatype, tensor.shape, pack_bytes(map(str.encode, elements))
            )
        found.append(tensor)
    return tuple(found)


def one_nan(tensor: Tensor) -> Tensor:
    """``tensor`` with the NaN that JSON has in place of every other."""
    if tensor.datatype.dtype.kind not in "fV" or tensor.datatype is Datatype.BYTES:
        return tensor
    array = tensor.numpy().copy()
    with np.errstate(invalid="ignore"):  # some NaNs are signalling
        array[np.isnan(array)] = np.nan
    return Tensor.from_numpy(tensor.name, array, tensor.datatype)


@given(carried())
def test_requests_and_answers_in_protobuf(given_: tuple[Tensor, ...]) -> None:
    signature = signature_of(given_, given_)
    data = write_message(encode_request(InferRequest("m", given_)))
    assert MESSAGE.FromString(data).SerializeToString() == data
    request, form = decode_request(read_message(data), signature)
    assert request.inputs == given_
    answer = write_message(encode_response(form, InferResponse("m", given_)))
    message = read_message(answer)
    assert message.status == OK
    assert decode_response(message, signature)[0] == given_


@FLAVORS
@given(carried())
def test_requests_and_answers_in_json(quirks: JsonQuirks, given_: tuple[Tensor, ...]) -> None:
    signature = signature_of(given_, given_)
    expected = tuple(map(one_nan, given_))
    question = encode_request(InferRequest("m", given_))
    document = parse_document(write_json(question, COMPACT), quirks)
    request, form = decode_request(read_document(document, quirks), signature)
    assert tuple(map(one_nan, request.inputs)) == expected
    message = read_document(
        parse_document(write_json(encode_response(form, InferResponse("m", given_)), quirks), REPLY), REPLY
    )
    assert message.status == OK
    assert tuple(map(one_nan, decode_response(message, signature)[0])) == expected


@FLAVORS
@given(tensors({Datatype.FP32}, "x", shapes(max_rank=5)))
def test_ndarrays(quirks: JsonQuirks, tensor: Tensor) -> None:
    signature = Signature((), signature_of([], [tensor]).outputs)
    _, form = decode_request(GrpsMessage(), signature, return_ndarray=True)
    text = write_json(encode_response(form, InferResponse("m", (tensor,))), quirks)
    (back,), _ = decode_response(read_document(parse_document(text, REPLY), REPLY), signature)
    wanted = one_nan(tensor)
    if 0 in wanted.shape:  # nested lists do not tell what stands behind a 0
        assert back.shape == wanted.shape[: wanted.shape.index(0) + 1]
    else:
        assert one_nan(back) == wanted


entries = {
    "s_s": TEXT,
    "s_b": st.binary(max_size=9),
    "s_i32": st.integers(-(2**31), 2**31 - 1),
    "s_i64": st.integers(-(2**63), 2**63 - 1),
    "s_f": st.floats(width=32, allow_nan=False),
    "s_d": st.floats(allow_nan=False),
}


@st.composite
def plain_messages(draw: st.DrawFn) -> GrpsMessage:
    """Messages without tensors."""
    status = draw(st.none() | st.builds(Status, st.integers(-(2**31), 2**31 - 1), TEXT, st.integers(0, 9)))
    message = GrpsMessage(
        draw(st.sampled_from([Kind.NOTHING, Kind.STR_DATA, Kind.BIN_DATA, Kind.GMAP])), draw(TEXT), status
    )
    if message.kind is Kind.STR_DATA:
        message.str_data = draw(TEXT)
    elif message.kind is Kind.BIN_DATA:
        message.bin_data = draw(st.binary(max_size=20))
    elif message.kind is Kind.GMAP:
        message.gmap = {
            name: draw(st.dictionaries(TEXT, entries[name], min_size=1, max_size=3))
            for name in GMAP_FIELDS
            if draw(st.booleans())
        }
    return message


@given(plain_messages(), plain_messages())
def test_messages_keep_their_form_from_grps_to_grps(question: GrpsMessage, answer: GrpsMessage) -> None:
    """A model that declares nothing gets the data of the question, and the caller that of the answer."""
    request, form = decode_request(question, Signature((), ()))
    outputs, told = decode_response(answer, None)
    back = encode_response(form, InferResponse("m", outputs, wire_form=told))
    for sent, got in ((question, encode_request(request)), (answer, back)):
        assert (got.kind, got.str_data, bytes(got.bin_data)) == (
            sent.kind,
            sent.str_data,
            bytes(sent.bin_data),
        )
        assert got.gmap == sent.gmap


@given(plain_messages())
def test_messages_without_tensors_in_protobuf(message: GrpsMessage) -> None:
    assert read_message(write_message(message)) == message


@FLAVORS
@given(plain_messages())
def test_messages_without_tensors_in_json(quirks: JsonQuirks, message: GrpsMessage) -> None:
    text = write_json(message, quirks)
    if quirks.ascii:
        assert text.isascii()
    back = read_document(parse_document(text, REPLY), REPLY)
    assert back == message


# --- hostile bytes


@st.composite
def written(draw: st.DrawFn) -> GrpsMessage:
    if draw(st.booleans()):
        return draw(plain_messages())
    return encode_request(InferRequest("m", draw(carried())))


@given(st.data())
def test_broken_protobuf(data: st.DataObject) -> None:
    body = data.draw(st.binary(max_size=40) | mutated(write_message(data.draw(written()))))
    _only_inference_errors(lambda: read_message(body))


@given(st.data())
def test_protobuf_reads_the_same(data: st.DataObject) -> None:
    """Where protobuf's own classes take bytes, so do we, and find the same in them."""
    body = data.draw(mutated(write_message(data.draw(written()))))
    try:
        theirs = MESSAGE.FromString(body)
    except DecodeError:
        return
    ours = read_message(body)
    assert ours.model == theirs.model
    assert ours.kind.value == (theirs.WhichOneof("data_oneof") or "")
    assert ours.str_data == theirs.str_data
    assert bytes(ours.bin_data) == theirs.bin_data
    assert len(ours.tensors) == len(theirs.gtensors.tensors)
    for mine, their in zip(ours.tensors, theirs.gtensors.tensors, strict=True):
        assert (mine.name, mine.dtype, list(mine.shape)) == (their.name, their.dtype, list(their.shape))
        dtype = DTYPES.get(their.dtype)
        np.testing.assert_array_equal(list(mine.flat), list(getattr(their, dtype.field)) if dtype else [])


@pytest.mark.parametrize("quirks", [PY, CPP, COMPACT, REPLY], ids=lambda quirks: quirks.name)
@given(st.data())
def test_broken_json(quirks: JsonQuirks, data: st.DataObject) -> None:
    text = write_json(data.draw(written()), data.draw(st.sampled_from([PY, CPP, COMPACT])))
    body = data.draw(mutated(text))
    _only_inference_errors(lambda: read_document(parse_document(body, quirks), quirks))


VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | TEXT | st.sampled_from(["NaN", "1", "4", "AAEC", "DT_INT8"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["key", "value", "tensors", "name", "dtype", "shape", "flat_int8", "flatInt8", "flat_string", "s_b", "s_i64"]), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
MEMBERS = ["model", "status", "bin_data", "str_data", "gtensors", "ndarray", "gmap", "strData"]


@pytest.mark.parametrize("quirks", [PY, CPP, COMPACT, REPLY], ids=lambda quirks: quirks.name)
@given(st.dictionaries(st.sampled_from(MEMBERS), VALUES, max_size=3) | VALUES)
def test_documents_of_any_kind(quirks: JsonQuirks, document: Any) -> None:
    _only_inference_errors(lambda: read_document(document, quirks))


def _only_inference_errors(read: Any) -> None:
    try:
        message = read()
    except InferenceError as error:
        # a list of values with a mistyped name is INVALID_TENSOR
        expected = error.code in (ErrorCode.MALFORMED, ErrorCode.INVALID_TENSOR) and bool(error.message)
    else:
        expected = True
        # and what was read is bound, or refused by name
        with suppress(InferenceError):
            decode_request(message, Signature((), ()))
    assert expected
