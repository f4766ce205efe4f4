"""Removes credentials from the text of log lines.

Messages quote URLs, headers and texts of clients and servers, any of which may contain a secret.
"""

from __future__ import annotations

import re

REDACTED = "[redacted]"

_SCHEMES = r"(?:bearer|basic|digest|negotiate|apikey)"
_NAMES = r"(?:proxy-)?authorization|cookie|x-api-key|api[_-]?key|access[_-]?token|token|passw(?:or)?d|secret"

_SECRET = re.compile(
    # RFC 3986, section 3.2.1: user information in front of the host
    r"(?P<url>[a-z][a-z0-9+.-]*://)[^\s/?#@'\"]+@"
    # RFC 9110, section 11.4: the scheme and the credentials, with or without the name of the header
    rf"|(?P<header>\b(?:{_NAMES})['\"]?\s*[:=]\s*['\"]?(?:{_SCHEMES}\s+)?)(?!{_SCHEMES}\b)[^\s'\",;&]+"
    rf"|(?P<scheme>\b{_SCHEMES}\s+)[a-z0-9._~+/-]{{8,}}=*",
    re.IGNORECASE,
)

_MARK = re.compile("[@:= ]")
"""What every text with a credential has."""


def redacted(text: str) -> str:
    """``text`` without the passwords of URLs, and without the values of headers and parameters that
    authenticate."""
    return _SECRET.sub(_without, text) if _MARK.search(text) else text


def _without(found: re.Match[str]) -> str:
    if found["url"] is not None:
        return f"{found['url']}{REDACTED}@"
    return f"{found['header'] or found['scheme']}{REDACTED}"
