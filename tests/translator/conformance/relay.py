"""A relay in front of an OIP server over HTTP that spoils what passes through: one seeded fault at a time.

A fault changes an :class:`Passing` before it goes up (``on_way_up``) or back (``on_way_back``). What is not about
inference passes it by, but for what is about shared memory.
"""

from __future__ import annotations

import http.client
import json
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import numpy as np

from interlingua.schemas import pack_bytes

LENGTH = "Inference-Header-Content-Length"


@dataclass
class Passing:
    """A request to infer, or about shared memory, and its answer. ``number`` counts them; ``memory`` is the
    relay's own."""

    path: str
    headers: dict[str, str]
    body: bytes
    number: int
    memory: dict[str, Any]
    status: int = 0
    answer: bytes = b""
    answer_headers: dict[str, str] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        """Whether it is an inference that succeeded."""
        return self.status == 200 and self.infers

    @property
    def infers(self) -> bool:
        return self.path.endswith("/infer")

    def document(self) -> tuple[dict[str, Any], bytes]:
        """The JSON part of the answer, and the binary part."""
        length = int(self.answer_headers.get(LENGTH, len(self.answer)))
        return json.loads(self.answer[:length]), self.answer[length:]

    def outputs(self) -> list[tuple[dict[str, Any], bytes | None]]:
        """The outputs of the answer, each with its binary data."""
        document, tail = self.document()
        found = []
        for output in document["outputs"]:
            size = output.get("parameters", {}).get("binary_data_size")
            found.append((output, None if size is None else tail[:size]))
            tail = tail[size or 0 :]
        return found

    def answer_with(self, outputs: list[tuple[dict[str, Any], bytes | None]], **members: Any) -> None:
        """Put other outputs, and other members, in place of the answer's."""
        document = self.document()[0] | members
        document = {name: value for name, value in document.items() if value is not None}
        for output, data in outputs:
            if data is not None:
                output["parameters"] = {"binary_data_size": len(data)}
        document["outputs"] = [output for output, _ in outputs]
        head = json.dumps(document).encode()
        tail = b"".join(data for _, data in outputs if data is not None)
        self.answer = head + tail
        if any(data is not None for _, data in outputs) and tail:
            self.answer_headers[LENGTH] = str(len(head))

    def requested(self) -> dict[str, Any]:
        """The JSON part of the request."""
        length = int(self.headers.get(LENGTH, len(self.body)))
        try:
            document = json.loads(self.body[:length])
        except ValueError:
            return {}
        return document if isinstance(document, dict) else {}

    def ask_with(self, document: dict[str, Any]) -> None:
        """Put another JSON part in place of the request's."""
        length = int(self.headers.get(LENGTH, len(self.body)))
        head = json.dumps(document).encode()
        self.body = head + self.body[length:]
        if LENGTH in self.headers:
            self.headers[LENGTH] = str(len(head))


Fault = Callable[[Passing], None]


def numbers(output: dict[str, Any], data: bytes | None) -> np.ndarray:
    """The numbers of an output, whatever form they have."""
    kind = {"INT32": "<i4", "INT64": "<i8", "FP32": "<f4", "FP64": "<f8"}[output["datatype"]]
    return np.array(output["data"], kind) if data is None else np.frombuffer(data, kind).copy()


def with_numbers(
    output: dict[str, Any], data: bytes | None, values: np.ndarray
) -> tuple[dict[str, Any], bytes | None]:
    """``output`` with other numbers, in the same form."""
    return (output | {"data": values.tolist()}, None) if data is None else (output, values.tobytes())


def words(output: dict[str, Any], data: bytes | None) -> list[bytes]:
    """The elements of an output of BYTES, whatever form it has."""
    return [word.encode() for word in output["data"]] if data is None else list(strings(data))


def with_words(
    output: dict[str, Any], data: bytes | None, found: list[bytes]
) -> tuple[dict[str, Any], bytes | None]:
    """``output`` with other elements, in the same form."""
    if data is None:
        return output | {"data": [word.decode() for word in found]}, None
    return output, pack_bytes(found)


def strings(data: bytes) -> Iterator[bytes]:
    while data:
        size = struct.unpack_from("<I", data)[0]
        yield data[4 : 4 + size]
        data = data[4 + size :]


@contextmanager
def relay(server: str, on_way_back: Fault | None = None, on_way_up: Fault | None = None) -> Iterator[str]:
    """A relay to ``server``: its address."""
    lock, count = threading.Lock(), [0]
    memory: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout: ClassVar[float] = 20

        def setup(self) -> None:
            super().setup()
            # an answer is written in several pieces
            self.connection.setsockopt(6, 1, 1)
            self.up = http.client.HTTPConnection(server, timeout=20)

        def finish(self) -> None:
            self.up.close()
            super().finish()

        def pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with lock:
                count[0] += 1
                passing = Passing(
                    self.path,
                    {name.title(): value for name, value in self.headers.items()},
                    body,
                    count[0],
                    memory,
                )
            concerned = (passing.infers and self.command == "POST") or "systemsharedmemory" in self.path
            if concerned and on_way_up:
                on_way_up(passing)
            passing.headers.pop("Content-Length", None)
            self.up.request(self.command, passing.path, passing.body, passing.headers)
            reply = self.up.getresponse()
            passing.answer = reply.read()
            passing.status, passing.answer_headers = (
                reply.status,
                {name.title(): value for name, value in reply.getheaders()},
            )
            if concerned and on_way_back:
                on_way_back(passing)
            passing.answer_headers.pop("Content-Length", None)
            if passing.status == 0:
                self.close_connection = True
                return
            self.send_response_only(passing.status)
            for name, value in passing.answer_headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(passing.answer)))
            self.end_headers()
            self.wfile.write(passing.answer)

        do_GET = do_POST = do_HEAD = do_PUT = pass_on

        def log_message(self, format: str, *args: object) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    thread = threading.Thread(target=listening.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listening.server_address[1]}"
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()
