"""Values between transports and handlers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np

from interlingua.protocols.wire import HttpAnswer


async def _stream() -> AsyncIterator[bytes]:
    yield b"abc"


def test_an_answer_has_the_size_of_its_parts() -> None:
    wide = memoryview(np.zeros((2, 3), np.float32))
    assert HttpAnswer(200).size == 0
    assert HttpAnswer(200, (), [b"abc", wide, bytearray(2)]).size == 3 + 24 + 2
    assert HttpAnswer(200, (), _stream()).size == 0


def test_an_answer_with_other_parts_has_their_size() -> None:
    """Content-Length is this size."""
    assert replace(HttpAnswer(200, (), (b"abc",)), parts=(b"abc", b"de")).size == 5
