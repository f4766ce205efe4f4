"""A model in a bare loop, in a process of its own: what a row costs with no server around it.

``python -m benchmarks.bare_loop ENGINE DEVICE MODEL INPUT DIMS`` reads one JSON object per line, with
``batch_size`` and ``secs``, and answers with ``cpu_secs``, ``secs`` and ``rows``. The engine, onnxruntime
or torch, has the options that it has in the servers; every batch comes from the host's memory, and its
outputs go back there.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

Run = Callable[[NDArray[np.float32]], object]


def session(file: str, device: str = "cpu") -> ort.InferenceSession:
    """The session that every server here runs: one thread on the CPU."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    wanted = [] if device == "cpu" else ["CUDAExecutionProvider"]
    return ort.InferenceSession(file, options, providers=[*wanted, "CPUExecutionProvider"])


def _onnxruntime(device: str, file: str, name: str) -> Run:
    running = session(file, device)
    return lambda batch: running.run(None, {name: batch})


def _torch(device: str, file: str, name: str) -> Run:
    import torch

    torch.set_num_threads(1)
    module: Any = torch.jit.load(file, map_location=device)

    def run(batch: NDArray[np.float32]) -> object:
        with torch.inference_mode():
            return module(torch.from_numpy(batch).to(device)).cpu()

    return run


ENGINES: dict[str, Callable[[str, str, str], Run]] = {"onnxruntime": _onnxruntime, "torch": _torch}


def main() -> None:
    """Serve the lines of standard input."""
    engine, device, file, name, dims = sys.argv[1:]
    run = ENGINES[engine](device, file, name)
    shape = tuple(map(int, dims.split(",")))
    for line in sys.stdin:
        order = json.loads(line)
        batch = np.random.default_rng(0).random((order["batch_size"], *shape), np.float32)
        run(batch)
        rows, cpu, began = 0, time.process_time(), time.monotonic()
        while time.monotonic() < began + order["secs"]:
            run(batch)
            rows += len(batch)
        told = {"cpu_secs": time.process_time() - cpu, "secs": time.monotonic() - began, "rows": rows}
        sys.stdout.write(f"{json.dumps(told)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
