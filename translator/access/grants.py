"""Who may request the operations of a class, as ``allow`` of a listener states it: ``anyone``, ``local``, a
network, ``user:NAME``, a client that has authenticated as such, with ``user:*`` any that has, or
``key:HEADER=FILE``, callers who send the secret of the file in the header, as with Triton's restricted
APIs."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from interlingua.runtime.upstream.header_file import read_value
from interlingua.translator.access.addresses import Network, PeerAddress, is_local, read_network
from interlingua.translator.access.classes import CLASSES, PRIVILEGED, OperationClass

ANYONE, LOCAL, USER = "anyone", "local", "user:"

ANY_USER = "*"

_HEADER = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""The name of a header: a token (RFC 9110, section 5.6.2)."""


@dataclass(frozen=True, slots=True)
class Key:
    """A caller who sends ``secret`` in ``header``, a name in lower case."""

    header: str
    secret: bytes = field(repr=False)

    def opens(self, headers: Mapping[str, str]) -> bool:
        """Whether ``headers`` have the secret. Takes the same time for every value of its length."""
        value = headers.get(self.header)
        return value is not None and hmac.compare_digest(value.encode(errors="surrogateescape"), self.secret)


@dataclass(frozen=True, slots=True)
class Grant:
    """The callers who may request the operations of a class."""

    anyone: bool = False
    local: bool = False
    networks: tuple[Network, ...] = ()
    keys: tuple[Key, ...] = ()
    users: frozenset[str] = frozenset()

    def covers(self, address: PeerAddress) -> bool:
        """Whether the address permits a caller, on any machine."""
        if self.anyone or address is None or isinstance(address, str):
            return self.anyone
        return any(address in network for network in self.networks)

    def covers_local(self, address: PeerAddress) -> bool:
        """Whether the address permits a caller because it is on this machine."""
        return self.local and is_local(address)

    def covers_user(self, identity: str | None) -> bool:
        """Whether the identity of a caller permits it."""
        return identity is not None and (identity in self.users or ANY_USER in self.users)

    def key(self, headers: Mapping[str, str]) -> str:
        """The header with the secret of a key; empty if there is none."""
        return next((key.header for key in self.keys if key.opens(headers)), "")


Grants = Mapping[OperationClass, Grant]

DEFAULTS: Mapping[OperationClass, tuple[str, ...]] = {
    name: (LOCAL,) if name in PRIVILEGED else (ANYONE,) for name in CLASSES
}
"""The callers that a listener permits where its ``allow`` does not state them."""


def read_grants(stated: Mapping[OperationClass, Iterable[str]]) -> Grants:
    """A grant for every class: ``stated``, else the default. Reads the files of keys. Raises ``OSError`` and
    ``ValueError``."""
    return {name: read_grant(stated.get(name, DEFAULTS[name])) for name in CLASSES}


def read_grant(callers: Iterable[str]) -> Grant:
    """The grant for ``callers``. Raises as :func:`read_grants`; no text quotes a secret."""
    words = tuple(callers)
    return Grant(
        ANYONE in words,
        LOCAL in words,
        tuple(read_network(word) for word in words if word not in (ANYONE, LOCAL) and _is_network(word)),
        tuple(_read_key(word) for word in words if word.startswith("key:")),
        frozenset(word.removeprefix(USER) for word in words if word.startswith(USER)),
    )


def check_caller(word: str) -> None:
    """Refuse a word that names no callers, or a key whose file is unreadable. Raises ``ValueError``."""
    if word in (ANYONE, LOCAL):
        return
    if word.startswith(USER):
        if word == USER:
            raise ValueError(f"'{word}' is not of the form user:NAME")
        return
    if word.startswith("key:"):
        _read_key(word)
        return
    if not word[:1].isdigit() and ":" not in word:
        choices = "anyone, local, a network such as 10.0.0.0/8, user:NAME, key:HEADER=FILE"
        raise ValueError(f"unknown caller '{word}' (allowed: {choices})")
    read_network(word)


def _is_network(word: str) -> bool:
    return not word.startswith(("key:", USER))


def _read_key(word: str) -> Key:
    header, separator, path = word.removeprefix("key:").partition("=")
    if not separator or not path:
        raise ValueError(f"'{word}' is not of the form key:HEADER=FILE")
    header = header_name(header)
    try:
        secret = read_value(path)
    except OSError as error:
        raise ValueError(f"'{path}' cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"'{path}' {error}") from None
    return Key(header, secret.encode())


def header_name(header: str) -> str:
    """The name of a header with text, in lower case. Raises ``ValueError``."""
    if not _HEADER.fullmatch(header) or header.lower().endswith("-bin"):
        raise ValueError(f"'{header}' cannot be the name of a header with text")
    return header.lower()
