"""Targets for what delimits messages: HTTP/1, HTTP/2, gRPC, baidu_std, tcp frames and content codings.

The bytes of a connection arrive cut anywhere: every reader must find the same messages in an input and in its
pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

from hpack import Decoder, HPACKError

from interlingua.protocols.content_coding import deflate, inflate
from interlingua.protocols.transport.brpc import compression
from interlingua.protocols.transport.brpc.frame import BrpcFrameReader, FrameError, write_request
from interlingua.protocols.transport.framed.splitter import FrameSplitter, FrameTooLargeError
from interlingua.protocols.transport.grpc import client_headers, headers
from interlingua.protocols.transport.grpc.messages import MessageError, MessageStream
from interlingua.protocols.transport.h2.client import ClientConnection
from interlingua.protocols.transport.h2.frames import PREFACE, H2Error, data_header, frame, header_frames
from interlingua.protocols.transport.h2.hpack import MAX_HEADER_LIST, HpackDecoder
from interlingua.protocols.transport.h2.hpack_encoder import literal
from interlingua.protocols.transport.h2.server import ServerConnection
from interlingua.protocols.transport.h2.stream import Stream
from interlingua.protocols.transport.http1.body import BodyError, ChunkedBody
from interlingua.protocols.transport.http1.headers import HeadersError
from interlingua.protocols.transport.http1.reader import ReadState, RequestReader
from interlingua.protocols.transport.http1.reply_reader import ReplyReader, ReplyState
from interlingua.protocols.transport.memory import unfilled
from interlingua.protocols.transport.proxy_protocol import SIGNATURE, ProxyHeaderError, read_proxy_header
from interlingua.protocols.wire import FORWARDED_FOR
from interlingua.schemas import InferenceError
from interlingua.translator.access.addresses import is_local, read_address
from interlingua.translator.access.proxies import read_proxies
from tests.fuzz.golden import messages, trtis_messages
from tests.fuzz.target import Target

_LIMIT = 1 << 20
"""The largest message, in bytes, before and after decompression."""

_Found = list[Any]
"""What a reader has found, up to its refusal of the input, if any."""


def _cut(data: bytes) -> list[bytes]:
    """``data`` in pieces: single bytes at the start and in the middle, and the rest."""
    middle, end = len(data) // 2, len(data)
    cuts = sorted({0, min(1, end), min(2, end), middle, min(middle + 1, end), end})
    return [data[start:stop] for start, stop in pairwise(cuts)]


def however_cut(read: Callable[[Iterable[bytes]], _Found]) -> Callable[[bytes], None]:
    """A check that ``read`` finds the same in an input and in its pieces."""

    def run(data: bytes) -> None:
        whole, cut = read((data,)), read(_cut(data))
        assert whole == cut, f"{whole}\nin pieces is\n{cut}"

    return run


# --- HTTP/1


def http_requests(pieces: Iterable[bytes]) -> _Found:
    """The requests of HTTP/1 in ``pieces``, up to a refusal."""
    reader, found = RequestReader(), []
    try:
        for piece in pieces:
            reader.receive(piece)
            while reader.state is ReadState.BODY or reader.pending:
                if reader.state is ReadState.BODY:
                    reader.read_body()
                elif reader.read_headers() is None:
                    break
                if reader.state is not ReadState.ANSWERING:
                    if not reader.pending:
                        break
                    continue
                head = reader.headers
                found.append((head.method, head.path, head.query, dict(head.headers), bytes(reader.body)))
                if not head.keep_alive:
                    reader.close()
                    return found
                reader.answered()
    except (HeadersError, BodyError) as error:
        found.append(type(error))
    return found


def _http_reply(streamed: bool) -> Callable[[Iterable[bytes]], _Found]:
    def read(pieces: Iterable[bytes]) -> _Found:
        reader, body = ReplyReader(), b""
        reader.begin(streamed=streamed)
        try:
            for piece in pieces:
                if reader.complete:  # what follows answers no request
                    break
                reader.receive(piece)
                body += reader.take()
            if not reader.complete:
                reader.end()
                body += reader.take()
        except (HeadersError, BodyError) as error:
            return [type(error)]
        assert reader.state is ReplyState.SPOILED or reader.complete
        body = body if streamed else bytes(reader.body)
        head = reader.headers
        return [head.status, dict(head.headers), head.keep_alive, body, reader.complete]

    return read


def _http_replies(data: bytes) -> None:
    however_cut(_http_reply(streamed=False))(data)
    however_cut(_http_reply(streamed=True))(data)


def _chunks(pieces: Iterable[bytes]) -> _Found:
    body = ChunkedBody()
    try:
        for piece in pieces:
            at = 0
            while at < len(piece) and not body.complete:  # it takes some chunks at a time
                at = body.feed(piece, at)
    except BodyError:
        return [BodyError]
    return [body.complete, body.whole(), body.size]


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data) if data else b"0\r\n\r\n"


def _chunked_body(data: bytes) -> None:
    however_cut(_chunks)(data)
    found = _chunks((data,))
    if found[0] is True:
        assert _chunks((_chunked(found[1]),)) == found


def _http_messages(side: int) -> Iterator[bytes]:
    for exchange in trtis_messages():
        yield exchange[side]
        head, _, body = exchange[side].partition(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length")]
        yield b"\r\n".join([*lines, b"transfer-encoding: chunked", b"", b""]) + _chunked(body)
    yield from messages("grps/brpc", f"proto_http.{('c2s', 's2c')[side]}")


# --- HTTP/2 and gRPC


class _Call(MessageStream):
    """Either end of a call, which records its messages up to one that is refused."""

    __slots__ = ("found", "refused")

    def __init__(self, number: int, window: int, ended: bool, found: _Found) -> None:
        super().__init__(number, window, ended)
        self.found, self.refused = found, False

    def data_received(self, data: Any, start: int, stop: int, ended: bool) -> None:
        try:
            for message in (
                () if self.refused else self.messages_in(data, start, stop, "gzip", _LIMIT, unfilled)
            ):
                self.found.append((self.id, bytes(message)))
        except MessageError as error:
            self.refused = True
            self.found.append((self.id, error.code))
        if ended:
            self.found.append((self.id, "end"))

    def headers_received(self, headers: Any, ended: bool) -> None:
        self.found.append((self.id, headers, ended))

    def on_reset(self, code: int) -> None:
        self.found.append((self.id, "reset"))

    def on_unprocessed(self) -> None:
        self.found.append((self.id, "unprocessed"))


def _h2_server(pieces: Iterable[bytes]) -> _Found:
    found: _Found = []

    def accept(connection: Any, number: int, head: Any, ended: bool) -> Stream | None:
        found.append((number, head))
        return None if head is None else _Call(number, connection.sender.initial_window, ended, found)

    connection: ServerConnection[Any] = ServerConnection(headers.read_headers, accept, lambda *parts: None)
    for piece in pieces:
        connection.receive(piece)
    found.append(connection.closed)
    return found


def _h2_client(pieces: Iterable[bytes]) -> _Found:
    found: _Found = []
    connection: ClientConnection[Any, _Call] = ClientConnection(
        client_headers.read_headers, lambda *parts: None, lambda: None
    )
    for _ in range(3):
        connection.open(_Call(0, 0, False, found))
    for piece in pieces:
        connection.receive(piece)
    found.append(connection.closed)
    return found


_SETTINGS = frame(4, 0, 0)


def _h2_seeds(server: bool) -> Iterator[bytes]:
    yield from messages("grps/brpc", "proto_h2*.c2s" if server else "proto_h2*.s2c")
    request = b"".join(
        literal(*pair)
        for pair in (
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", b"/test.Echo/Call"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
        )
    )
    head = request if server else headers.ANSWER_HEADERS
    message = b"\0\0\0\0\5hello"
    start = (PREFACE if server else b"") + _SETTINGS
    for number in (1, 3):
        start += header_frames(head, number, ended=False, largest=9 if number > 1 else 1 << 14)
        start += data_header(len(message), number, int(server)) + message
        start += b"" if server else header_frames(headers.OK, number, ended=True, largest=1 << 14)
    yield start
    yield start + b"".join(
        (
            frame(6, 0, 0, bytes(8)),
            frame(8, 0, 1, b"\0\0\1\0"),
            frame(3, 0, 3, bytes(4)),
            frame(7, 0, 0, bytes(8)),
        )
    )


def _hpack(data: bytes) -> None:
    """Blocks of one connection, each after its size in two bytes, as the library decodes them."""
    ours, library = HpackDecoder(), Decoder(max_header_list_size=4 * MAX_HEADER_LIST)
    while len(data) >= 2:
        size = int.from_bytes(data[:2], "big")
        block, data = data[2 : 2 + size], data[2 + size :]
        try:
            expected: Any = [tuple(field) for field in library.decode(block, raw=True)]
        except (HPACKError, IndexError):
            expected = H2Error
        try:
            fields: Any = [tuple(field) for field in ours.decode(block)]
        except H2Error:
            fields = H2Error
        assert fields == expected, f"{block!r} is {fields}, not {expected}"
        if fields is H2Error:
            return


def _hpack_seeds() -> Iterator[bytes]:
    blocks = (
        # RFC 7541, C.3 and C.4
        bytes.fromhex("828684410f7777772e6578616d706c652e636f6d"),
        bytes.fromhex("828684be58086e6f2d6361636865"),
        bytes.fromhex("828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565"),
        bytes.fromhex("828684418cf1e3c2e5f23a6ba0ab90f4ff"),
        bytes.fromhex("3f09828684be5886a8eb10649cbf"),
        headers.ANSWER_HEADERS + headers.OK,
    )
    yield from (len(block).to_bytes(2, "big") + block for block in blocks)
    yield b"".join(len(block).to_bytes(2, "big") + block for block in blocks)


def _grpc_messages(pieces: Iterable[bytes]) -> _Found:
    found: _Found = []
    call = _Call(1, 0, False, found)
    for piece in pieces:
        call.data_received(piece, 0, len(piece), False)
    return found


def _grpc_seeds() -> Iterator[bytes]:
    packed = b"".join(bytes(part) for part in deflate("gzip", [b"a" * 100]))
    yield b"\0\0\0\0\5hello" + b"\1" + len(packed).to_bytes(4, "big") + packed
    yield b"\0\0\0\0\0\0\0\0\0\1x"


# --- baidu_std and tcp


def _brpc_frames(pieces: Iterable[bytes]) -> _Found:
    reader, found = BrpcFrameReader(_LIMIT, skims=True), []
    try:
        for piece in pieces:
            reader.feed(piece)
            while (each := reader.next()) is not None:
                found.append((each.meta, None if each.payload is None else bytes(each.payload), each.size))
    except FrameError:
        found.append(FrameError)
    return found


def _brpc(data: bytes) -> None:
    however_cut(_brpc_frames)(data)
    for each in _brpc_frames((data,)):
        if each is FrameError or each[1] is None:
            continue
        meta, payload, _ = each
        try:
            message = compression.decompress(meta.compress_type, memoryview(payload), _LIMIT)
        except InferenceError:
            continue
        if meta.service is not None and meta.timeout_ms >= 0:
            parts = write_request(
                meta.service, meta.method, meta.correlation_id, message, meta.timeout_ms, meta.headers
            )
            again = _brpc_frames((b"".join(map(bytes, parts)),))[0]
            kept = ("service", "method", "correlation_id", "timeout_ms", "headers")
            assert [getattr(again[0], name) for name in kept] == [getattr(meta, name) for name in kept]
            assert again[1] == bytes(message)


def _tcp_frames(pieces: Iterable[bytes]) -> _Found:
    splitter, found = FrameSplitter(_LIMIT), []
    try:
        for piece in pieces:
            while piece:
                space = splitter.space()
                count = min(len(space), len(piece))
                space[:count] = piece[:count]
                splitter.received(count)
                piece = piece[count:]
                while (message := splitter.next()) is not None:
                    found.append(bytes(message))
    except FrameTooLargeError as error:
        found.append(error.size)
    return found


def _tcp_seeds() -> Iterator[bytes]:
    framed = [len(each).to_bytes(4, "little") + each for each in messages("graphpipe", "*.req.bin")]
    yield from framed
    yield b"".join(framed[:3])


def _proxy_header(data: bytes) -> None:
    """The same header whatever follows it."""
    try:
        header = read_proxy_header(data)
    except ProxyHeaderError:
        return
    if header is not None:
        assert read_proxy_header(data[: header.size]) == header
        assert read_proxy_header(data[: header.size - 1]) is None


def _proxy_seeds() -> Iterator[bytes]:
    yield b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\nGET"
    yield b"PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n"
    yield b"PROXY UNKNOWN\r\n"
    for family, size in ((0x11, 12), (0x21, 36), (0x31, 216), (0, 0)):
        yield SIGNATURE + bytes((0x21, family)) + (size + 3).to_bytes(2, "big") + bytes(size + 3)
    yield SIGNATURE + b"\x20\0\0\0"


_PROXIES = read_proxies(("10.0.0.0/8", "fd00::/8"))
_PROXY = read_address("10.0.0.9")


def _forwarded_for(data: bytes) -> None:
    """No header makes the client of a proxy of another machine one of this machine."""
    client = _PROXIES.client(_PROXY, {FORWARDED_FOR: data.decode("utf-8", "surrogateescape")})
    assert not is_local(client), client


# --- content codings


def _content(data: bytes) -> None:
    """A body whose first byte selects its coding."""
    kind, body = data[:1], data[1:]
    try:
        if kind == b"s":
            compression.decompress(1, memoryview(body), _LIMIT)
            return
        coding = "deflate" if kind == b"d" else "gzip"
        plain = inflate(coding, body, _LIMIT)
    except InferenceError:
        return
    assert inflate(coding, b"".join(map(bytes, deflate(coding, [plain]))), _LIMIT) == plain


def _content_seeds() -> Iterator[bytes]:
    for plain in (b"", b"a" * 1000, bytes(range(256))):
        for coding in ("gzip", "deflate"):
            yield coding[:1].encode() + b"".join(map(bytes, deflate(coding, [plain])))
    yield b"s\x05\x10hello"


TARGETS = (
    Target("http1-request", however_cut(http_requests), lambda: _http_messages(0)),
    Target("http1-reply", _http_replies, lambda: _http_messages(1)),
    Target("http1-chunks", _chunked_body, lambda: (_chunked(b"hello"), b"3;a=b\r\nabc\r\n0\r\nx: y\r\n\r\n")),
    Target("h2-server", however_cut(_h2_server), lambda: _h2_seeds(server=True)),
    Target("h2-client", however_cut(_h2_client), lambda: _h2_seeds(server=False)),
    Target("hpack", _hpack, _hpack_seeds),
    Target("grpc-messages", however_cut(_grpc_messages), _grpc_seeds),
    Target("brpc-frames", _brpc, lambda: messages("grps/brpc", "*.?2?")),
    Target("tcp-frames", however_cut(_tcp_frames), _tcp_seeds),
    Target("proxy-protocol", _proxy_header, _proxy_seeds, 1 << 10),
    Target(
        "forwarded-for",
        _forwarded_for,
        lambda: (
            b"192.0.2.1, 10.0.0.1",
            b"[2001:db8::1]:80,fd00::1",
            b"127.0.0.1",
            b"unix",
            b"::ffff:127.0.0.1",
        ),
        1 << 10,
    ),
    Target("content-codings", _content, _content_seeds),
)
