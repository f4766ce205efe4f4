"""Names in certificates, which are as ``ssl`` returns them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from interlingua.protocols.transport.certificates import (
    NamePatterns,
    alternative_names,
    client_identity,
    subject_of,
)

SUBJECT = ((("countryName", "DE"),), (("organizationName", "Example, Inc."),), (("commonName", "trainer"),))


class Connection(asyncio.BaseTransport):
    """A connection whose client has a certificate."""

    def __init__(self, certificate: Any) -> None:
        super().__init__({"peercert": certificate})


@pytest.mark.parametrize(
    ("certificate", "identity"),
    [
        (None, None),
        ({}, None),
        ({"subject": SUBJECT}, "trainer"),
        ({"subject": SUBJECT, "subjectAltName": (("IP Address", "10.0.0.1"),)}, "trainer"),
        ({"subject": SUBJECT, "subjectAltName": (("DNS", "a.example"), ("DNS", "b.example"))}, "a.example"),
        (
            {"subject": SUBJECT, "subjectAltName": (("DNS", "a.example"), ("URI", "spiffe://example.org/t"))},
            "spiffe://example.org/t",
        ),
        ({"subject": ((("organizationName", "Example"),),)}, None),
    ],
)
def test_identity(certificate: Any, identity: str | None) -> None:
    assert client_identity(Connection(certificate)) == identity


def test_subject() -> None:
    assert subject_of({"subject": SUBJECT}) == r"CN=trainer,O=Example\, Inc.,C=DE"
    assert alternative_names({"subjectAltName": (("DNS", "a"), ("URI", "b"))}) == ["a", "b"]


@pytest.mark.parametrize(
    ("patterns", "names", "matches"),
    [
        ([], [], True),
        (["a.example"], ["a.example"], True),
        (["a.example"], ["axexample", "a.example.org", ""], False),
        (["*.example"], ["b.a.example"], True),
        (["spiffe://x/*", "y"], ["z", "y"], True),
        (["CN=*,O=Example"], ["CN=trainer,O=Example"], True),
        (["CN=*,O=Example"], ["CN=trainer,O=Example,C=DE"], False),
        (["a"], ["a\n"], False),
        (["a"], [], False),
    ],
)
def test_patterns(patterns: list[str], names: list[str], matches: bool) -> None:
    assert NamePatterns(patterns).match(names) is matches
