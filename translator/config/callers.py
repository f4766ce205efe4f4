"""The schema of callers that listeners permit, and of proxies that they trust."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from interlingua.protocols.section import Text
from interlingua.translator.access.grants import check_caller
from interlingua.translator.access.proxies import read_proxies


def _caller(word: str) -> str:
    check_caller(word)
    return word


def _proxy(word: str) -> str:
    read_proxies((word,))
    return word


PermittedCaller = Annotated[Text, AfterValidator(_caller)]
"""``anyone``, ``local``, a network, ``user:NAME``, or ``key:HEADER=FILE``."""
ProxyAddress = Annotated[Text, AfterValidator(_proxy)]
"""A network, or ``unix``."""
