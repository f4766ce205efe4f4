"""What passes between a transport and its handler: plain values, no sockets, no dialect.

A transport fills a request and writes out an answer. Header names are looked up in lower case; a
transport hands over mappings that find them whatever the case on the wire. Tensor bytes travel as
buffers in ``parts``, which a transport writes one after the other without joining large ones first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Literal, Protocol

from interlingua.schemas import Context, ErrorCode, InferenceError

Buffer = bytes | bytearray | memoryview
_BUFFERS = bytes, bytearray, memoryview  # faster to test for
Headers = Sequence[tuple[str, str]]

REQUEST_ID = "x-request-id"
"""The header in which a caller names its request."""

FORWARDED_FOR = "x-forwarded-for"
"""The header to which each proxy appends the address of its client."""

CHALLENGE: Headers = (("WWW-Authenticate", "Bearer"),)
"""What an answer with status 401 must have (RFC 9110, section 11.6.1; RFC 6750, section 3)."""

NO_PARAMS: Mapping[str, str] = {}
"""No named segments, or no headers. Never changed."""


NO_CONTEXT = Context()
"""The context of a call that is not prepared yet. Never changed."""

WHOLE = (tuple, list)
"""The types of the parts of an answer, unless it is a stream: unlike those of typing, quick to check."""

Prefix = Callable[[Mapping[str, str]], int | None]
"""How many bytes of a large body precede its tensors, at most a few KiB, by its headers; None if it must be
complete."""


class BodyRest(Protocol):
    """The rest of a body that is still arriving, of which the first bytes are known: its pieces, read no
    faster than they are taken. They raise what ends the body early. Its owner takes them all, or calls
    :meth:`close`. ``length``: how many bytes the pieces have together.
    """

    length: int

    def __aiter__(self) -> AsyncIterator[Buffer]: ...

    async def __anext__(self) -> Buffer: ...

    async def whole(self) -> Buffer:
        """The first bytes and the rest, once all is here, instead of the pieces. Raises as they do."""

    def end_with(self, size: int, tail: Buffer) -> None:
        """Give ``tail`` instead of what follows the next ``size`` bytes."""

    def on_end(self, call: Callable[[BaseException | None], None]) -> None:
        """Call ``call`` once everything has arrived (None), or never will."""

    def close(self) -> None:
        """Take no more of it."""


_FREED_BYTES = 1 << 14


@dataclass(slots=True)
class HttpRequest:
    """An HTTP request as received. ``path`` is as sent, percent-escapes included; ``query`` is without the
    question mark. The headers are complete before ``body`` is read; from them the handler chooses the
    ``endpoint``, the named segments of its path, ``params``, and the limit of the body. A body that is still
    arriving goes on with ``rest``. ``decompressed_bytes`` is the size of the body without its content coding,
    once it is decompressed.
    """

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Buffer = b""
    params: Mapping[str, str] = field(default_factory=dict)
    context: Context = field(default_factory=Context)
    endpoint: Any = None
    max_body_bytes: int | None = None
    rest: BodyRest | None = None
    decompressed_bytes: int = 0

    async def collect(self) -> None:
        """Wait for the whole body. Raises as :class:`BodyRest`."""
        if self.rest is not None:
            self.body, self.rest = await self.rest.whole(), None

    def without_body(self) -> HttpRequest:
        """Another such request for the transport to keep, if the body is large: it is free while the client
        reads the answer, unless something else needs this one."""
        return replace(self, body=b"") if len(self.body) > _FREED_BYTES else self


@dataclass(slots=True, init=False)
class HttpAnswer:
    """An HTTP answer to write: ``parts`` one after the other, ``size`` bytes together, counted if not given,
    or an iterator for a stream, whose size is 0. ``dataclasses.replace`` makes one with other parts. A body
    that is still arriving goes on with ``rest``."""

    status: int
    headers: Headers
    parts: Final[Sequence[Buffer] | AsyncIterator[Buffer]]
    rest: BodyRest | None
    size: int = field(init=False, compare=False)

    def __init__(
        self,
        status: int,
        headers: Headers = (),
        parts: Sequence[Buffer] | AsyncIterator[Buffer] = (),
        rest: BodyRest | None = None,
        size: int | None = None,
    ) -> None:
        self.status, self.headers, self.parts, self.rest = status, headers, parts, rest
        if size is None:
            size = 0
            if isinstance(parts, WHOLE) or not isinstance(parts, AsyncIterator):
                for part in parts:
                    size += part.nbytes if isinstance(part, memoryview) else len(part)
        self.size = size


@dataclass(slots=True)
class HttpCall:
    """An HTTP request to send to an upstream: ``parts`` are its body. ``repeatable``: sending it twice is
    safe, as it is for every GET. A body that is still arriving goes on with ``rest``, which is read as fast
    as the upstream takes it; ``length`` is its size with ``parts``, None if that is not known. With a
    ``prefix``, a large reply is returned once that much of its body is here."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    parts: Sequence[Buffer] = ()
    context: Context = field(default_factory=lambda: NO_CONTEXT)
    repeatable: bool = False
    rest: AsyncIterator[Buffer] | None = None
    length: int | None = None
    prefix: Prefix | None = None
    ascii_headers: ClassVar[bool] = False

    def add_headers(self, headers: Mapping[str, str]) -> None:
        self.headers = {**self.headers, **headers}


