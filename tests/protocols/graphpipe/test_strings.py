"""Tensors of many strings: read and written right at any length, alignment and sharing, within bounds."""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pytest
from graphpipe import convert
from hypothesis import given, settings
from hypothesis import strategies as st

from interlingua.protocols.graphpipe import codec, reader, writer
from interlingua.protocols.graphpipe.runs import copy_runs
from interlingua.schemas import Datatype, ErrorCode, InferenceError, Tensor, TensorSpec
from interlingua.schemas import Signature as Known

SIGNATURE = Known((), (TensorSpec("x", Datatype.BYTES, (-1,)),))


def strings(elements: list[bytes]) -> Tensor:
    packed = b"".join(struct.pack("<I", len(element)) + element for element in elements)
    return Tensor("x", Datatype.BYTES, (len(elements),), memoryview(packed))


def body_of(elements: list[bytes]) -> bytes:
    return b"".join(codec.encode_response(None, (strings(elements),)))


def read(body: bytes) -> list[bytes]:
    [tensor] = codec.decode_response(body, ("x",), SIGNATURE)
    return tensor.elements()


def message(vector: list[int], tail: bytes) -> bytes:
    """An answer whose strings stand in ``tail``, at ``vector`` in it."""
    count = len(vector)
    block = bytearray()
    for index, place in enumerate(vector):
        block += struct.pack("<I", 4 * (count - index) + place)
    return b"".join(
        writer.infer_response(((12, (count,), count, len(block) + len(tail)),), [bytes(block) + tail])
    )


def one(word: bytes) -> bytes:
    return struct.pack("<I", len(word)) + word + bytes(4)


_LENGTHS = st.sampled_from([0, 1, 2, 3, 4, 5, 7, 8, 63, 1023, 1024, 1025, 3000])


@settings(max_examples=60)
@given(st.lists(_LENGTHS, min_size=60, max_size=5000) | st.lists(_LENGTHS, max_size=70), st.randoms())
def test_any_lengths(lengths: list[int], random: object) -> None:
    rng = np.random.default_rng(len(lengths))
    elements = [rng.integers(0, 256, length, np.uint8).tobytes() for length in lengths]
    body = body_of(elements)
    assert read(body) == elements
    # the published reader, which wants the NUL behind each
    [array], _ = convert.deserialize_infer_response(body)
    assert [bytes(element) for element in array.reshape(-1)] == [
        element.rstrip(b"\0") for element in elements
    ]


@pytest.mark.parametrize(
    "count", [writer.FEW - 1, writer.FEW, writer.FEW + 1, (1 << 16) - 1, (1 << 16) + 1, 200_000]
)
def test_any_number(count: int) -> None:
    elements = [b"%d" % (number % 1999) for number in range(count)]
    assert read(body_of(elements)) == elements


def test_few_and_many_strings_look_alike() -> None:
    elements = [bytes([65 + number % 26]) * (number % 11) for number in range(500)]
    assert bytes(writer.packed_block(strings(elements).view, 500)) == bytes(writer.string_block(elements))


@pytest.mark.parametrize("shift", range(4))
def test_alignment_does_not_matter(shift: int) -> None:
    words = [b"abc", b"", b"0123456789"]
    tail, places = bytes(shift), []
    for word in words:
        places.append(len(tail))
        tail += struct.pack("<I", len(word)) + word  # as graphpipe-go: no NUL, no padding
    assert read(message(places * 50, tail)) == words * 50


@pytest.mark.parametrize(("count", "word"), [(1_000_000, b""), (1000, bytes(1000)), (70_000, b"positive")])
def test_shared_strings_are_taken(count: int, word: bytes) -> None:
    """Builders share equal strings; a thousand labels of a thousand bytes are a message of 5 KB."""
    assert read(message([0] * count, one(word))) == [word] * count


@pytest.mark.parametrize(
    ("count", "size"), [(20_000, 1000), (70_000, 1000), (1_000_000, 1_000_000), (100, 1 << 20)]
)
def test_what_they_unfold_to_is_bounded(count: int, size: int) -> None:
    body = message([0] * count, one(bytes(size)))
    tracemalloc.start()
    try:
        with pytest.raises(InferenceError, match="unfolds to more than 16 times") as caught:
            read(body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.code is ErrorCode.MALFORMED
    assert peak < reader.MAX_UNFOLDING * len(body) + 2 * reader.ALWAYS_UNFOLDED


@pytest.mark.parametrize("count", [10, 100])
@pytest.mark.parametrize("place", [-1, 1 << 20, (1 << 32) - 4096])
def test_an_offset_that_leaves_the_message(count: int, place: int) -> None:
    body = bytearray(message([0] * count, one(b"abc")))
    if place == -1:
        body[-8 - 3 :] = struct.pack("<I", 1 << 31)  # a length
    else:
        # the last offset of the vector
        struct.pack_into("<I", body, len(body) - len(one(b"abc")) - 4, place)
    with pytest.raises(InferenceError, match="outside of its|cut short") as caught:
        read(bytes(body))
    assert caught.value.code is ErrorCode.MALFORMED


def test_a_shape_that_is_not_the_number_is_refused_before_the_strings_are_read() -> None:
    body = b"".join(writer.infer_response(((12, (7,), 100, 400),), [b"\xff" * 400]))
    with pytest.raises(InferenceError, match="needs 7 strings, got 100"):
        read(body)


def test_runs_of_every_size_are_copied() -> None:
    source = np.arange(1 << 16, dtype=np.uint32).view(np.uint8)
    rng = np.random.default_rng(1)
    sizes = rng.integers(0, 2000, 5000)
    starts = rng.integers(0, len(source) - 2000, 5000)
    places = np.cumsum(sizes) - sizes
    target = np.zeros(sizes.sum(), np.uint8)
    copy_runs(source, starts, target, places, sizes)
    assert target.tobytes() == b"".join(
        source[start : start + size].tobytes() for start, size in zip(starts, sizes, strict=True)
    )
