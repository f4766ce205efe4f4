"""The field lines that a message may have (RFC 9113, 8.1 and 8.2). With others it is malformed (8.1.1)."""

from __future__ import annotations

import re

from interlingua.protocols.transport.h2.hpack import FieldLines

CONNECTION_SPECIFIC = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade")
)
"""Fields of HTTP/1 connections (8.2.2)."""

NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
"""The name of a field: a token in lower case (8.2.1)."""

UNFIT_VALUE = re.compile(rb"[\x00\n\r]|\A[\t ]|[\t ]\Z").search
"""What no value has (8.2.1)."""


def fit_te(value: bytes) -> bool:
    """Whether a ``te`` field may have this value (8.2.2)."""
    return value.lower() == b"trailers"


def fit_trailers(fields: FieldLines) -> bool:
    """Whether a trailer section may have these fields: no pseudo-header fields (8.1)."""
    for name, value in fields:
        if not NAME.fullmatch(name) or name in CONNECTION_SPECIFIC or UNFIT_VALUE(value):
            return False
        if name == b"te" and not fit_te(value):
            return False
    return True
