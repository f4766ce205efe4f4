"""Version 1 over HTTP as the original's libcurl does it: header lines matched by prefix, no space after the
colon of NV-InferRequest, header lines of 100 KB at most, a new connection for every control.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from google.protobuf import text_format

from tests.standins.trtis_client import (
    Answer,
    ClientFailure,
    answer_of,
    checked_header,
    output_datatype,
    placed,
    question,
    read_output,
    succeed,
)
from tests.standins.trtis_contract import LATEST, code_name, from_line, one_line, parse, strings

HEADER_LINE_LIMIT = 100 * 1024
"""The longest header line that libcurl takes."""


@dataclass
class Reply:
    """An answer as it came."""

    status: int
    lines: list[tuple[str, str]]
    body: bytes

    def find(self, prefix: str) -> str | None:
        """The value of the last header line that begins with ``prefix``, as the original looks it up."""
        values = [value for name, value in self.lines if f"{name}:".lower().startswith(prefix.lower())]
        return values[-1] if values else None

    def nv_status(self, what: str) -> Any:
        """The status that every answer of the server carries. Raises the server's error."""
        text = self.find("NV-Status")
        try:
            status = from_line("RequestStatus", text or "")
        except text_format.ParseError as error:
            raise ClientFailure(f"{what} request did not return status") from error
        if text is None:
            raise ClientFailure(f"{what} request did not return status")
        assert self.status == (200 if code_name(status) == "SUCCESS" else 400)
        succeed(status)
        return status


class Connection:
    """One kept connection."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._address = address
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._reader = self._socket.makefile("rb")

    def send(self, method: str, target: str, lines: Iterable[str] = (), body: bytes = b"") -> Reply:
        """One exchange; ``lines`` are header lines as they stand on the wire."""
        head = [
            f"{method} {target} HTTP/1.1",
            f"Host: {self._address}",
            "User-Agent: libcurl-agent/1.0",
            "Accept: */*",
            *lines,
        ]
        if method == "POST":
            head.append(f"Content-Length: {len(body)}")
        self._socket.sendall("\r\n".join([*head, "", ""]).encode("latin-1") + body)
        return self._read()

    def _line(self) -> str:
        line = self._reader.readline(HEADER_LINE_LIMIT + 1)
        if len(line) > HEADER_LINE_LIMIT:
            raise ClientFailure("HTTP client failed: Out of memory")
        assert line.endswith(b"\r\n"), line
        return line[:-2].decode("latin-1")

    def _read(self) -> Reply:
        status = int(self._line().split(" ")[1])
        lines: list[tuple[str, str]] = []
        while line := self._line():
            name, _, value = line.partition(":")
            lines.append((name, value.strip()))
        reply = Reply(status, lines, b"")
        length = reply.find("Content-Length:")
        assert length is not None, "the original server always said how long its body is"
        reply.body = self._reader.read(int(length))
        assert len(reply.body) == int(length)
        return reply

    def close(self) -> None:
        self._reader.close()
        self._socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class TrtisHttp:
    """Version 1 over HTTP: a new connection for every control, one kept for each context till ``close``."""

    address: str
    kept: list[Connection] = field(default_factory=list)

    def exchange(self, method: str, target: str, lines: Iterable[str] = (), body: bytes = b"") -> Reply:
        """One exchange on a connection of its own."""
        with Connection(self.address) as connection:
            return connection.send(method, target, lines, body)

    def control(self, target: str, body: bytes = b"") -> None:
        form = ("Content-Type: application/x-www-form-urlencoded",)
        self.exchange("POST", target, form, body).nv_status("control")

    def status(self, model: str = "") -> Any:
        path = f"/api/status/{model}" if model else "/api/status"
        reply = self.exchange("GET", f"{path}?format=binary")
        reply.nv_status("status")
        return parse("ServerStatus", reply.body)

    def health(self, mode: str) -> bool:
        return self.exchange("GET", f"/api/health/{mode}").status == 200

    def load(self, model: str) -> None:
        self.control(f"/api/modelcontrol/load/{model}")

    def unload(self, model: str) -> None:
        self.control(f"/api/modelcontrol/unload/{model}")

    def repository(self) -> list[str]:
        reply = self.exchange("GET", "/api/repository/index?format=binary")
        reply.nv_status("repository")
        return [entry.name for entry in parse("ModelRepositoryIndex", reply.body).models]

    def register(self, region: str, key: str, byte_size: int, offset: int = 0) -> None:
        self.control(f"/api/sharedmemorycontrol/register/{region}/{key}/{offset}/{byte_size}?format=binary")

    def register_cuda(self, region: str, handle: bytes, byte_size: int, device: int = 0) -> None:
        self.control(
            f"/api/sharedmemorycontrol/cudaregister/{region}/{byte_size}/{device}?format=binary", handle
        )

    def unregister(self, region: str) -> None:
        self.control(f"/api/sharedmemorycontrol/unregister/{region}?format=binary")

    def unregister_all(self) -> None:
        self.control("/api/sharedmemorycontrol/unregisterall?format=binary")

    def regions(self) -> dict[str, Any]:
        reply = self.exchange("GET", "/api/sharedmemorycontrol/status?format=binary")
        reply.nv_status("shared memory")
        found = parse("SharedMemoryStatus", reply.body).shared_memory_region
        return {region.name: region for region in found}

    def context(self, model: str, version: int = LATEST) -> HttpContext:
        """The original asks for the model's configuration whenever a context is made."""
        config = self.status(model).model_status[model].config
        self.kept.append(Connection(self.address))
        return HttpContext(model, version, config, self.kept[-1])

    def infer(self, model: str, *question: Any, version: int = LATEST, **options: Any) -> Answer:
        """One inference in a context of its own."""
        with self.context(model, version) as context:
            return context.infer(*question, **options)

    def close(self) -> None:
        for connection in self.kept:
            connection.close()


