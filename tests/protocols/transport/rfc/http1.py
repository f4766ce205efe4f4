"""What a case of HTTP/1 sends and expects, and a client that runs cases against a listener.

A case is followed by a request for ``SENTINEL`` on the same connection. Its answer shows that the server found the
end of the case where it is: a request that is framed wrongly swallows the sentinel, or leaves bytes before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from interlingua.protocols.transport.address import Address, parse_address
from interlingua.protocols.transport.http.server import HttpServer
from interlingua.protocols.wire import HttpAnswer, HttpRequest
from interlingua.schemas import ErrorCode, InferenceError

SENTINEL = "/sentinel"
MAX_BODY_BYTES = 1000
"""The limit of the listener."""

_SILENT_SECS = 1.0
"""When the client closes its side of a silent connection, so that a server that waits for more closes it too."""

_ANSWER_SECS = 20.0


@dataclass(frozen=True)
class Outcome:
    """``statuses`` of the answers in order; ``served``: the requests that were served, as method, target and body;
    ``persists``: whether the connection is open afterwards and at the beginning of a request."""

    statuses: tuple[int, ...]
    served: tuple[str, ...] = ()
    persists: bool = False


@dataclass(frozen=True)
class Case:
    """``section`` is that of RFC 9112, or of RFC 9110 with the number in front; ``later`` is sent once the first
    answer is here. ``bodiless``: the answers have no body."""

    name: str
    section: str
    sent: bytes
    outcome: Outcome
    later: bytes = b""
    bodiless: bool = False


def served(*requests: str) -> Outcome:
    """Every request is served, and the connection persists."""
    return Outcome((200,) * len(requests), requests, persists=True)


def served_last(*requests: str) -> Outcome:
    """Every request is served; the connection ends with the last answer."""
    return Outcome((200,) * len(requests), requests)


def refused(status: int = 400, *before: str) -> Outcome:
    """The requests ``before`` are served; the answer to the next one ends the connection."""
    return Outcome((200,) * len(before) + (status,), before)


def head(line: str, *fields: str, host: str = "Host: x") -> bytes:
    """A header section. An empty ``host`` is omitted."""
    lines = (line, *((host,) if host else ()), *fields, "", "")
    return "\r\n".join(lines).encode("latin-1")


def get(*fields: str, line: str = "GET / HTTP/1.1", host: str = "Host: x") -> bytes:
    """A request without a body."""
    return head(line, *fields, host=host)


def post(body: bytes, *fields: str, line: str = "POST / HTTP/1.1") -> bytes:
    """A request whose ``fields`` delimit its body."""
    return head(line, *fields) + body


class Echo:
    """Answers every request with its body; a header of the answer has the method and the target. ``/early`` is
    answered before its body."""

    def head(self, request: HttpRequest) -> HttpAnswer | None:
        request.max_body_bytes = MAX_BODY_BYTES
        return HttpAnswer(404, (), (b"early",)) if request.path == "/early" else None

    async def serve(self, request: HttpRequest) -> HttpAnswer:
        target = f"{request.path}?{request.query}" if request.query else request.path
        shown = f"{request.method} {target}"
        for name in ("x-case", "host"):
            if (value := request.headers.get(name, "x" if name == "host" else "")) and value != "x":
                shown += f" {name}={value}"
        return HttpAnswer(200, (("x-served", shown),), (request.body,))

    def refuse(self, request: HttpRequest, error: InferenceError) -> HttpAnswer:
        return HttpAnswer(413 if error.code is ErrorCode.TOO_LARGE else 400, (), (error.message.encode(),))


async def outcomes(
    engine: Literal["native", "library"], cases: Sequence[Case], piece: int = 1 << 20
) -> Mapping[str, Outcome]:
    """What each case leads to, by name: one listener, one connection per case. Its bytes are sent in pieces of ``piece``
    bytes."""
    server = HttpServer(Echo(), parse_address("127.0.0.1:0"), engine=engine)
    await server.start()
    gate = asyncio.Semaphore(32)

    async def run(case: Case) -> Outcome:
        async with gate:
            return await _outcome(server.address, case, piece)

    try:
        found = await asyncio.gather(*map(run, cases))
    finally:
        await server.stop(0)
    return {case.name: outcome for case, outcome in zip(cases, found, strict=True)}


async def send(writer: asyncio.StreamWriter, data: bytes, piece: int) -> None:
    """Send ``data`` in pieces, until the server closes the connection."""
    for at in range(0, len(data), piece):
        if writer.transport.is_closing():
            return
        writer.write(data[at : at + piece])
        await asyncio.sleep(0)


async def _outcome(address: Address, case: Case, piece: int) -> Outcome:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    statuses: list[int] = []
    requests: list[str] = []
    sentinel = get(line=f"GET {SENTINEL} HTTP/1.1")
    later = case.later + sentinel
    silence: asyncio.TimerHandle | None = None
    try:
        await send(writer, case.sent if case.later else case.sent + sentinel, piece)
        silence = asyncio.get_running_loop().call_later(_SILENT_SECS, writer.write_eof)
        async with asyncio.timeout(_ANSWER_SECS):
            while (answer := await _answer(reader, case.bodiless)) is not None:
                status, shown = answer
                if shown.startswith(f"GET {SENTINEL}"):
                    return Outcome(tuple(statuses), tuple(requests), persists=True)
                if case.later and not statuses:
                    await send(writer, later, piece)
                statuses.append(status)
                requests += [shown] if shown else []
    except ConnectionError:
        pass  # the end of a connection may reset it
    finally:
        if silence is not None:
            silence.cancel()
        writer.close()
    return Outcome(tuple(statuses), tuple(requests))


async def _answer(reader: asyncio.StreamReader, bodiless: bool) -> tuple[int, str] | None:
    """The status of the next answer, and what it was served for; None at the end of the connection."""
    try:
        section = (await reader.readuntil(b"\r\n\r\n")).decode("utf-8", "surrogateescape")
    except asyncio.IncompleteReadError:
        return None
    line, *lines = section.rstrip().split("\r\n")
    fields = {name.lower(): value for name, value in (text.split(": ", 1) for text in lines)}
    status, shown = int(line.split()[1]), fields.get("x-served", "")
    if status == 100 or (bodiless and not shown.startswith(f"GET {SENTINEL}")):
        return status, shown
    body = await reader.readexactly(int(fields["content-length"]))
    return status, f"{shown} {body.decode('latin-1')}".rstrip() if shown else ""
