"""Frames of baidu_std: the recorded ones, any cut, any bytes."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.protobuf_wire import varint
from interlingua.protocols.transport.brpc.compression import decompress, name_of
from interlingua.protocols.transport.brpc.frame import (
    BrpcFrameReader,
    Frame,
    FrameError,
    read_meta,
    write_answer,
    write_error,
    write_request,
)
from interlingua.protocols.transport.brpc.trace import user_fields
from interlingua.schemas import ErrorCode, InferenceError
from tests.standins.brpc_frames import SERVICE, fields, frame, number, request_frame, text
from tests.standins.brpc_server import answer_frame

GOLDEN = Path(__file__).parents[3] / "golden" / "grps" / "brpc"
BAIDU_STD = sorted(path for path in GOLDEN.iterdir() if path.read_bytes().startswith(b"PRPC"))
INT64 = st.integers(-(2**63), 2**63 - 1)


def frames(*pieces: bytes, limit: int = 1 << 20, skims: bool = False) -> Iterator[Frame]:
    cutter = BrpcFrameReader(limit, skims=skims)
    for piece in pieces:
        cutter.feed(piece)
        while (found := cutter.next()) is not None:
            yield found


def only(data: bytes) -> Frame:
    (found,) = frames(data)
    return found


# recorded


def test_the_recordings_are_there() -> None:
    assert len(BAIDU_STD) > 40


@pytest.mark.parametrize("path", BAIDU_STD, ids=lambda path: path.name)
def test_our_frames_are_the_recorded_ones(path: Path) -> None:
    data = path.read_bytes()
    found = only(data)
    meta, payload = found.meta, found.payload
    assert payload is not None
    if meta.attachment_size or meta.compress_type:
        # never written by us, so what there is is read
        assert meta.compress_type in (0, 1, 2, 3) and meta.attachment_size in (0, 10, 72, 94)
        return
    if meta.service is None:
        written = write_answer(meta.correlation_id, bytes(payload))
    else:
        written = write_request(meta.service, meta.method, meta.correlation_id, bytes(payload))
    assert b"".join(written) == data


@pytest.mark.parametrize("kind", [1, 2, 3])
def test_recorded_compressed_messages_say_what_their_answers_repeat(kind: int) -> None:
    asked = only((GOLDEN / f"Predict_compress{kind}.c2s").read_bytes())
    said = only((GOLDEN / f"Predict_compress{kind}.s2c").read_bytes())
    assert asked.payload is not None and said.payload is not None
    assert asked.meta.compress_type == kind
    plain = bytes(decompress(kind, asked.payload, 1 << 20))
    assert plain and bytes(said.payload).endswith(plain)


def test_a_recorded_attachment() -> None:
    asked = only((GOLDEN / "Predict_attachment.c2s").read_bytes())
    assert asked.payload is not None
    assert asked.meta.attachment_size == 10
    assert bytes(asked.payload[-10:]) == b"ATTACHDATA"


# cutting


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=4), st.data())
def test_the_pieces_do_not_matter(payloads: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(request_frame("Predict", payload, id) for id, payload in enumerate(payloads))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    found = [(each.meta.correlation_id, bytes(each.payload or b"")) for each in frames(*pieces)]
    assert found == list(enumerate(payloads))


def test_cut_at_every_byte() -> None:
    whole = request_frame("Predict", b"payload", 7, attachment=b"more", timeout_ms=1500)
    for cut in range(len(whole) + 1):
        (found,) = frames(whole[:cut], whole[cut:])
        assert (found.meta.service, found.meta.method) == (SERVICE, "Predict")
        assert (found.meta.correlation_id, found.meta.timeout_ms) == (7, 1500)
        assert found.payload == b"payloadmore"
    drops = [bytes((octet,)) for octet in whole * 3]
    assert [each.payload for each in frames(*drops)] == [b"payloadmore"] * 3


def test_nothing_comes_of_half_a_frame() -> None:
    whole = request_frame("Predict", b"payload")
    cutter = BrpcFrameReader()
    assert not cutter.partial
    for cut in range(len(whole) - 1):
        cutter.feed(whole[cut : cut + 1])
        assert cutter.next() is None
        assert cutter.partial


def test_a_large_message_in_one_piece_is_not_copied() -> None:
    data = request_frame("Predict", bytes(1 << 20))
    found = next(frames(data, limit=2 << 20))
    assert found.payload is not None
    assert found.payload.obj is data
    assert found.payload.readonly


@given(st.binary(max_size=80))
def test_any_bytes_give_frames_or_a_frame_error(data: bytes) -> None:
    try:
        found = list(frames(data))
    except FrameError:
        return
    assert not found or data.startswith(b"PRPC")


@given(st.binary(max_size=60), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_any_sizes(rest: bytes, size: int, meta_size: int) -> None:
    data = b"PRPC" + size.to_bytes(4, "big") + meta_size.to_bytes(4, "big") + rest
    tracemalloc.start()
    try:
        for skims in (False, True):
            try:
                list(frames(data, limit=1 << 16, skims=skims))
            except FrameError:
                continue
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "data",
    [
        *(b"QRPC", b"P ", b"PRPX00000000"),
        frame(b"\xff\xff"),
        frame(text(1, text(1, "service"))),
        frame(text(1, text(2, "method"))),
        frame(text(1, b"")),
    ],
)
def test_what_ends_a_connection(data: bytes) -> None:
    with pytest.raises(FrameError):
        list(frames(data))


def test_a_body_above_the_limit_is_refused_by_its_header_alone() -> None:
    head = b"PRPC" + (1025).to_bytes(4, "big") + (10).to_bytes(4, "big")
    with pytest.raises(FrameError, match="1025 bytes, more than the 1024 allowed"):
        list(frames(head, limit=1024))
    assert list(frames(head.replace(b"\x04\x01", b"\x04\x00"), limit=1024)) == []


def test_a_long_meta_is_refused_before_it_arrives() -> None:
    """Its fields would become objects on the event loop."""
    size = 1 << 20
    with pytest.raises(FrameError, match="meta of 1048576 bytes"):
        next(frames(b"PRPC" + 2 * size.to_bytes(4, "big")))


def test_a_long_meta_of_an_answer_has_few_fields() -> None:
    reader = BrpcFrameReader(skims=True)
    meta = b"\x20\x01" * (1 << 16)  # correlation_id, again and again
    reader.feed(b"PRPC" + 2 * len(meta).to_bytes(4, "big") + meta)
    with pytest.raises(FrameError, match="more than 1024 fields"):
        reader.next()


def test_a_meta_longer_than_its_body_is_passed_over() -> None:
    bad = b"PRPC" + (5).to_bytes(4, "big") + (6).to_bytes(4, "big") + b"abcde"
    good = request_frame("Predict", b"after")
    for cut in range(len(bad)):
        (found,) = frames(bad[:cut], bad[cut:] + good)
        assert found.payload == b"after"


def test_what_is_too_large_is_skimmed_where_that_is_wanted() -> None:
    large = answer_frame(5, bytes(5000))
    small = answer_frame(6, b"small")
    for step in (1, 7, 100, 4096, 10_000):
        stream = large + small
        pieces = [stream[place : place + step] for place in range(0, len(stream), step)]
        first, second = frames(*pieces, limit=1024, skims=True)
        assert (first.meta.correlation_id, first.payload, first.size) == (5, None, len(large) - 12)
        assert (second.meta.correlation_id, second.payload) == (6, b"small")


def test_a_large_frame_is_thrown_away_while_it_arrives() -> None:
    large, small = request_frame("Predict", bytes(50_000)), request_frame("Predict", b"small")
    reader = BrpcFrameReader()
    reader.feed(large[:20])  # without its meta
    assert reader.next() is None and reader.arriving and reader.skip() is None
    reader.feed(large[20:30_000])
    assert reader.next() is None and reader.filled == 30_000
    thrown = reader.skip()
    assert thrown is not None
    assert (thrown.meta.method, thrown.payload, thrown.length) == ("Predict", None, len(large))
    assert (reader.filled, reader.arrived, reader.space) == (0, 30_000, None)
    reader.feed(large[30_000:40_000])
    assert reader.next() is None and (reader.arriving, reader.arrived) == (True, 40_000)
    reader.feed(large[40_000:] + small)
    found = reader.next()
    assert found is not None and found.payload == b"small"
    assert (reader.arriving, reader.arrived, reader.next()) == (False, 0, None)


def test_a_frame_that_is_thrown_away_has_its_meta() -> None:
    meta_size = 30_000
    head = b"PRPC" + (50_000).to_bytes(4, "big") + meta_size.to_bytes(4, "big")
    reader = BrpcFrameReader()
    reader.feed(head + bytes(20_000))
    assert reader.next() is None and reader.skip() is None and reader.filled == 20_012


def test_a_frame_that_is_thrown_away_leaves_its_credential() -> None:
    large = request_frame("Predict", bytes(50_000), extra=credential("secret"))
    reader = BrpcFrameReader()
    reader.feed(large[:-1])
    assert reader.next() is None and reader.skip() is not None
    reader.feed(large[-1:] + request_frame("Predict", b"small"))
    found = reader.next()
    assert found is not None and found.meta.headers["authorization"] == "Bearer secret"


def test_a_skimmed_meta_has_a_limit() -> None:
    size = 1 << 20
    head = b"PRPC" + size.to_bytes(4, "big") * 2
    with pytest.raises(FrameError):
        list(frames(head, limit=1024, skims=True))


# metas


@given(INT64)
def test_correlation_ids_come_back_untouched(correlation_id: int) -> None:
    asked = only(b"".join(write_request(SERVICE, "Predict", correlation_id, b"")))
    said = only(b"".join(write_answer(correlation_id, b"")))
    failed = only(b"".join(write_error(correlation_id, 1002, "no")))
    assert {each.meta.correlation_id for each in (asked, said, failed)} == {correlation_id}
    assert only(request_frame("Predict", b"", correlation_id)).meta.correlation_id == correlation_id


@given(st.text(max_size=20), st.text(max_size=20), st.integers(0, 2**31 - 1), st.binary(max_size=30))
def test_requests_read_as_they_were_written(
    service: str, method: str, timeout_ms: int, message: bytes
) -> None:
    data = b"".join(write_request(service, method, 1, message, timeout_ms))
    found = only(data)
    assert (found.meta.service, found.meta.method, found.meta.timeout_ms) == (service, method, timeout_ms)
    assert found.payload == message
    if not timeout_ms:
        assert data == request_frame(method, message, 1, service=service)


@given(st.integers(1, 2**31 - 1), st.text(max_size=40))
def test_errors_read_as_they_were_written(code: int, words: str) -> None:
    data = b"".join(write_error(3, code, words))
    found = only(data)
    assert (found.meta.error_code, found.meta.error_text) == (code, words)
    assert found.payload == b""
    assert fields(data[12:])[3] == [0]


def test_text_that_no_wire_can_hold_has_a_question_mark() -> None:
    assert only(b"".join(write_error(3, 2001, "a\ud800b"))).meta.error_text == "a?b"


def test_what_a_meta_leaves_out() -> None:
    meta = read_meta(b"")
    assert meta.service is None
    assert (meta.correlation_id, meta.compress_type, meta.attachment_size, meta.error_code) == (0, 0, 0, 0)


def test_what_newer_versions_add_is_ignored() -> None:
    entry = text(1, "key") + text(2, "value")
    extra = text(9, entry) + number(10, 1) + number(11, 1) + text(12, b"sum") + text(7, b"secret")
    assert only(request_frame("Predict", b"p", 9, extra=extra)).meta.correlation_id == 9


def test_names_that_are_not_utf8() -> None:
    found = only(frame(text(1, text(1, b"\xff\xfe") + text(2, b"m\xff"))))
    assert (found.meta.service, found.meta.method) == ("��", "m�")


# compression


@given(st.binary(max_size=300))
def test_every_compression(plain: bytes) -> None:
    packed = {
        0: plain,
        1: bytes(cramjam.snappy.compress_raw(plain)),
        2: gzip.compress(plain),
        3: zlib.compress(plain),
    }
    for kind, data in packed.items():
        assert bytes(decompress(kind, memoryview(data), 300)) == plain


@given(st.binary(max_size=60), st.integers(-5, 10))
def test_any_bytes_decompress_or_give_an_inference_error(data: bytes, kind: int) -> None:
    refused = None
    try:
        assert len(decompress(kind, memoryview(data), 1000)) <= 1000
    except InferenceError as error:
        refused = error.code
    assert refused in (None, ErrorCode.MALFORMED, ErrorCode.TOO_LARGE, ErrorCode.UNSUPPORTED)


@pytest.mark.parametrize(
    ("kind", "packed"),
    [
        (1, cramjam.snappy.compress_raw),
        (2, gzip.compress),
        (3, zlib.compress),
        # four gigabytes, claimed in as many bytes
        (1, lambda _: b"\xff\xff\xff\xff\x0f"),
    ],
    ids=["snappy", "gzip", "zlib", "claim"],
)
def test_a_bomb_costs_no_more_than_the_limit(kind: int, packed: Callable[[bytes], Any]) -> None:
    bomb = bytes(packed(bytes(64 << 20)))
    tracemalloc.start()
    try:
        with pytest.raises(InferenceError) as caught:
            decompress(kind, memoryview(bomb), 1 << 20)
        assert caught.value.code is ErrorCode.TOO_LARGE
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_snappy_that_claims_too_much_for_its_size_is_refused() -> None:
    with pytest.raises(InferenceError, match="cannot be"):
        decompress(1, memoryview(b"\x80\x80\x04abc"), 1 << 20)


def test_an_unknown_compression() -> None:
    with pytest.raises(InferenceError, match="compression type 4 is unknown"):
        decompress(4, memoryview(b""), 10)
    assert [name_of(kind) for kind in (0, 1, 2, 3, 4, -1)] == [
        "none",
        "snappy",
        "gzip",
        "zlib",
        *["unknown"] * 2,
    ]


# headers

WORDS = st.text(st.characters(codec="utf-8"), max_size=20)
HEADERS = st.dictionaries(
    st.sampled_from(["x-a", "tracestate", "x-request-id", "baggage"]), WORDS, max_size=4
)


@given(HEADERS)
def test_headers_are_user_fields(headers: dict[str, str]) -> None:
    data = b"".join(write_request(SERVICE, "Predict", 7, b"message", 5, headers))
    found = only(data)
    assert found.meta.headers == headers and found.payload == b"message"
    assert (found.meta.service, found.meta.method, found.meta.timeout_ms) == (SERVICE, "Predict", 5)


def test_the_whole_trace_wins_over_its_numbers() -> None:
    """A bRPC client sends both: the numbers hold the low half of the trace alone."""
    told = {"traceparent": f"00-{1:032x}-{2:016x}-00", "X-Request-ID": "seven"}
    trace = number(4, -5) + number(5, 6) + text(7, "other")
    headers = only(request_frame("M", trace=trace, user_fields=told)).meta.headers
    assert headers == {"traceparent": told["traceparent"], "x-request-id": "seven"}


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        (number(4, -1) + number(5, -2), {"traceparent": f"00-{2**64 - 1:032x}-{2**64 - 2:016x}-01"}),
        (number(4, 1) + number(6, 2), {"traceparent": f"00-{1:032x}-{2:016x}-01"}),
        (number(4, 1), {}),  # a parent of zeros is no valid one
        (number(5, 1), {}),
        (text(7, b"\xff"), {}),
    ],
)
def test_the_numbers_of_a_trace(trace: bytes, expected: dict[str, str]) -> None:
    assert only(request_frame("M", trace=trace)).meta.headers == expected


@pytest.mark.parametrize(
    ("entry", "expected"),
    [(text(1, b"a") + text(2, b"\xff"), {"x": "y"}), (text(1, b"\xff") + text(2, b"a"), {})],
)
def test_user_fields_that_are_not_text_do_no_harm(entry: bytes, expected: dict[str, str]) -> None:
    """A value is left out; a name ends all of them."""
    found = only(request_frame("M", extra=text(9, entry), user_fields={"x": "y"}))
    assert found.meta.headers == expected


@pytest.mark.parametrize(
    "traceparent", ["", "00-1-2-3", f"00-{1:032X}g-{2:016x}-01", f"00-{1:032x}-{2:016x}"]
)
def test_what_is_no_trace_has_no_numbers(traceparent: str) -> None:
    (data,) = write_request(SERVICE, "M", 7, b"", 0, {"traceparent": traceparent})
    assert set(fields(fields(bytes(data)[12:])[1][0])) == {1, 2}  # type: ignore[arg-type]


@given(st.lists(st.integers(0, 300_000), min_size=1, max_size=6), st.integers(1, 400_000))
def test_frames_out_of_a_buffer_that_changes(sizes: list[int], cut: int) -> None:
    payloads = [bytes([index + 1]) * size for index, size in enumerate(sizes)]
    stream = memoryview(b"".join(request_frame("Predict", payload) for payload in payloads))
    shared = memoryview(bytearray(cut))
    reader, found, place = BrpcFrameReader(), [], 0
    while place < len(stream):
        space = reader.space
        into = shared if space is None else space
        count = min(len(into), cut, len(stream) - place)
        into[:count] = stream[place : place + count]
        place += count
        if space is None:
            reader.feed(shared[:count])
        else:
            reader.received(count)
        while (frame := reader.next()) is not None:
            found.append(frame.payload)
        reader.keep()
        shared[:] = bytes(cut)
    assert found == payloads
    assert not reader.partial


def credential(data: str) -> bytes:
    """The ``authentication_data`` of a meta."""
    return b"\x3a" + varint(len(data)) + data.encode()


def test_a_credential_is_for_all_requests_of_a_connection() -> None:
    """As brpc's ``Authenticator`` has it: clients send it in the first frame alone."""
    names = write_meta()
    own = user_fields([("authorization", "Bearer own")])
    metas = [names, names + credential("s3cret"), names, names + own, names + credential("BEARER new"), names]
    found = [each.meta.headers.get("authorization") for each in frames(b"".join(map(framed, metas)))]
    assert found == [None, "Bearer s3cret", "Bearer s3cret", "Bearer own", "BEARER new", "BEARER new"]


def write_meta() -> bytes:
    """The meta of a request."""
    (head,) = write_request("s", "m", 1, b"")
    return bytes(head[12:])


def framed(meta: bytes) -> bytes:
    return b"PRPC" + struct.pack(">II", len(meta), len(meta)) + meta
