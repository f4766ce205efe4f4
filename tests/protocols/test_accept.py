"""What clients want where a path has a page for people."""

from __future__ import annotations

import pytest

from interlingua.protocols.accept import wants_html, wants_openmetrics


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8", True),  # Firefox
        ("text/html", True),
        ("TEXT/HTML; q=0.5", True),
        ("text/*", True),
        ("application/json;q=0.5, text/html", True),
        ("", False),
        ("*/*", False),  # curl, requests
        ("application/json, text/plain, */*", False),  # axios
        ("text/html;q=0", False),
        ("text/html;q=0.5, application/json", False),
        ("text/html;q=nonsense", False),
        ("text/plain", False),
        (",;,=", False),
    ],
)
def test_who_wants_html(accept: str, wanted: bool) -> None:
    assert wants_html(accept) is wanted


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        # Prometheus 2.42
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        ("application/openmetrics-text", True),
        ("text/plain;version=0.0.4", False),
        ("application/*", False),
        ("*/*", False),
        ("", False),
        ("application/openmetrics-text;q=0", False),
    ],
)
def test_who_wants_openmetrics(accept: str, wanted: bool) -> None:
    assert wants_openmetrics(accept) is wanted
