"""Text of errors: short ones unchanged, long ones of bounded size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.runtime.model_config.config import LoadError
from interlingua.schemas import invalid_tensor
from interlingua.schemas.bounded_text import MESSAGE_CHARS, listed, shortened


def test_a_long_name_keeps_the_sentence_around_it() -> None:
    text = str(invalid_tensor(f"input '{'N' * 1_000_000}' has no datatype 'FLOAT'"))
    assert text.startswith("input 'NNN") and "…" in text and text.endswith("N' has no datatype 'FLOAT'")
    assert len(text) == MESSAGE_CHARS


@given(st.text(), st.integers(1, 5000), st.integers(10, 1000))
def test_every_text_is_bounded(text: str, times: int, limit: int) -> None:
    whole = text * times
    cut = shortened(whole, limit)
    assert cut == whole if len(whole) <= limit else len(cut) == limit
    assert shortened(cut, limit) == cut


def test_a_list_of_names_ends() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed(f"t{n}" for n in range(117)).endswith(", t19 … and 97 more")
    assert listed([]) == ""


@pytest.mark.parametrize("make", [invalid_tensor, LoadError])
def test_messages_of_errors_are_bounded(make: type[Exception]) -> None:
    assert len(str(make("x y " * 10**6))) == MESSAGE_CHARS
    assert str(make("n" * MESSAGE_CHARS)) == "n" * MESSAGE_CHARS
