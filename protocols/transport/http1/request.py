"""The bytes of a request up to its body (RFC 9112, 3 and 5)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

_REMEMBERED_BYTES = 256
"""The longest header value that is remembered with its line."""

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_UNFIT_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_UNFIT_TARGET = re.compile(r"[\x00-\x20\x7f]")

_EMPTY_WITHOUT_LENGTH = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods whose requests need no Content-Length if they have no body (RFC 9110, 8.6)."""


class RequestHeads:
    """Writes the heads of requests to one server; ``host`` is its name, ``base`` the prefix of every path."""

    def __init__(self, host: str, base: str) -> None:
        # clients request few different targets
        self._begin = lru_cache(256)(_beginning)
        self._host = host
        self._base = base
        self._last: tuple[object, ...] = ()
        self._last_head = b""

    def write(
        self, method: str, path: str, query: str, headers: Mapping[str, str], length: int | None
    ) -> bytes:
        """The head of a request whose body has ``length`` bytes; None: it is chunked. Raises ``ValueError``
        for a line break, for example."""
        call = (method, path, query, length, *headers.items())
        if call != self._last:  # callers repeat themselves
            self._last_head = self._written(method, path, query, headers, length)
            self._last = call
        return self._last_head

    def lines(self, headers: Mapping[str, str]) -> bytes:
        """The lines of ``headers``. Raises as :meth:`write`."""
        return "".join([_new_line(name, value) for name, value in headers.items()]).encode()

    def _written(
        self, method: str, path: str, query: str, headers: Mapping[str, str], length: int | None
    ) -> bytes:
        head = self._begin(self._host, self._base, method, path, query)
        for name, value in headers.items():
            head += _line(name, value) if len(value) <= _REMEMBERED_BYTES else _new_line(name, value)
        if length is None:
            return f"{head}Transfer-Encoding: chunked\r\n\r\n".encode()
        if length or method not in _EMPTY_WITHOUT_LENGTH:
            return f"{head}Content-Length: {length}\r\n\r\n".encode()
        return f"{head}\r\n".encode()


def _beginning(host: str, base: str, method: str, path: str, query: str) -> str:
    # a base path is an address of its own; "/" adds nothing to it
    target = base if base and path == "/" else f"{base}{path}"
    if query:
        target = f"{target}?{query}"
    if not _NAME.fullmatch(method) or _UNFIT_TARGET.search(target):
        raise ValueError("the request line has a character that ends it")
    return f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n"


def _new_line(name: str, value: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:80]!r} is not the name of a header")
    if _UNFIT_VALUE.search(value):
        raise ValueError(f"the header '{name[:80]}' has a control character")
    return f"{name}: {value}\r\n"


_line = lru_cache(1024)(_new_line)
