"""What traces cost: CPU of the daemon per request without them, and with shares of the requests sampled.

``python -m benchmarks.tracing [--quick]``: h2load sends 32 requests in flight to the identity model over
connections that are kept, to each daemon in turn; the spans go to a collector of this process, which reads
and forgets them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks import processes, progress
from benchmarks.bridging.requests import request
from benchmarks.bridging.traffic import Traffic
from benchmarks.cases import CONFIG
from benchmarks.processes import Server

_ROUNDS, _QUICK_ROUNDS = 9, 3
_COUNT = 8000
_SHARES = (None, 0.0, 0.01, 1.0)
"""Of the requests that are sampled; None without traces."""


class _Forgetful(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def collector() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Forgetful)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _config(url: str, share: float | None) -> dict[str, Any]:
    listeners = [{"listen": "127.0.0.1:0", "transport": transport} for transport in ("http", "grpc")]
    traced = {} if share is None else {"tracing": {"otlp": url, "sample": share}}
    return {"server": CONFIG["server"], "listeners": listeners, "models": CONFIG["models"], **traced}


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tracing")
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    rounds, count = (_QUICK_ROUNDS, _COUNT // 8) if quick else (_ROUNDS, _COUNT)
    names = ["off, µs" if share is None else f"{share:.0%}, µs" for share in _SHARES]
    print(f"| | {' | '.join(names)} | 1 % : off |\n|---|{'--:|' * (len(names) + 1)}")
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        url = stack.enter_context(collector())
        servers: list[tuple[Server, Traffic]] = []
        for share in _SHARES:
            folder = Path(scratch, str(share))
            folder.mkdir()
            server = stack.enter_context(processes.daemon(folder, _config(url, share)))
            servers.append((server, Traffic(folder)))
        for transport in progress.each(("http", "grpc"), lambda transport: f"OIP {transport}"):
            asked = request("oip", transport, 64)
            turns = [
                [traffic.cost_us(server, asked, count) for server, traffic in servers] for _ in range(rounds)
            ]
            costs = [statistics.median(each) for each in zip(*turns, strict=True)]
            ratio = statistics.median(turn[2] / turn[0] for turn in turns)
            shown = " | ".join(f"{cost:.0f}" for cost in costs)
            progress.say(f"| OIP {transport}, 64 B | {shown} | {ratio:.2f} |\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