@dataclass(slots=True)
class HttpReply:
    """The answer to an ``HttpCall``, without its transfer and content codings. A body that is still arriving
    goes on with ``rest``."""

    status: int
    headers: Mapping[str, str]
    body: Buffer
    rest: BodyRest | None = None

    @property
    def plain(self) -> bool:
        """Whether all of it is here, without a content coding."""
        return self.rest is None and "content-encoding" not in self.headers

    async def collect(self) -> None:
        """Wait for the whole body. Raises as :class:`BodyRest`."""
        if self.rest is not None:
            self.body, self.rest = await self.rest.whole(), None


class HttpHandler(Protocol):
    """Answers what an HTTP listener receives. None of its methods raises."""

    def head(self, request: HttpRequest) -> HttpAnswer | None:
        """Decide from the head alone. An answer ends the matter before any body byte is read; None
        lets the body come, at most ``request.max_body_bytes`` of it (None: no limit)."""

    def prefix(self, request: HttpRequest) -> int | None:
        """How many bytes of a large body :meth:`serve` needs before the rest; None if it needs all."""

    async def serve(self, request: HttpRequest) -> HttpAnswer:
        """Answer a request whose body is complete, or goes on with ``rest``."""

    def refuse(self, request: HttpRequest, error: InferenceError) -> HttpAnswer:
        """The answer, in the dialect's form, to a request that the transport abandons."""


@dataclass(slots=True)
class GrpcRequest:
    """A unary gRPC request, on either side: ``method`` is the full path (``/package.Service/Method``),
    ``message`` the undecoded protobuf bytes. On the client ``parts`` continue the message: large tensors,
    which are sent without a copy."""

    method: str
    message: Buffer
    metadata: Mapping[str, str] = field(default_factory=dict)
    context: Context = field(default_factory=Context)
    parts: Sequence[Buffer] = ()
    ascii_headers: ClassVar[bool] = True

    @property
    def whole(self) -> Buffer:
        """The message in one piece."""
        return b"".join((self.message, *self.parts)) if self.parts else self.message

    def add_headers(self, headers: Mapping[str, str]) -> None:
        self.metadata = {**self.metadata, **headers}


