"""Requests that a browser sends for a page of another site.

A page can make any browser send a request, to addresses on the browser's machine too, and need not read the
answer. Fetch Metadata (W3C) and the Fetch Standard's ``Origin`` mark such requests.
"""

from __future__ import annotations

from collections.abc import Mapping

_SAME_SITE = ("same-origin", "none")
"""The values of ``Sec-Fetch-Site`` for requests of the server's own pages and of the user."""


_BROWSER = "Mozilla/"
"""The beginning of the ``User-Agent`` of every browser."""


def is_cross_site(headers: Mapping[str, str]) -> bool:
    """Whether a request with ``headers``, by name in lower case, comes from a page of another origin: of
    another site, of the same site at another host or port, or of an opaque origin (``null``); or from a
    browser that does not state it."""
    site = headers.get("sec-fetch-site")
    if site is not None and site.lower() not in _SAME_SITE:
        return True
    origin = headers.get("origin")
    if origin is None:
        # browsers state neither for an image, say, over plain HTTP from another machine (W3C Fetch Metadata)
        return site is None and headers.get("user-agent", "").startswith(_BROWSER)
    # a scheme may differ from ours behind a proxy that terminates TLS
    authority = origin.partition("://")[2]
    return not authority or authority.lower() != headers.get("host", "").lower()
