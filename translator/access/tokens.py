"""The file of tokens: a line for each, ``NAME: sha256:HEX``, with the digest of the token, not the token.

A name may have several tokens, so that one replaces another without a gap.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from pathlib import Path

_LINE = re.compile(r"(?P<name>[^\s#]\S*?)\s*:\s*sha256:(?P<digest>[0-9a-fA-F]{64})\s*(?:#.*)?")

Tokens = Mapping[bytes, str]
"""Names by the SHA-256 digest of a token."""


def read_tokens(path: str) -> Tokens:
    """The tokens in the file at ``path``. Raises ``OSError``, and ``ValueError`` that names the line and
    quotes none of it: it may have a secret."""
    found: dict[bytes, str] = {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = _LINE.fullmatch(stripped)
        if match is None or match["name"] == "*":
            raise ValueError(f"{path}:{number}: not of the form NAME: sha256:HEX")
        if found.setdefault(bytes.fromhex(match["digest"]), match["name"]) != match["name"]:
            raise ValueError(f"{path}:{number}: another name has the same token")
    return found


def name_of(tokens: Tokens, digest: bytes) -> str | None:
    """The name of the token with ``digest``. Takes the same time for every digest."""
    found = None
    for each, name in tokens.items():
        if hmac.compare_digest(each, digest):
            found = name
    return found
