"""Uploads, and calls with short deadlines, on one channel of the grpcio that runs this script.

``python old_grpcio.py ADDRESS FOLDER SECS`` sends ``FOLDER/upload`` and ``FOLDER/small``, messages of ModelInfer that end
in a tensor, and prints how many calls of each ended in which way, as JSON. It needs nothing but grpcio.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import grpc

SIZES = {"upload": 40_000_000, "small": 40}
"""How many bytes each tensor has; the model echoes it."""

_TIMEOUTS = {"upload": 60.0, "small": 0.01}
_CALLERS = {"upload": 3, "small": 4}
_METHOD = "/inference.GRPCInferenceService/ModelInfer"


def _outcome(call: Callable[..., bytes], request: bytes, kind: str) -> str:
    """How one call ended: its status, with the details that explain a lost upload."""
    try:
        answer = call(request, timeout=_TIMEOUTS[kind])
    except grpc.RpcError as error:
        return f"{error.code().name} {error.details()}" if kind == "upload" else str(error.code().name)
    size = SIZES[kind]
    return "OK" if answer[-size:] == request[-size:] else "another tensor"


def main(address: str, folder: Path, secs: float) -> None:
    """Send both kinds for ``secs`` seconds, each from several threads."""
    ends: dict[str, Counter[str]] = {kind: Counter() for kind in SIZES}
    with grpc.insecure_channel(address, [("grpc.max_receive_message_length", -1)]) as channel:
        call = channel.unary_unary(_METHOD)
        until = time.monotonic() + secs

        def repeat(kind: str, request: bytes) -> None:
            while time.monotonic() < until:
                ends[kind][_outcome(call, request, kind)] += 1

        threads = [
            threading.Thread(target=repeat, args=(kind, (folder / kind).read_bytes()))
            for kind, count in _CALLERS.items()
            for _ in range(count)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(json.dumps(ends))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
