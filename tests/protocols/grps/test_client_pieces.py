"""A streamed reply cut into documents and bytes, however it arrives."""

from __future__ import annotations

import json
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.grps.client_pieces import Piece, Pieces

STATUS = {"code": 200, "msg": "OK", "status": "SUCCESS"}
PY = json.dumps({"status": STATUS, "str_data": "one"}, indent=2).encode()
CPP = json.dumps({"status": STATUS, "str_data": 'a "}{" \\'}, indent=1).encode() + b"\n"


def cut(text: bytes, *places: int) -> list[Piece]:
    """The pieces of ``text`` that arrives cut at ``places``, bytes that follow bytes joined."""
    pieces = Pieces()
    found: list[Piece] = []
    for start, end in pairwise([0, *places, len(text)]):
        found += pieces.feed(text[start:end])
    assert not pieces.unfinished
    found += pieces.end()
    joined: list[Piece] = []
    for piece in found:
        if joined and piece.octets and joined[-1].octets:
            joined[-1] = Piece(joined[-1].content + piece.content, octets=True)
        else:
            joined.append(piece)
    return joined


def octets(content: bytes) -> Piece:
    return Piece(content, octets=True)


CASES = {
    "py": (PY + PY, [Piece(PY), Piece(PY)]),
    "cpp": (CPP + CPP, [Piece(CPP[:-1])] * 2),
    "bytes": (b"\0\xff{", [octets(b"\0\xff{")]),
    "bytes that begin with a blank": (b" \n a", [octets(b" \n a")]),
    "events": (b'data: {"a": {}}\n\ndata: "\n\n', [octets(b'data: {"a": {}}\n\ndata: "\n\n')]),
    "JSON of another kind": (b'{"stat": 1}{"status":2}', [octets(b'{"stat": 1}{"status":2}')]),
    "bytes, then an error": (b'x"{' + PY, [octets(b'x"{'), Piece(PY)]),
    "bytes between": (CPP + b"\n x\n" + PY, [Piece(CPP[:-1]), octets(b"\n x\n"), Piece(PY)]),
    "blanks between": (CPP + b" \r\n\t" + PY + b"\n\n", [Piece(CPP[:-1]), Piece(PY)]),
    "nothing": (b"", []),
    "a beginning that goes on otherwise": (b'{ "status" : 1', [octets(b'{ "status" : 1')]),
}


@pytest.mark.parametrize("name", CASES)
def test_however_it_is_cut(name: str) -> None:
    text, pieces = CASES[name]
    assert cut(text) == pieces
    assert cut(text, *range(1, len(text))) == pieces
    for place in range(len(text)):
        assert cut(text, place) == pieces


@given(st.data())
def test_any_documents_and_bytes_in_any_cut(data: st.DataObject) -> None:
    document = st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.just({"a": ["}", {}]})))
    pieces: list[Piece] = []
    text = b""
    for members in data.draw(st.lists(st.one_of(document, st.binary(min_size=1)), max_size=5)):
        if isinstance(members, dict):
            written = json.dumps({"status": STATUS, **members}, ensure_ascii=False).encode()
            pieces.append(Piece(written))
            text += written + b"\n"
        elif not pieces or not pieces[-1].octets:
            # with a mark in front and behind they are bytes for certain
            pieces.append(octets(b"." + members + b"."))
            text += pieces[-1].content
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    assert cut(text, *places) == pieces


def test_bytes_come_as_they_arrive_and_what_may_begin_a_document_waits() -> None:
    pieces = Pieces()
    assert list(pieces.feed(b"abc")) == [octets(b"abc")]
    assert list(pieces.feed(b'de{"st')) == [octets(b"de")]
    assert list(pieces.feed(b"op")) == [octets(b'{"stop')]
    assert list(pieces.feed(b"{")) == []
    assert list(pieces.end()) == [octets(b"{")]


def test_a_document_without_its_end() -> None:
    pieces = Pieces()
    assert list(pieces.feed(PY[:-1])) == []
    assert pieces.unfinished
    assert list(pieces.end()) == []


@pytest.mark.parametrize("values", [b'"%s"' % (b"x" * (1 << 23)), b'"1", ' * (1 << 20) + b'""'])
def test_large_documents_in_small_pieces_take_linear_time(values: bytes) -> None:
    def seconds(times: int) -> float:
        text = b'{"status": {"code": 200}, "data": [' + b", ".join([values] * times) + b"]}"
        began = time.process_time()
        (piece,) = cut(text, *range(1 << 12, len(text), 1 << 12))
        assert piece == Piece(text)
        return time.process_time() - began

    # what is quadratic takes sixteen times as long
    assert min(seconds(4) for _ in range(2)) < 9 * min(seconds(1) for _ in range(2))
