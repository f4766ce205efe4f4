"""The number of a version, as requests write it."""

from __future__ import annotations

import re

from interlingua.schemas.errors import invalid_tensor

# blanks around a number are let pass, as by Triton
_NUMBER = re.compile(r" *-?[0-9]{1,19} *")
_LAST_NUMBER = 2**63 - 1


def version_number(requested: str) -> str:
    """The canonical spelling of ``requested``; the texts are Triton's. Raises INVALID_TENSOR, since the
    message itself is well-formed."""
    if _NUMBER.fullmatch(requested) is None or abs(int(requested)) > _LAST_NUMBER:
        raise invalid_tensor(
            f"failed to get model version from specified version string '{requested}' (details: stol), "
            "version should be an integral value > 0"
        )
    if int(requested) < 0:
        raise invalid_tensor(
            f"invalid model version specified '{requested}' , version should be an integral value > 0"
        )
    return str(int(requested))
