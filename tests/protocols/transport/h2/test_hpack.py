"""Blocks of headers: read as the library reads them, and once only where a client repeats itself."""

from __future__ import annotations

import pytest
from hpack import Decoder, Encoder, HPACKError
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.transport.h2.frames import Code, H2Error
from interlingua.protocols.transport.h2.header_decoder import HeaderDecoder
from interlingua.protocols.transport.h2.hpack import FieldLines, HpackDecoder
from tests.protocols.transport.h2.peer import block, fields

TEXTS = st.one_of(st.sampled_from((b"", b":path", b"a", b"grpc-timeout", b"5S")), st.binary(max_size=40))
ENTRIES = st.one_of(
    st.integers(0x80, 0xFF).map(lambda index: bytes((index,))),
    st.builds(
        lambda kind, name, value: bytes((kind, len(name))) + name + bytes((len(value),)) + value,
        st.sampled_from((0x00, 0x10, 0x40)),
        TEXTS,
        TEXTS,
    ),
    st.builds(
        lambda kind, value: bytes((kind, len(value))) + value,
        st.sampled_from((0x01, 0x0F, 0x44, 0x7E, 0x7F)),
        TEXTS,
    ),
    st.integers(0x20, 0x3E).map(lambda size: bytes((size,))),
    st.sampled_from(
        (b"\x3f\xe1\x1f", b"\x3f\xe2\x1f", b"\xff\x00", b"\x40\x81\x1f\x81\x1f", b"\x00\x82\xff\xff\x00")
    ),
    st.binary(max_size=6),
)


class TestFields:
    @given(st.lists(st.lists(ENTRIES, max_size=8).map(b"".join), max_size=8))
    def test_are_those_that_the_library_reads(self, blocks: list[bytes]) -> None:
        ours, theirs = HpackDecoder(), Decoder()
        for sent in blocks:
            try:
                expected = [tuple(pair) for pair in theirs.decode(sent, raw=True)]
            except (HPACKError, IndexError):
                with pytest.raises(H2Error):
                    ours.decode(sent)
                return
            assert list(ours.decode(sent)) == expected

    @given(
        st.lists(
            st.tuples(
                st.dictionaries(
                    st.sampled_from(("a", "b", ":path", "x-long")), st.text("ab é", max_size=300)
                ),
                st.integers(-1, 4096),
            ),
            max_size=12,
        )
    )
    def test_that_an_encoder_writes_come_back(self, calls: list[tuple[dict[str, str], int]]) -> None:
        reader, encoder = HpackDecoder(), Encoder()
        for given_, size in calls:
            if size >= 0:
                encoder.header_table_size = size
            sent = [(name.encode(), value.encode()) for name, value in given_.items()]
            assert list(reader.decode(encoder.encode(sent))) == sent

    def test_are_bounded_however_short_they_are_written(self) -> None:
        reader = HpackDecoder()
        reader.decode(b"\x40\x01a\x7f\xb9\x16" + bytes(3000))
        with pytest.raises(H2Error) as error:
            reader.decode(b"\xbe" * 100)
        assert error.value.code is Code.ENHANCE_YOUR_CALM

    @pytest.mark.parametrize(
        "sent",
        [
            b"\x40",
            b"\x40\x05ab",
            b"\x80",
            b"\xc8",
            b"\x3f\xff\xff\xff\xff\xff\xff\x01",
            b"\x88\x20",
            b"\x3f\xe2\x1f",
        ],
    )
    def test_that_are_none(self, sent: bytes) -> None:
        with pytest.raises(H2Error) as error:
            HpackDecoder().decode(sent)
        assert error.value.code is Code.COMPRESSION_ERROR


class TestBlocks:
    def reader(self) -> tuple[HeaderDecoder[FieldLines], list[FieldLines]]:
        understood: list[FieldLines] = []

        def understand(given: FieldLines) -> FieldLines:
            understood.append(given)
            return given

        return HeaderDecoder(understand), understood

    def test_are_read_once(self) -> None:
        reader, understood = self.reader()
        first = reader.read(block(fields()))
        assert reader.read(block(fields())) is first and len(understood) == 1

    def test_of_a_client_that_keeps_a_table(self) -> None:
        reader, understood = self.reader()
        encoder = Encoder()
        seen = []
        for turn in range(50):
            given = fields("/a" if turn % 3 else "/b", ("x", str(turn // 10)))
            seen.append(
                dict(reader.read(encoder.encode(given))) == {k.encode(): v.encode() for k, v in given}
            )
        assert all(seen)
        assert len(understood) < 30

    @given(st.lists(st.tuples(st.sampled_from(("/a", "/b", "/c")), st.integers(0, 3), st.integers(-1, 200))))
    def test_whatever_a_client_does_to_its_table(self, calls: list[tuple[str, int, int]]) -> None:
        reader, _ = self.reader()
        encoder = Encoder()
        for path, value, size in calls:
            if size >= 0:
                encoder.header_table_size = size
            given = fields(path, ("x", str(value)))
            found = reader.read(encoder.encode(given))
            assert [(name.decode(), text.decode()) for name, text in found] == given

    def test_no_more_are_remembered_than_there_is_room_for(self) -> None:
        reader, _ = self.reader()
        for turn in range(1000):
            reader.read(block(fields("/a", ("x", str(turn)))))
        reader.read(block(fields("/a", ("x", "y" * 5000))))
        assert len(reader.known) <= 64 and max(map(len, reader.known)) <= 1024
