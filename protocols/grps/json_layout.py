"""JSON text laid out over lines: what protobuf's printers write, at the speed of ``bytes.replace``.

Arrays of numbers are compact text that gets its white space as a whole, never element by element.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Layout:
    """White space for ``indent`` spaces a level; with None there is none at all."""

    __slots__ = ("_colon", "_indent")

    def __init__(self, indent: int | None) -> None:
        self._indent = indent
        self._colon = b":" if indent is None else b": "

    def members(self, members: Iterable[tuple[bytes, bytes]], depth: int) -> bytes:
        """An object at ``depth``, of quoted names and their values."""
        return self._block(b"{", [(name, self._colon, value) for name, value in members], b"}", depth)

    def items(self, items: Iterable[bytes], depth: int) -> bytes:
        """An array at ``depth`` of finished ``items``."""
        return self._block(b"[", [(item,) for item in items], b"]", depth)

    def _block(self, opening: bytes, items: Sequence[Sequence[bytes]], closing: bytes, depth: int) -> bytes:
        if not items:
            return opening + closing
        line = self._line(depth + 1)
        parts = [opening, line, *items[0]]
        for item in items[1:]:
            parts += (b",", line, *item)
        # joined once: values may be large
        return b"".join((*parts, self._line(depth), closing))

    def numbers(self, text: bytes, depth: int, quote: bytes = b"") -> bytes:
        """A compact array ``text`` of numbers, each in ``quote`` marks."""
        if self._indent is None and not quote:
            return text
        line = self._line(depth + 1)
        body = text[1:-1].replace(b",", quote + b"," + line + quote)
        return b"".join((b"[", line, quote, body, quote, self._line(depth), b"]"))

    def nested(self, text: bytes, depth: int, shape: Sequence[int]) -> bytes:
        """The compact array ``text`` of the rows of an array of ``shape``, which has at least two dimensions
        and none of 0, as nested arrays."""
        rank = len(shape)
        inner = depth + rank
        comma = b"," + self._line(inner)
        pieces = text[2:-2].replace(b",", comma).split(b"]" + comma + b"[")
        for level in range(1, rank):
            gap = self._close(inner, level) + b"," + self._open(inner, level)
            size = shape[rank - 1 - level]
            pieces = [gap.join(pieces[start : start + size]) for start in range(0, len(pieces), size)]
        opening = b"[" + self._open(inner, rank - 1)
        closing = self._close(inner, rank - 1) + self._line(depth) + b"]"
        return b"".join((opening, *pieces, closing))

    def _open(self, inner: int, level: int) -> bytes:
        """The text before an element at depth ``inner`` that begins ``level`` arrays."""
        return self._line(inner - level) + b"".join(
            b"[" + self._line(depth) for depth in range(inner - level + 1, inner + 1)
        )

    def _close(self, inner: int, level: int) -> bytes:
        """The text after an element that ends as many."""
        return b"".join(self._line(depth) + b"]" for depth in range(inner - 1, inner - 1 - level, -1))

    def _line(self, depth: int) -> bytes:
        return b"" if self._indent is None else b"\n" + b" " * (self._indent * depth)
