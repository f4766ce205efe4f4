"""Whatever GraphPipe can carry survives the wire; whatever the bytes, no other error comes out."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.graphpipe import codec, metadata
from interlingua.protocols.graphpipe.capability import OVER_HTTP
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    ModelMetadata,
    RequestedOutput,
    Signature,
    Tensor,
    TensorSpec,
)
from tests.protocols.graphpipe import oracle
from tests.strategies import datatypes, names, shapes, signature_of, tensor_tuples, tensors

CARRIED = OVER_HTTP.exact | OVER_HTTP.widened.keys()
REFUSED = frozenset(Datatype) - CARRIED

TEXTS = st.just("") | names()


def joined(request: InferRequest) -> bytes:
    return b"".join(codec.encode_request(request))


@st.composite
def specs(draw: st.DrawFn) -> TensorSpec:
    shape = draw(st.lists(st.integers(-1, 2**63 - 1), max_size=4))
    datatype = draw(datatypes(OVER_HTTP.exact))
    return TensorSpec(draw(names()), datatype, tuple(shape), description=draw(TEXTS))


@given(tensor_tuples(CARRIED), tensor_tuples(CARRIED), st.data(), st.text('{}[]:" é\0', max_size=9))
def test_requests(
    inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...], data: st.DataObject, config: str
) -> None:
    asked = data.draw(st.none() | st.lists(st.sampled_from(outputs), min_size=1, unique_by=lambda t: t.name))
    request = InferRequest(
        "m",
        inputs,
        None if asked is None else tuple(RequestedOutput(tensor.name) for tensor in asked),
        version="3",
        parameters={"config": config} if config else {},
    )
    body = joined(request)
    back, form = codec.decode_request(codec.open_request(body), signature_of(inputs, outputs), "m", "3")
    assert back == request
    assert form == (None if asked is None else tuple(tensor.name for tensor in asked))
    read = oracle.read_request(body)
    assert read is not None
    assert [bytes(name).decode() for name in read["input_names"]] == [tensor.name for tensor in inputs]


@given(tensor_tuples(CARRIED, max_size=4))
def test_responses(outputs: tuple[Tensor, ...]) -> None:
    body = b"".join(codec.encode_response(None, outputs))
    assert codec.decode_response(body, None, signature_of([], outputs)) == outputs
    read, errors = oracle.read_response(body)
    assert errors == []
    assert [tensor.shape for tensor in read] == [list(tensor.shape) for tensor in outputs]
    for seen, tensor in zip(read, outputs, strict=True):
        if tensor.datatype is Datatype.BYTES:
            assert seen.strings == tensor.elements()
        else:
            assert seen.data == bytes(tensor.view)


@given(tensors(REFUSED))
def test_the_others_are_refused(tensor: Tensor) -> None:
    for write in (
        lambda: codec.encode_request(InferRequest("m", (tensor,))),
        lambda: codec.encode_response(None, (tensor,)),
    ):
        with pytest.raises(InferenceError) as caught:
            write()
        assert caught.value.code is ErrorCode.UNREPRESENTABLE
        assert f"'{tensor.name}'" in caught.value.message


@given(
    names(),
    st.lists(specs(), max_size=3),
    st.lists(specs(), max_size=3),
    st.lists(names(), max_size=1),
    names(),
    TEXTS,
)
def test_metadata(
    name: str,
    inputs: list[TensorSpec],
    outputs: list[TensorSpec],
    versions: list[str],
    platform: str,
    description: str,
) -> None:
    told = ModelMetadata(
        name, Signature(tuple(inputs), tuple(outputs)), tuple(versions), platform, description
    )
    body = metadata.encode_metadata(metadata.describe(told))
    given = {spec.name for spec in outputs}  # what is an input too need not be sent
    free = tuple(replace(spec, optional=spec.name in given) for spec in inputs)
    back = metadata.model_metadata(metadata.decode_metadata(body), "unused")
    assert (back.name, back.signature) == (name, Signature(free, tuple(outputs)))
    assert back.description.startswith(description)
    assert all(f"version {version}" in back.description for version in versions)


@given(st.sampled_from(list(ErrorCode)), names(max_size=30))
def test_errors(code: ErrorCode, message: str) -> None:
    with pytest.raises(InferenceError) as caught:
        codec.decode_response(codec.encode_error(InferenceError(code, message)), None, None)
    assert caught.value.code is code
    assert caught.value.message == message


SIGNATURE = Signature(
    tuple(TensorSpec(name, Datatype.BOOL, ()) for name in "ab"),
    tuple(TensorSpec(name, Datatype.BOOL, ()) for name in "xy"),
)
READERS: tuple[Callable[[bytes], object], ...] = (
    lambda body: codec.decode_request(codec.open_request(body), SIGNATURE),
    lambda body: codec.decode_response(body, None, SIGNATURE),
    lambda body: codec.decode_response(body, None, None),
    lambda body: metadata.model_metadata(metadata.decode_metadata(body), ""),
)


def survives(body: bytes) -> None:
    """Every reader comes back with a value or an ``InferenceError``."""
    for read in READERS:
        with suppress(InferenceError):
            read(body)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A valid message of any of the four kinds."""
    some = draw(tensor_tuples(CARRIED, shape=shapes(max_rank=2)))
    kind = draw(st.integers(0, 3))
    if kind == 0:
        renamed = tuple(tensor.renamed(name) for tensor, name in zip(some, "ab", strict=False))
        return joined(InferRequest("", renamed, (RequestedOutput("x"),), parameters={"config": "c"}))
    if kind == 1:
        return b"".join(codec.encode_response(None, some))
    if kind == 2:
        return codec.encode_error(InferenceError(ErrorCode.INTERNAL, "boom"))
    told = ModelMetadata("m", signature_of(some, some), ("1",), "p", "d")
    return metadata.encode_metadata(metadata.describe(told))


INTERESTING = st.sampled_from(
    [0, 1, 2, 4, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32 - 4]
) | st.integers(0, 200)


@given(st.binary(max_size=200))
def test_arbitrary_bytes(body: bytes) -> None:
    survives(body)


@given(messages(), st.integers(0, 400))
def test_truncated_messages(body: bytes, size: int) -> None:
    survives(body[:size])


@given(messages(), st.lists(st.tuples(st.integers(0, 100), INTERESTING), min_size=1, max_size=4))
def test_messages_with_other_offsets_and_lengths(body: bytes, edits: list[tuple[int, int]]) -> None:
    """Loops, overlaps, offsets before the beginning and behind the end, vast vectors."""
    mutated = bytearray(body)
    for word, value in edits:
        at = 4 * word % (len(mutated) - 3)
        mutated[at : at + 4] = struct.pack("<I", value)
    survives(bytes(mutated))


@given(messages(), st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), min_size=1, max_size=8))
def test_messages_with_other_bytes(body: bytes, edits: list[tuple[int, int]]) -> None:
    mutated = bytearray(body)
    for at, value in edits:
        mutated[at % len(mutated)] = value
    survives(bytes(mutated))