class ArrivingMessage:
    """A gRPC message of ``size`` bytes of which only those of ``begin`` are kept: the rest passes on as it
    arrives. Its length is the size; a slice that ends after ``begin`` is shorter than its bounds say.
    ``deadline`` is that of the caller, a ``time.monotonic``. ``example`` makes a message like it, None until
    it is recognized."""

    __slots__ = ("begin", "deadline", "example", "size")

    rest = None
    """See ``HttpRequest``: nothing is left to be received."""

    def __init__(self, begin: bytes, size: int, deadline: float | None = None) -> None:
        self.begin = begin
        self.size = size
        self.deadline = deadline
        self.example: Callable[[], Buffer] | None = None

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, place: slice) -> bytes:
        return self.begin[place.start : place.stop]

    def __bytes__(self) -> bytes:
        """Raises TypeError: its bytes are gone."""
        raise TypeError("a message that passes on as it arrives has no bytes")

    def like(self) -> Buffer:
        """A message with the same head, and zeros as the rest. Raises UNAVAILABLE if it is not recognized."""
        if self.example is None:
            raise self.passed()
        return self.example()

    def passed(self) -> InferenceError:
        """The error of a request that would have to be decoded, or sent again."""
        return InferenceError(ErrorCode.UNAVAILABLE, "the message has passed on to an upstream; try again")

    async def collect(self) -> None:
        """See ``HttpRequest``. Raises UNAVAILABLE."""
        raise self.passed()


@dataclass(slots=True)
class GrpcAnswer:
    """A unary gRPC answer, on either side. ``code`` is the gRPC status number (0 is OK); an answer
    with another code has no message. On the server ``parts`` continue the message, as in a request."""

    message: Buffer = b""
    code: int = 0
    details: str = ""
    trailing: Headers = ()
    parts: Sequence[Buffer] = ()
    rest: ClassVar[None] = None

    @property
    def whole(self) -> Buffer:
        """The message in one piece."""
        return b"".join((self.message, *self.parts)) if self.parts else self.message

    @property
    def plain(self) -> bool:
        """Whether the message is not compressed."""
        return isinstance(self.message, _BUFFERS)

    @property
    def size(self) -> int:
        """The bytes of the message."""
        size = len(self.message)
        for part in self.parts:
            size += len(part)
        return size


class GrpcHandler(Protocol):
    """Answers what a gRPC listener receives. None of its methods raises. ``restricted`` are the unary methods
    that :meth:`refusal` may refuse."""

    restricted: Collection[str] = ()

    def offers(self, method: str) -> Literal["unary", "stream"] | None:
        """Whether ``method`` exists here and how it is called; the transport answers UNIMPLEMENTED
        where it does not."""

    def refusal(self, request: GrpcRequest) -> GrpcAnswer | None:
        """The answer to a unary call that its metadata refuse, before its message is read; None for any
        other."""
        return None

    async def serve(self, request: GrpcRequest) -> GrpcAnswer:
        """Answer one unary call."""

    def stream(self, call: GrpcRequest, messages: AsyncIterator[Buffer]) -> AsyncIterator[GrpcAnswer]:
        """Answer a stream: ``call`` is its head (no message), ``messages`` come as they arrive, and raise
        where the transport refuses one. An answer whose code is not 0 is the last one."""


@dataclass(slots=True)
class BrpcRequest:
    """A bRPC request, on either side: ``message`` the undecoded protobuf bytes, decompressed.

    ``service`` is a name with or without its package, as the client wrote it. ``compression`` and
    ``size`` describe the message in its frame (``size`` in bytes, attachment included), which a
    refusal repeats to the client. ``headers`` are for the client's side: user fields of the frame; the trace
    and the request id have places of their own too. ``plan_key`` is what plans know its head by.
    """

    service: str
    method: str
    message: Buffer
    context: Context = field(default_factory=Context)
    compression: str = "none"
    size: int = 0
    headers: Mapping[str, str] = field(default_factory=lambda: NO_PARAMS)
    plan_key: Any = field(default=None, compare=False, repr=False)
    ascii_headers: ClassVar[bool] = False

    def add_headers(self, headers: Mapping[str, str]) -> None:
        self.headers = {**self.headers, **headers}


