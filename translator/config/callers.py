"""The schema of callers that listeners permit."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from interlingua.protocols.section import Text
from interlingua.translator.access.grants import check_caller


def _caller(word: str) -> str:
    check_caller(word)
    return word


PermittedCaller = Annotated[Text, AfterValidator(_caller)]
"""``anyone``, ``local``, a network, or ``key:HEADER=FILE``."""
