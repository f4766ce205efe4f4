"""The process that makes one JSON object of each line that the server's processes print.

It reads two pipes, in place of standard output and standard error of the server, and writes to those. Lines
of the log are JSON objects already and stay as they are. It is a process because native code may print while
it holds the interpreter's lock, and because what a process prints while it crashes must not be lost.
Uses the standard library alone.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
from datetime import UTC, datetime

from interlingua.translator.logs.redaction import redacted

LINE_BYTES = 4096
"""The longest line of JSON: ``PIPE_BUF`` of pipe(7), up to which the lines of several processes do not
mix."""

_TEXT_CHARS = 600
"""The text of one line: escaped, it takes at most six times as many bytes. Longer lines become several."""

_LOG = b'{"time":"'
"""Begins each line of the log."""

_READ_BYTES = 1 << 16

STREAMS = {"stdout": 1, "stderr": 2}
"""The descriptor that each stream is written to."""


def main(stdout: int, stderr: int) -> None:
    """Copy the pipes ``stdout`` and ``stderr`` until all their writers have exited."""
    # it ends with the last process that prints
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with selectors.DefaultSelector() as selector:
        for name, descriptor in (("stdout", stdout), ("stderr", stderr)):
            selector.register(descriptor, selectors.EVENT_READ, _Copy(name))
        while selector.get_map():
            for key, _ in selector.select():
                data = os.read(key.fd, _READ_BYTES)
                key.data.feed(data)
                if not data:
                    selector.unregister(key.fd)


class _Copy:
    """Copies what one stream carries, by lines."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._partial = b""

    def feed(self, data: bytes) -> None:
        """Write the lines that ``data`` completes; the last one at the end, which is empty."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        if not data or len(self._partial) > _READ_BYTES:
            lines.append(self._partial)
            self._partial = b""
        pending = b""
        for line in lines:
            for wrapped in wrap(line, self._name):
                if len(pending) + len(wrapped) > LINE_BYTES:
                    _write(STREAMS[self._name], pending)
                    pending = b""
                pending += wrapped
        _write(STREAMS[self._name], pending)


def wrap(line: bytes, stream: str) -> list[bytes]:
    """``line`` as lines of JSON; none if it is blank."""
    line = line.strip()
    if _is_object(line):
        return [line + b"\n"]
    # a process may log while another one is in the middle of a line
    start = line.find(_LOG)
    if start > 0 and _is_object(line[start:]):
        return [*wrap(line[:start], stream), line[start:] + b"\n"]
    text = redacted(line.decode(errors="backslashreplace"))
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    fixed = {
        "time": time,
        "level": "info",
        "event": "output",
        "logger": "interlingua.output",
        "stream": stream,
    }
    return [
        json.dumps({**fixed, "text": text[start : start + _TEXT_CHARS]}).encode() + b"\n"
        for start in range(0, len(text), _TEXT_CHARS)
    ]


def _is_object(line: bytes) -> bool:
    """Whether ``line`` is a JSON object already."""
    if not (line.startswith(b"{") and line.endswith(b"}") and len(line) < LINE_BYTES):
        return False
    try:
        json.loads(line)  # noqa: TID251
    except ValueError:
        return False
    return True


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
