"""Bytes that were broken on the way: what a hostile or faulty client makes of a good message."""

from __future__ import annotations

from hypothesis import strategies as st


@st.composite
def mutated(draw: st.DrawFn, message: bytes) -> bytes:
    """``message`` cut off, with some bytes replaced, or with a part of it missing or doubled."""
    place = st.integers(0, len(message))
    start, end = sorted((draw(place), draw(place)))
    kind = draw(st.sampled_from(("cut", "replace", "drop", "double")))
    if kind == "cut":
        return message[:start]
    if kind == "replace":
        return message[:start] + draw(st.binary(min_size=1, max_size=8)) + message[start + 1 :]
    if kind == "drop":
        return message[:start] + message[end:]
    return message[:end] + message[start:]
