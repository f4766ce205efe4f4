"""Writes the small example models whose answers anybody can check by hand.

``simple`` and ``add_sub`` answer with the sum and the difference of their inputs, in batches and
without; ``simple_string`` does so with numbers that are written as text; ``classy`` returns five scores
that have labels; ``identity_<datatype>`` returns what it gets; ``multi_ver`` is an identity with three
versions.
All run on ONNX Runtime but ``identity_bytes``: strings in ONNX are text, and the built-in identity
backend echoes any bytes. Names, shapes and datatypes are the ones of the models that the recorded
traffic in the tests was made with.

    pip install 'interlingua[examples]'
    python examples/make_models.py
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from onnx import ModelProto, NodeProto, TensorProto, checker, helper

MODELS = Path(__file__).parent / "models"

IDENTITIES = {
    "bool": TensorProto.BOOL,
    "uint8": TensorProto.UINT8,
    "uint16": TensorProto.UINT16,
    "uint32": TensorProto.UINT32,
    "uint64": TensorProto.UINT64,
    "int8": TensorProto.INT8,
    "int16": TensorProto.INT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "fp16": TensorProto.FLOAT16,
    "bf16": TensorProto.BFLOAT16,
    "fp32": TensorProto.FLOAT,
    "fp64": TensorProto.DOUBLE,
}


@dataclass(frozen=True)
class Example:
    """A model to write: all its tensors have one datatype (ONNX's number, and the name that the
    configuration uses) and the same dims, the batch left out."""

    name: str
    onnx_type: int
    config_type: str
    dims: tuple[int, ...]
    nodes: tuple[NodeProto, ...]
    max_batch_size: int = 0
    versions: tuple[int, ...] = (1,)
    labels: tuple[str, ...] = ()


def node(operator: str, inputs: list[str], output: str, **attributes: int) -> NodeProto:
    return helper.make_node(operator, inputs, [output], **attributes)


SUM_AND_DIFFERENCE = (
    node("Add", ["INPUT0", "INPUT1"], "OUTPUT0"),
    node("Sub", ["INPUT0", "INPUT1"], "OUTPUT1"),
)
OF_TEXT = (
    node("Cast", ["INPUT0"], "number0", to=TensorProto.INT64),
    node("Cast", ["INPUT1"], "number1", to=TensorProto.INT64),
    node("Add", ["number0", "number1"], "sum"),
    node("Sub", ["number0", "number1"], "difference"),
    node("Cast", ["sum"], "OUTPUT0", to=TensorProto.STRING),
    node("Cast", ["difference"], "OUTPUT1", to=TensorProto.STRING),
)
IDENTITY = (node("Identity", ["INPUT0"], "OUTPUT0"),)
SCORES = (node("Identity", ["DATA"], "PROB"),)

EXAMPLES = (
    Example("simple", TensorProto.INT32, "INT32", (16,), SUM_AND_DIFFERENCE, max_batch_size=8),
    Example("simple_string", TensorProto.STRING, "STRING", (16,), OF_TEXT, max_batch_size=8),
    Example(
        "classy",
        TensorProto.FLOAT,
        "FP32",
        (5,),
        SCORES,
        max_batch_size=4,
        labels=("ant", "bee", "cat", "dog", "elk"),
    ),
    Example("add_sub", TensorProto.FLOAT, "FP32", (-1,), SUM_AND_DIFFERENCE),
    Example("multi_ver", TensorProto.INT32, "INT32", (-1,), IDENTITY, versions=(1, 3, 7)),
    *(
        Example(f"identity_{name}", onnx_type, name.upper(), (-1,), IDENTITY)
        for name, onnx_type in IDENTITIES.items()
    ),
)


def main() -> int:
    for example in EXAMPLES:
        model = onnx_model(example).SerializeToString(deterministic=True)
        for version in example.versions:
            file = MODELS / example.name / str(version) / "model.onnx"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(model)
        inputs, outputs = tensor_names(example)
        write_config(example, "onnxruntime", inputs, outputs)
    # no file in its version folder but one that keeps the folder in version control
    bytes_model = Example("identity_bytes", TensorProto.STRING, "STRING", (-1,), IDENTITY)
    keep = MODELS / bytes_model.name / "1" / ".gitkeep"
    keep.parent.mkdir(parents=True, exist_ok=True)
    keep.touch()
    write_config(bytes_model, "identity", ["INPUT0"], ["OUTPUT0"])
    print(f"{len(EXAMPLES) + 1} models in {MODELS}")
    return 0


def tensor_names(example: Example) -> tuple[list[str], list[str]]:
    """The names of the inputs and of the outputs, in order."""
    read = dict.fromkeys(name for node in example.nodes for name in node.input)
    made = dict.fromkeys(name for node in example.nodes for name in node.output)
    return [name for name in read if name not in made], [name for name in made if name not in read]


def onnx_model(example: Example) -> ModelProto:
    """The ONNX model; a free dimension has the same name wherever it must have the same size."""
    batch: tuple[int | str, ...] = ("N",) if example.max_batch_size else ()
    shape = [*batch, *("n" if dim == -1 else dim for dim in example.dims)]
    inputs, outputs = tensor_names(example)
    graph = helper.make_graph(
        list(example.nodes),
        example.name,
        [helper.make_tensor_value_info(name, example.onnx_type, shape) for name in inputs],
        [helper.make_tensor_value_info(name, example.onnx_type, shape) for name in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(model, full_check=True)
    return model


def write_config(example: Example, backend: str, inputs: list[str], outputs: list[str]) -> None:
    """The model's ``config.pbtxt``."""

    def tensor(role: str, name: str) -> str:
        dims = ", ".join(map(str, example.dims))
        labels = 'label_filename: "labels.txt" ' if role == "output" and example.labels else ""
        datatype = f"TYPE_{example.config_type}"
        return f'{role} [ {{ name: "{name}" data_type: {datatype} dims: [ {dims} ] {labels}}} ]\n'

    lines = [
        f'name: "{example.name}"\n',
        f'backend: "{backend}"\n',
        f"max_batch_size: {example.max_batch_size}\n",
        *(tensor("input", name) for name in inputs),
        *(tensor("output", name) for name in outputs),
    ]
    if len(example.versions) > 1:
        lines.append("version_policy: { all { } }\n")
    folder = MODELS / example.name
    (folder / "config.pbtxt").write_text("".join(lines))
    if example.labels:
        (folder / "labels.txt").write_text("".join(f"{label}\n" for label in example.labels))


if __name__ == "__main__":
    sys.exit(main())
