"""The files of the dashboard, as they are in ``web`` and, vendored, in ``third_party/uplot``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from importlib.resources import files
from pathlib import PurePath

from interlingua.protocols.wire import Headers, HttpAnswer
from interlingua.translator.admin.handler import Page, answer

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

POLICY: Headers = (
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("referrer-policy", "no-referrer"),
)
"""The headers of the page. No script and no style in it may be inline, and nothing comes from other hosts."""


async def _served(content_type: str, body: bytes) -> HttpAnswer:
    return answer(200, content_type, body, POLICY)


def _pages() -> Iterator[tuple[str, Page]]:
    web = files("interlingua.translator.dashboard") / "web"
    for each in sorted(web.iterdir(), key=lambda each: each.name):
        suffix = PurePath(each.name).suffix
        if suffix in TYPES:
            path = "/" if each.name == "index.html" else f"/dashboard/{each.name}"
            yield path, partial(_served, TYPES[suffix], each.read_bytes())


PAGES: Mapping[str, Page] = dict(_pages())
"""By path."""
