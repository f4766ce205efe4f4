"""Names in the certificates of clients: the identity of a client, and whether a listener accepts it.

A verified certificate identifies its client by its first URI, else by its first DNS name, else by the common
name of its subject: the order of Envoy's ``principal_name``, in which a SPIFFE id comes first.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Certificate = Mapping[str, Any]
"""What ``ssl.SSLSocket.getpeercert`` returns; empty without a verified certificate."""

_ATTRIBUTES = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
"""The short names of attributes (RFC 4514, section 3)."""

_ESCAPED = re.compile(r'[,+"\\<>;=]|^[ #]| $')


def certificate_of(transport: asyncio.BaseTransport) -> Certificate:
    """The verified certificate of the client of a connection."""
    return transport.get_extra_info("peercert") or {}


def client_identity(transport: asyncio.BaseTransport) -> str | None:
    """The name of the client in its verified certificate, None if it has none."""
    certificate = certificate_of(transport)
    if not certificate:
        return None
    names = dict(reversed(certificate.get("subjectAltName", ())))  # the first of each kind
    return names.get("URI") or names.get("DNS") or dict(_attributes(certificate)).get("commonName")


def subject_of(certificate: Certificate) -> str:
    """The subject as text, the most specific part first (RFC 4514): ``CN=trainer,O=Example``."""
    parts = [f"{_ATTRIBUTES.get(name, name)}={_escaped(value)}" for name, value in _attributes(certificate)]
    return ",".join(reversed(parts))


def alternative_names(certificate: Certificate) -> Sequence[str]:
    """The subject alternative names: DNS names, URIs, IP addresses, mail addresses."""
    return [name for _, name in certificate.get("subjectAltName", ()) if isinstance(name, str)]


class NamePatterns:
    """Names of which one must match; in a pattern ``*`` is any text. Without a pattern every name does."""

    def __init__(self, patterns: Iterable[str]) -> None:
        choices = [".*".join(map(re.escape, pattern.split("*"))) for pattern in patterns]
        self._pattern = re.compile("|".join(choices), re.DOTALL) if choices else None

    def match(self, names: Iterable[str]) -> bool:
        pattern = self._pattern
        return pattern is None or any(pattern.fullmatch(name) for name in names)


def _attributes(certificate: Certificate) -> Iterator[tuple[str, str]]:
    for relative in certificate.get("subject", ()):
        yield from relative


def _escaped(value: str) -> str:
    return _ESCAPED.sub(lambda found: f"\\{found[0]}", value)
