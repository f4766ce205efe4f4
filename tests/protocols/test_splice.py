"""A splice does what a codec does, or there is none."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlingua.protocols.splice import Splice, find_splice
from interlingua.protocols.templates import place_in, template_of

MESSAGE = b"head" + b"abcdefgh" + b"between" + b"ijkl" + b"tail"
PLACES = [(4, 12), (19, 23)]


def test_contents_move_between_constants() -> None:
    found = find_splice(MESSAGE, PLACES, lambda data: b"<" + data[19:23] + b"|" + data[4:12] + b">")
    assert found == Splice(((b"<", 19, 23), (b"|", 4, 12)), b">")
    assert found.of(b"HEADABCDEFGHBETWEENIJKLTAIL") == b"<IJKL|ABCDEFGH>"
    assert found.of(memoryview(MESSAGE)) == b"<ijkl|abcdefgh>"


def test_contents_may_be_split_repeated_or_left_out() -> None:
    found = find_splice(MESSAGE, PLACES, lambda data: data[8:12] + data[4:8] + data[4:8])
    assert found is not None
    assert found.of(MESSAGE) == b"efghabcdabcd"


@pytest.mark.parametrize(
    "make",
    [
        lambda data: bytes(each ^ 1 for each in data),
        lambda data: data[4:12][::-1][:4] + bytes([data[4] & 0x7F]),
        lambda data: bytes([sum(data[4:12]) & 255]),
        lambda data: b"%d" % data[4],
        lambda data: data[4:12] if any(data[4:12]) else b"zeros",  # a shorter form of equal elements
        lambda data: data[4:12].replace(b"\xff" * 4, b"\xff\xff\xff\x7f"),  # another NaN
        lambda data: data[4:12] if data == MESSAGE else data[:8],
        lambda data: None if data[4] > 200 else data[4:12],
        lambda data: b"constant",
        lambda data: b"",
        lambda data: b"".join(data[place : place + 1] + b"," for place in range(4, 12)) * 4,
    ],
)
def test_anything_else_has_none(make: object) -> None:
    assert find_splice(MESSAGE, PLACES, make) is None  # type: ignore[arg-type]


def test_contents_that_overlap_have_none() -> None:
    assert find_splice(MESSAGE, [(4, 12), (8, 16)], lambda data: data) is None


@settings(deadline=None, max_examples=50)
@given(
    st.binary(min_size=1, max_size=3000), st.lists(st.binary(max_size=5), min_size=3, max_size=3), st.data()
)
def test_of_any_size(contents: bytes, around: list[bytes], data: st.DataObject) -> None:
    first, between, last = around
    cut = data.draw(st.integers(0, len(contents) - 1))
    message = first + contents[:cut] + between + contents[cut:] + last
    at = len(first) + cut
    places = [
        (start, stop)
        for start, stop in ((len(first), at), (at + len(between), len(message) - len(last)))
        if start < stop
    ]
    found = find_splice(message, places, lambda each: last + b"".join(each[a:b] for a, b in reversed(places)))
    assert found is not None
    other = data.draw(st.binary(min_size=len(message), max_size=len(message)))
    assert found.of(other) == last + b"".join(other[a:b] for a, b in reversed(places))
    assert b"".join(piece for _, _, piece in template_of(message, places, None).segments) == b"".join(around)


def test_places() -> None:
    view = memoryview(MESSAGE)
    assert place_in(MESSAGE, view[4:12]) == (4, 12)
    assert place_in(view[2:], view[4:12]) == (2, 10)
    assert place_in(view[:8], view[4:12]) is None
    assert place_in(MESSAGE, bytes(view[4:12])) is None
    assert place_in(MESSAGE, view[4:4]) is None
    assert place_in(b"", view[4:12]) is None
