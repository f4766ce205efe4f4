"""A model repository for the version 1 tests: what the examples have, and models of the kinds that
version 1 users had: strings, classes with labels, many classes, models that come and go.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from onnx import TensorProto

from interlingua.schemas import Datatype
from tests.e2e.daemon import ROOT
from tests.runtime.onnx_models import node, value, write

EXAMPLES = ROOT / "examples" / "models"
LABELS = ("ant", "bee", "cat", "dog", "elk")
WIDE = 10_000
DATATYPES = {
    "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64",
    "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64", "fp16": "FP16", "fp32": "FP32",
    "fp64": "FP64", "bytes": "BYTES",
}  # fmt: skip
"""The datatypes that version 1 has, by the names of the identity models."""

LOADED = (
    "classy",
    "multi_ver",
    "simple",
    "simple_string",
    "wide",
    *(f"identity_{name}" for name in DATATYPES),
)
"""What a daemon should load at start."""

SPARE, BROKEN, EMPTY = "spare", "broken", "empty"
"""Models that are there and not loaded: a good one, one whose file is damaged, one without a version."""


def write_repository(folder: Path) -> Path:
    """Write every model to ``folder`` and return it."""
    for name in ("simple", "multi_ver", *(f"identity_{name}" for name in DATATYPES)):
        shutil.copytree(EXAMPLES / name, folder / name)
    _write_strings(folder / "simple_string")
    _write_classes(folder / "classy", 5, 4, LABELS)
    _write_classes(folder / "wide", WIDE, 8, tuple(f"class {index}" for index in range(WIDE)))
    _write_classes(folder / SPARE, 3, 0, ())
    _config(folder / BROKEN, 0, ("INPUT0", "TYPE_FP32", 1), ("OUTPUT0", "TYPE_FP32", 1))
    (folder / BROKEN / "1").mkdir()
    (folder / BROKEN / "1" / "model.onnx").write_bytes(b"no model at all")
    _config(folder / EMPTY, 0, ("INPUT0", "TYPE_FP32", 1), ("OUTPUT0", "TYPE_FP32", 1))
    return folder


def _config(folder: Path, batch: int, *tensors: tuple[str, str, int], labels: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f'name: "{folder.name}"', 'platform: "onnxruntime_onnx"', f"max_batch_size: {batch}"]
    for name, datatype, size in tensors:
        side = "input" if name.startswith(("INPUT", "DATA")) else "output"
        extra = ' label_filename: "labels.txt"' if labels and side == "output" else ""
        lines.append(f'{side} [ {{ name: "{name}" data_type: {datatype} dims: [ {size} ]{extra} }} ]')
    (folder / "config.pbtxt").write_text("\n".join(lines) + "\n")


def _write_classes(folder: Path, count: int, batch: int, labels: tuple[str, ...]) -> None:
    """PROB is what came as DATA."""
    _config(folder, batch, ("DATA", "TYPE_FP32", count), ("PROB", "TYPE_FP32", count), labels=bool(labels))
    if labels:
        (folder / "labels.txt").write_text("".join(f"{label}\n" for label in labels))
    shape = ["n", count] if batch else [count]
    write(
        folder / "1" / "model.onnx",
        [node("Identity", ["DATA"], ["PROB"])],
        [value("DATA", Datatype.FP32, shape)],
        [value("PROB", Datatype.FP32, shape)],
    )


def _write_strings(folder: Path) -> None:
    """Sums and differences of numbers that are written as text."""
    names = ("INPUT0", "INPUT1", "OUTPUT0", "OUTPUT1")
    _config(folder, 8, *((name, "TYPE_STRING", 16) for name in names))
    write(
        folder / "1" / "model.onnx",
        [
            node("Cast", ["INPUT0"], ["a"], to=TensorProto.INT64),
            node("Cast", ["INPUT1"], ["b"], to=TensorProto.INT64),
            node("Add", ["a", "b"], ["sum"]),
            node("Sub", ["a", "b"], ["difference"]),
            node("Cast", ["sum"], ["OUTPUT0"], to=TensorProto.STRING),
            node("Cast", ["difference"], ["OUTPUT1"], to=TensorProto.STRING),
        ],
        [value(name, Datatype.BYTES, ["n", 16]) for name in names[:2]],
        [value(name, Datatype.BYTES, ["n", 16]) for name in names[2:]],
    )
