"""nginx as the relay: ``proxy_pass`` with kept connections, and ``grpc_pass``, in one worker process.

Request buffering is off, as it always is for ``grpc_pass``: it would write large bodies to files, at twice
the cost.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers import free_ports
from benchmarks.processes import Server

_START_SECS = 20.0

_CONFIG = """
daemon off;
user {user};
worker_processes 1;
pid {folder}/pid;
error_log {folder}/error.log warn;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_max_body_size 0;
    keepalive_requests 1000000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream http_upstream {{ server {http}; keepalive 64; keepalive_requests 1000000000; }}
    upstream grpc_upstream {{ server {grpc}; keepalive 64; keepalive_requests 1000000000; }}
    server {{
        listen 127.0.0.1:{http_port};
        location / {{
            proxy_pass http://http_upstream;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_request_buffering off;
        }}
    }}
    server {{
        listen 127.0.0.1:{grpc_port} http2;
        location / {{ grpc_pass grpc://grpc_upstream; }}
    }}
}}
"""


def installed() -> str | None:
    """Where nginx is; Debian's users do not have its folder on their PATH."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@contextmanager
def nginx(program: str, folder: Path, upstream: Server) -> Iterator[Server]:
    """``program`` in front of ``upstream``; it may write to ``folder``."""
    http_port, grpc_port = free_ports(2)
    config, log = folder / "nginx.conf", folder / "error.log"
    config.write_text(
        _CONFIG.format(
            folder=folder,
            user="root" if os.getuid() == 0 else "nobody",
            http=upstream.addresses["http"],
            grpc=upstream.addresses["grpc"],
            http_port=http_port,
            grpc_port=grpc_port,
        )
    )
    # -e: otherwise nginx opens the log of the whole machine before it reads its configuration
    command = [program, "-e", str(log), "-p", str(folder), "-c", str(config)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        _wait(process, http_port, log)
        addresses = {"http": f"127.0.0.1:{http_port}", "grpc": f"127.0.0.1:{grpc_port}"}
        yield Server(process.pid, addresses)
    finally:
        process.terminate()
        process.wait(20)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_SECS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"nginx did not start: {log.read_text() if log.exists() else ''}")
