"""Splits a streamed reply over HTTP into JSON documents and raw bytes.

A server writes documents with at most white space between them, and raw bytes without any delimiter; proxies
may cut chunks differently. So the contents decide: a document begins with its status, as both servers write
it, and ends where its braces close; all other data are bytes.

Sans I/O; time and memory grow with the data, however it is cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from interlingua.protocols.wire import Buffer

_BEGINNING = re.compile(rb'\{\s*"status"\s*:\s*\{')
_UNFINISHED_BEGINNING = re.compile(rb'\{\s*(?:"(?:s(?:t(?:a(?:t(?:u(?:s(?:"\s*(?::\s*)?)?)?)?)?)?)?)?)?\Z')
_BLANK = b" \t\r\n"
_IN_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_NO_BRACE = re.compile(rb'(?:[^{}"]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Piece:
    """A whole document, or ``octets``: the bytes so far."""

    content: bytes
    octets: bool = False


class Pieces:
    """The pieces of one reply: :meth:`feed` received data, :meth:`end` at its end."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._scanned = 0
        self._depth = 0
        self._in_string = False
        self._after_document = False

    @property
    def unfinished(self) -> bool:
        """Whether a document has begun and not ended."""
        return self._depth > 0

    def feed(self, arrived: Buffer) -> Iterator[Piece]:
        """The pieces that ``arrived`` completes, in their order."""
        self._pending += arrived
        while self._pending:
            piece = self._document() if self._depth else self._between()
            if piece is None:
                return
            if piece.content:
                yield piece

    def end(self) -> Iterator[Piece]:
        """The rest at the end of the reply, except an ``unfinished`` document."""
        if not self._depth and not self._is_gap(self._pending):
            yield self._octets(len(self._pending))

    def _between(self) -> Piece | None:
        """The bytes before the next document; empty if it begins at once, None if more data must decide."""
        beginning = _BEGINNING.search(self._pending)
        if beginning is None:
            unfinished = _UNFINISHED_BEGINNING.search(self._pending)
            end = unfinished.start() if unfinished is not None else len(self._pending)
            return None if self._is_gap(self._pending[:end]) else self._octets(end)
        start = beginning.start()
        if not self._is_gap(self._pending[:start]):
            return self._octets(start)
        del self._pending[:start]
        self._depth, self._scanned = 1, 1
        return Piece(b"")

    def _is_gap(self, between: bytearray) -> bool:
        """Whether this is empty, or white space between documents."""
        return not between or (self._after_document and not between.strip(_BLANK))

    def _octets(self, end: int) -> Piece:
        # a document may end with a line feed of its own
        start = 1 if self._after_document and self._pending[:1] == b"\n" else 0
        self._after_document = False
        return Piece(self._take(start, end), octets=True)

    def _document(self) -> Piece | None:
        """The document that has begun, if it has ended."""
        text, position = self._pending, self._scanned
        while True:
            if self._in_string:
                position = _end(_IN_STRING, text, position)
                if position == len(text) or text[position] == ord("\\"):
                    break
                position += 1
                self._in_string = False
            position = _end(_NO_BRACE, text, position)
            if position == len(text):
                break
            token = text[position]
            position += 1
            if token == ord('"'):
                self._in_string = True
                continue
            self._depth += 1 if token == ord("{") else -1
            if not self._depth:
                self._after_document = True
                return Piece(self._take(0, position))
        self._scanned = position
        return None

    def _take(self, start: int, end: int) -> bytes:
        with memoryview(self._pending) as view:
            taken = bytes(view[start:end])
        del self._pending[:end]
        return taken


def _end(pattern: re.Pattern[bytes], text: bytearray, position: int) -> int:
    """The end of the longest match at ``position``; the patterns also match empty text."""
    found = pattern.match(text, position)
    return found.end() if found is not None else position
