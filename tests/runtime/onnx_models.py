"""Small ONNX models for the tests of the runtime, written when a test needs them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnx import NodeProto, TensorProto, TypeProto, ValueInfoProto, helper

from interlingua.schemas import Datatype

ONNX_TYPES = {
    Datatype.BOOL: TensorProto.BOOL,
    Datatype.UINT8: TensorProto.UINT8,
    Datatype.UINT16: TensorProto.UINT16,
    Datatype.UINT32: TensorProto.UINT32,
    Datatype.UINT64: TensorProto.UINT64,
    Datatype.INT8: TensorProto.INT8,
    Datatype.INT16: TensorProto.INT16,
    Datatype.INT32: TensorProto.INT32,
    Datatype.INT64: TensorProto.INT64,
    Datatype.FP16: TensorProto.FLOAT16,
    Datatype.BF16: TensorProto.BFLOAT16,
    Datatype.FP32: TensorProto.FLOAT,
    Datatype.FP64: TensorProto.DOUBLE,
    Datatype.BYTES: TensorProto.STRING,
}


def value(name: str, datatype: Datatype, shape: Sequence[Any] | None) -> ValueInfoProto:
    """A graph input or output; a text or None in ``shape`` is a free dimension, None an unknown rank."""
    return helper.make_tensor_value_info(name, ONNX_TYPES[datatype], shape)


def sequence(name: str, datatype: Datatype) -> ValueInfoProto:
    """A graph output that is a sequence of tensors."""
    element = TypeProto(tensor_type=TypeProto.Tensor(elem_type=ONNX_TYPES[datatype]))
    return ValueInfoProto(name=name, type=TypeProto(sequence_type=TypeProto.Sequence(elem_type=element)))


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> NodeProto:
    return helper.make_node(operator, inputs, outputs, **attributes)


def write(
    path: Path,
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    constants: Sequence[TensorProto] = (),
) -> Path:
    """Write the model to ``path``, folders included, and return the path."""
    graph = helper.make_graph(nodes, "test", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())
    return path


def write_identity(
    path: Path, datatype: Datatype = Datatype.FP32, shape: Sequence[Any] | None = ("n",)
) -> Path:
    """``y`` = ``x``."""
    return write(
        path, [node("Identity", ["x"], ["y"])], [value("x", datatype, shape)], [value("y", datatype, shape)]
    )


def write_slow(path: Path) -> Path:
    """``y`` = ``x`` after as many turns of a loop as ``turns`` says, about a microsecond each."""
    body = helper.make_graph(
        [node("Identity", ["on"], ["on_out"]), node("Sqrt", ["carried"], ["carried_out"])],
        "body",
        [
            value("turn", Datatype.INT64, []),
            value("on", Datatype.BOOL, []),
            value("carried", Datatype.FP32, ["n"]),
        ],
        [value("on_out", Datatype.BOOL, []), value("carried_out", Datatype.FP32, ["n"])],
    )
    return write(
        path,
        [node("Loop", ["turns", "", "x"], ["y"], body=body)],
        [value("x", Datatype.FP32, ["n"]), value("turns", Datatype.INT64, [])],
        [value("y", Datatype.FP32, ["n"])],
    )
