"""The authorization of an address, from its options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from interlingua.translator.access.authorization import Authorization
from interlingua.translator.access.classes import OperationClass
from interlingua.translator.access.grants import read_grants
from interlingua.translator.access.proxies import read_proxies


class AccessOptions(Protocol):
    """The options of a listener, or of the admin address."""

    @property
    def listen(self) -> str: ...

    @property
    def allow(self) -> Mapping[OperationClass, Sequence[str]]: ...

    @property
    def trusted_proxies(self) -> Sequence[str]: ...


def authorization(
    options: AccessOptions, defaults: Mapping[OperationClass, Sequence[str]] | None = None
) -> Authorization:
    """The authorization of the address; ``defaults`` are the callers of classes that it does not state.
    Raises ``ValueError`` for an unreadable key."""
    grants = read_grants({**(defaults or {}), **options.allow})
    return Authorization(options.listen, grants, read_proxies(options.trusted_proxies))