@dataclass(slots=True)
class BrpcAnswer:
    """A bRPC answer, on either side. ``code`` is a bRPC error number (0 is success, see
    ``protocols.brpc_status``); an answer with another code has no message. ``headers`` are the user fields of
    the frame, on the server's side."""

    message: Buffer = b""
    code: int = 0
    text: str = ""
    headers: Headers = ()
    rest: ClassVar[None] = None
    plain: ClassVar[bool] = True

    @property
    def size(self) -> int:
        """The bytes of the message."""
        return len(self.message)


class BrpcHandler(Protocol):
    """Answers what a bRPC listener receives. None of its methods raises."""

    def knows(self, service: str) -> bool:
        """Whether there is such a service, by its full name or without its package."""

    def offers(self, service: str, method: str) -> bool:
        """Whether there is such a method; the transport answers 1001 or 1002 where there is not."""

    def refusal(self, request: BrpcRequest) -> BrpcAnswer | None:
        """The answer to a call that its head refuses, before its message is decompressed or read; None for
        any other."""
        return None

    async def serve(self, request: BrpcRequest) -> BrpcAnswer:
        """Answer one call."""


@dataclass(slots=True)
class FramedRequest:
    """A message as received on a connection that carries nothing else: in a frame, which is its size as an
    unsigned number of four bytes, little-endian, and the message. ``message`` is without the size."""

    message: Buffer = b""
    context: Context = field(default_factory=Context)
    rest: ClassVar[None] = None


@dataclass(slots=True)
class FramedCall:
    """A message to send to an upstream. ``parts`` is the whole frame, which the codec writes, since what is
    aligned in a message may count from its size; ``repeatable`` is that of an ``HttpCall``."""

    parts: Sequence[Buffer] = ()
    context: Context = field(default_factory=lambda: NO_CONTEXT)
    repeatable: bool = False
    ascii_headers: ClassVar[bool] = False

    def add_headers(self, headers: Mapping[str, str]) -> None:
        """A frame has no headers."""


@dataclass(slots=True)
class FramedAnswer:
    """An answer to write: ``parts`` is its whole frame, size first."""

    parts: Sequence[Buffer]
    rest: ClassVar[None] = None

    @property
    def size(self) -> int:
        """The bytes of the frame."""
        return sum([len(part) for part in self.parts])


@dataclass(slots=True)
class FramedReply:
    """The answer to a ``FramedCall``, without its size."""

    message: Buffer
    rest: ClassVar[None] = None


class FramedHandler(Protocol):
    """Answers what a framed listener receives. None of its methods raises."""

    def refusal(self, request: FramedRequest) -> FramedAnswer | None:
        """The answer to a message that is refused unread; None for any other."""
        return None

    async def serve(self, request: FramedRequest) -> FramedAnswer:
        """Answer one message. Those of one connection are at work together; the transport puts their answers
        in order."""

    def refuse(self, request: FramedRequest, error: InferenceError) -> FramedAnswer:
        """The answer, in the dialect's form, to a message that the transport abandons."""


class ConnectionFailedError(InferenceError):
    """No answer came from an upstream: it cannot be reached, breaks off (both UNAVAILABLE), or what comes is
    not of its transport (BAD_UPSTREAM). ``sent`` is False where no byte of the request went out, so that
    nothing can have been done about it."""

    def __init__(self, code: ErrorCode, message: str, *, sent: bool) -> None:
        super().__init__(code, message, begun=sent)
        self.sent = sent


def parts_of(answer: HttpAnswer) -> Sequence[Buffer]:
    """The body parts of an answer that is not a stream."""
    if isinstance(answer.parts, AsyncIterator):
        raise TypeError("a streamed answer has no parts until it is iterated")
    return answer.parts
