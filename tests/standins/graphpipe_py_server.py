"""A GraphPipe server as the examples of graphpipe-py have them: Python's own HTTP server, in HTTP/1.0, that knows
inference alone. It reads no MetadataRequest: its handler fails, and the connection closes without an answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Literal

from graphpipe import convert

from tests.standins.graphpipe_server import answer, text

Habit = Literal["closes", "hangs", "fails", "empty"]
"""What becomes of a MetadataRequest: the connection closes, nothing happens, status 500, a body without a byte."""


class PyServer:
    """Doubles every input. ``questions`` counts the MetadataRequests, ``requests`` the inferences, ``outputs`` are the
    names of outputs in the last one."""

    def __init__(self, habit: Habit = "closes") -> None:
        self.habit = habit
        self.port = 0
        self.questions = self.requests = 0
        self.outputs: list[str] = []
        self.released = threading.Event()

    @contextmanager
    def running(self) -> Iterator[str]:
        """Serve until the block ends, at the same port every time; the address."""
        server = _Quiet(("127.0.0.1", self.port), self._handler())
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{self.port}"
        finally:
            self.released.set()
            server.shutdown()
            server.server_close()
            thread.join()

    def respond(self, body: bytes) -> bytes | None:
        asked = convert.deserialize_request(body)
        if asked is None:
            self.questions += 1
            if self.habit == "hangs":
                self.released.wait(30)
            if self.habit == "empty":
                return b""
            return None
        self.requests += 1
        self.outputs = text(asked.output_names)
        return answer([2 * array for array in asked.input_tensors])

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = served.respond(self.rfile.read(int(self.headers["content-length"])))
                if body is None and served.habit == "fails":
                    self.send_response(500)
                    self.end_headers()
                    self.wfile.write(b"'NoneType' object has no attribute 'input_tensors'")
                    return
                if body is None:
                    raise AttributeError("'NoneType' object has no attribute 'input_tensors'")
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass  # a test wants no log

        return Handler


class _Quiet(HTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the original prints the traceback
