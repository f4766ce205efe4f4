"""Base64 in JSON: long texts are decoded in pieces, between which other threads run."""

from __future__ import annotations

import binascii
from base64 import b64decode

from interlingua.schemas import offload

_PIECE_CHARS = 1 << 16
"""About 2 ms of work; a multiple of four."""


def decode_base64(text: str) -> bytes:
    """The bytes of ``text``, which has padding (RFC 4648, section 4). Raises ``ValueError``, and
    ``OffloadRequired`` for a long text on an event loop."""
    if len(text) <= _PIECE_CHARS:
        return b64decode(text, validate=True)
    offload.require()
    if "=" in text[:-2]:
        raise binascii.Error("padding before the end")
    pieces = range(0, len(text), _PIECE_CHARS)
    return b"".join([b64decode(text[begin : begin + _PIECE_CHARS], validate=True) for begin in pieces])
