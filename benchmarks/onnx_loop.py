"""A bare loop on ONNX Runtime, in a process of its own: what a row of a model costs with nothing around it.

``python -m benchmarks.onnx_loop MODEL INPUT DIMS`` reads one JSON object per line, with ``batch_size``
and ``secs``, and answers with ``cpu_secs`` and ``rows``. The session has the options that the servers'
sessions have.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import onnxruntime as ort


def session(file: str, threads: int = 1) -> ort.InferenceSession:
    """The session that every server here runs."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def main() -> None:
    """Serve the lines of standard input."""
    file, name, dims = sys.argv[1:]
    running = session(file)
    shape = tuple(map(int, dims.split(",")))
    for line in sys.stdin:
        order = json.loads(line)
        batch = np.random.default_rng(0).random((order["batch_size"], *shape), np.float32)
        running.run(None, {name: batch})
        rows, cpu, until = 0, time.process_time(), time.monotonic() + order["secs"]
        while time.monotonic() < until:
            running.run(None, {name: batch})
            rows += len(batch)
        told = {"cpu_secs": time.process_time() - cpu, "rows": rows}
        sys.stdout.write(f"{json.dumps(told)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