@dataclass
class HttpContext:
    """A model as an HTTP client uses it."""

    model: str
    version: int
    config: Any
    connection: Connection

    def infer(self, *asked: Any, body: bytes | None = None, **options: Any) -> Answer:
        """Ask and read the answer; ``body`` replaces the bytes that the question would have."""
        header, bodies = question(self.config, *asked, **options)
        path = f"/api/infer/{self.model}" + (f"/{self.version}" if self.version >= 0 else "")
        reply = self.connection.send(
            "POST",
            f"{path}?format=binary",
            ["Content-Type: application/octet-stream", f"NV-InferRequest:{one_line(header)}"],
            b"".join(bodies) if body is None else body,
        )
        status = reply.nv_status("infer")
        return self.read(reply, status, placed(asked))

    def read(self, reply: Reply, status: Any, elsewhere: Collection[str] = ()) -> Answer:
        """The outputs: sizes by the header line, or by the prefixes of strings; then the trailer."""
        header = checked_header(reply.find("NV-InferResponse"))
        position, cut = 0, {}
        for output in header.output:
            size = 0
            if output.HasField("raw") and output.name not in elsewhere:
                size = output.raw.batch_byte_size
                if output_datatype(self.config, output.name) == "TYPE_STRING":
                    count = header.batch_size * int(np.prod(output.raw.dims, dtype=np.int64))
                    size = strings(reply.body[position:], count)[1]
            cut[output.name] = reply.body[position : position + size]
            position += size
        trailer = parse("InferResponseHeader", reply.body[position:])
        if not trailer.model_name:
            raise ClientFailure("infer request did not return result header")
        without = parse("InferResponseHeader", reply.body[position:])
        for output in without.output:
            output.ClearField("batch_classes")
        assert header in (without, trailer), "the header line and the trailer differ"
        outputs = {
            output.name: read_output(
                self.config, output, trailer.batch_size, cut[output.name], output.name in elsewhere
            )
            for output in trailer.output
        }
        return answer_of(trailer, outputs, status)

    def __enter__(self) -> HttpContext:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
