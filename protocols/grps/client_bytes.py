"""Refuses the bytes that a Python server streams over HTTP: they differ from the bytes of its model.

The server writes the text of a Python bytes object, such as ``b'\\x00raw'``, as one chunk. Proxies may cut
chunks differently, and a model may return such text itself, so the original bytes are lost. Other data
between documents, as from a model that writes whole HTTP answers, are raw bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from interlingua.protocols.grps.client_pieces import Piece
from interlingua.protocols.grps.message import DIALECT_NAME
from interlingua.schemas import not_carried

_BEGINNINGS = (b"b'", b'b"')


class NoPythonBytes:
    """One reply. Its pieces go through :meth:`checked`, those of each part of it in their order."""

    def __init__(self) -> None:
        self._held = b""
        self._begins = True

    def checked(self, pieces: Iterable[Piece], ended: bool = False) -> Iterator[Piece]:
        """``pieces``; with ``ended`` they are the last. Raises UNREPRESENTABLE."""
        for piece in pieces:
            if piece.octets and self._begins:
                begun = self._held + piece.content
                if begun.startswith(_BEGINNINGS):
                    raise not_carried(
                        DIALECT_NAME,
                        "bytes in a stream over HTTP from a Python "
                        "server, which writes them as the text b'…': reach this upstream with "
                        "`transport: grpc`, or request one answer",
                    )
                # one byte is not enough to decide
                self._held, self._begins = (begun, True) if begun == b"b" else (b"", False)
                if not self._begins:
                    yield Piece(begun, octets=True)
                continue
            if not piece.octets:
                yield from self._release()
                self._begins = True
            yield piece
        if ended:
            yield from self._release()

    def _release(self) -> Iterator[Piece]:
        held, self._held = self._held, b""
        if held:
            yield Piece(held, octets=True)
