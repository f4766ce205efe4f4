"""The models that are served, and how each server is told of them: one ONNX file, one thread, one instance.

Every server runs ``session`` below, so that what differs is what stands around it. The files for Triton
and MLServer are run in environments that have none of this project.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).parent.parent
DELAYS_MS = (0, 1, 5)
_THREADS = {"pytorch": "INTRA_OP_THREAD_COUNT"}
"""What the parameter for the number of threads is called, where a backend has a name of its own."""


@dataclass(frozen=True)
class Served:
    """A model: its input and outputs (name, datatype, dims without the batch), and its largest batch."""

    name: str
    file: Path
    input: tuple[str, tuple[int, ...]]
    outputs: tuple[tuple[str, str, tuple[int, ...]], ...]
    max_batch_size: int

    def rows(self, count: int) -> NDArray[np.float32]:
        """Something to ask."""
        return np.random.default_rng(0).random((count, *self.input[1]), np.float32)

    def variant(self, delay_ms: int) -> str:
        """The name of the model as it is served with that delay."""
        return f"{self.name}_{delay_ms}ms"


def served(folder: Path) -> tuple[Served, ...]:
    """The digits network of the examples, and one of the size of ResNet-18, which is written to
    ``folder``."""
    from examples import make_resnet

    digits = ROOT / "examples" / "models" / "digits" / "1" / "model.onnx"
    labels = (("label", "INT64", (1,)), ("probabilities", "FP32", (10,)))
    return (
        Served("digits", digits, ("image", (64,)), labels, 64),
        Served(
            "resnet",
            make_resnet.write_onnx(folder),
            ("image", (3, 224, 224)),
            (("scores", "FP32", (1000,)),),
            8,
        ),
    )


def config(model: Served, delay_ms: int, backend: str, kind: str = "KIND_CPU") -> str:
    """The ``config.pbtxt`` of ``model``, for us and for Triton alike. ``kind`` is the device's."""
    name, dims = model.input
    outputs = ", ".join(
        f'{{ name: "{name}" data_type: TYPE_{datatype} dims: {list(dims)} }}'
        for name, datatype, dims in model.outputs
    )
    return "\n".join(
        (
            f'backend: "{backend}"',
            f"max_batch_size: {model.max_batch_size}",
            f'input [ {{ name: "{name}" data_type: TYPE_FP32 dims: {list(dims)} }} ]',
            f"output [ {outputs} ]",
            f"instance_group [ {{ count: 1 kind: {kind} }} ]",
            f"dynamic_batching {{ max_queue_delay_microseconds: {delay_ms * 1000} }}",
            f'parameters {{ key: "{_THREADS.get(backend, "intra_op_thread_count")}" '
            'value { string_value: "1" } }',
            "",
        )
    )


def repository(folder: Path, model: Served, backend: str) -> Path:
    """A repository with ``model`` once for each delay. With ``backend`` python it holds what Triton runs."""
    for delay in DELAYS_MS:
        version = folder / model.variant(delay) / "1"
        version.mkdir(parents=True, exist_ok=True)
        (version.parent / "config.pbtxt").write_text(config(model, delay, backend))
        shutil.copy(model.file, version / "model.onnx")
        if backend == "python":
            shutil.copy(ROOT / "benchmarks" / "peer_models" / "triton_model.py", version / "model.py")
    return folder


def mlserver_models(folder: Path, model: Served) -> Path:
    """What MLServer is started on: ``model`` once for each delay that its batching knows, which is any but
    none."""
    for delay in DELAYS_MS:
        place = folder / model.variant(delay)
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "benchmarks" / "peer_models" / "mlserver_model.py", place)
        shutil.copy(model.file, place / "model.onnx")
        settings: dict[str, object] = {
            "name": model.variant(delay),
            "implementation": "mlserver_model.OnnxModel",
            "parameters": {"uri": "./model.onnx"},
        }
        if delay:
            settings |= {"max_batch_size": model.max_batch_size, "max_batch_time": delay / 1000}
        (place / "model-settings.json").write_text(json.dumps(settings))
    return folder
