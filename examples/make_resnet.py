"""Writes an image classifier of the size and shape of ResNet-18, for measurements.

Eighteen layers, 11.7 million weights, 1.8 GFLOP an image of 3 by 224 by 224. The weights are random, from
a fixed seed, and the normalization that follows each convolution is folded into it, as is usual for
serving: what is shown is how such a model is served, not what is in a picture.

    pip install 'interlingua[examples]'
    python examples/make_resnet.py FOLDER

makes the model folder ``FOLDER/resnet`` for ONNX Runtime, ready for a ``model_repository``. With
``--torch``, which needs PyTorch, it makes ``FOLDER/resnet_torch`` too: the same weights as a TorchScript
file.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, checker, helper, numpy_helper

CONFIG = """\
backend: "{backend}"
max_batch_size: {max_batch_size}
input [{{ name: "image" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] }}]
output [{{ name: "scores" data_type: TYPE_FP32 dims: [ 1000 ] }}]
"""
MAX_BATCH_SIZE = 64

Weights = dict[str, NDArray[np.float32]]

# channels out, stride of the first convolution: two blocks of two convolutions for each stage
STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))


def weights() -> Weights:
    """A weight and a bias for each layer, by its name; scaled so that values stay of one size on the way."""
    random = np.random.default_rng(18)
    found: Weights = {}

    def layer(name: str, *shape: int, gain: float = 2.0) -> None:
        scale = np.sqrt(gain / np.prod(shape[1:]))
        found[f"{name}.weight"] = (random.standard_normal(shape) * scale).astype(np.float32)
        found[f"{name}.bias"] = np.zeros(shape[0], np.float32)

    layer("stem", 64, 3, 7, 7)
    channels = 64
    for stage, (width, stride) in enumerate(STAGES):
        for block in range(2):
            name = f"stage{stage}.block{block}"
            layer(f"{name}.first", width, channels, 3, 3)
            layer(f"{name}.second", width, width, 3, 3, gain=0.5)
            if block == 0 and (stride > 1 or width != channels):
                layer(f"{name}.shortcut", width, channels, 1, 1, gain=1.0)
            channels = width
    layer("head", 1000, channels, gain=1.0)
    return found


def onnx_model() -> ModelProto:
    """The network for ONNX: ``image`` of shape [N, 3, 224, 224] to ``scores`` of shape [N, 1000]."""
    found = weights()
    nodes: list[NodeProto] = []

    def node(operator: str, output: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(operator, list(inputs), [output], **attributes))
        return output

    def convolution(name: str, source: str, stride: int) -> str:
        pad = found[f"{name}.weight"].shape[-1] // 2
        return node(
            "Conv",
            f"{name}.out",
            source,
            f"{name}.weight",
            f"{name}.bias",
            strides=[stride, stride],
            pads=[pad] * 4,
        )

    at = node("Relu", "stem.active", convolution("stem", "image", 2))
    at = node("MaxPool", "stem.pooled", at, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for stage, (_, stride) in enumerate(STAGES):
        for block in range(2):
            name, step = f"stage{stage}.block{block}", stride if block == 0 else 1
            kept = convolution(f"{name}.shortcut", at, step) if f"{name}.shortcut.weight" in found else at
            at = node("Relu", f"{name}.active", convolution(f"{name}.first", at, step))
            at = node("Add", f"{name}.sum", convolution(f"{name}.second", at, 1), kept)
            at = node("Relu", f"{name}.out", at)
    at = node("Flatten", "features", node("GlobalAveragePool", "pooled", at))
    node("Gemm", "scores", at, "head.weight", "head.bias", transB=1)
    graph = helper.make_graph(
        nodes,
        "resnet",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, 224, 224])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", 1000])],
        [numpy_helper.from_array(array, name) for name, array in found.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(model, full_check=True)
    return model


def torch_module() -> Any:
    """The same network for PyTorch, in evaluation mode."""
    import torch
    from torch import nn

    found = weights()

    def filled(name: str, layer: Any) -> Any:
        for part in ("weight", "bias"):
            getattr(layer, part).data = torch.from_numpy(found[f"{name}.{part}"])
        return layer

    def convolution(name: str, stride: int) -> Any:
        width, channels, size, _ = found[f"{name}.weight"].shape
        return filled(name, nn.Conv2d(channels, width, size, stride, size // 2))

    class Block(nn.Module):  # type: ignore[misc] # PyTorch's own types say Any
        def __init__(self, name: str, stride: int) -> None:
            super().__init__()
            self.first = convolution(f"{name}.first", stride)
            self.second = convolution(f"{name}.second", 1)
            shortcut = f"{name}.shortcut"
            self.shortcut = convolution(shortcut, stride) if f"{shortcut}.weight" in found else nn.Identity()

        def forward(self, x):  # type: ignore[no-untyped-def]
            return torch.relu(self.second(torch.relu(self.first(x))) + self.shortcut(x))

    blocks = [
        Block(f"stage{stage}.block{block}", stride if block == 0 else 1)
        for stage, (_, stride) in enumerate(STAGES)
        for block in range(2)
    ]
    return nn.Sequential(
        convolution("stem", 2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        filled("head", nn.Linear(512, 1000)),
    ).eval()


def write_onnx(folder: Path) -> Path:
    """Write the model folder ``folder/resnet``; its model file."""
    file = _place(folder / "resnet", "onnxruntime", "model.onnx")
    file.write_bytes(onnx_model().SerializeToString(deterministic=True))
    return file


def write_torch(folder: Path) -> Path:
    """Write the model folder ``folder/resnet_torch``; its model file."""
    import torch

    file = _place(folder / "resnet_torch", "pytorch", "model.pt")
    module = torch_module()
    with torch.inference_mode():
        torch.jit.trace(module, torch.zeros(2, 3, 224, 224)).save(str(file))
    return file


def _place(model: Path, backend: str, filename: str) -> Path:
    (model / "1").mkdir(parents=True, exist_ok=True)
    (model / "config.pbtxt").write_text(CONFIG.format(backend=backend, max_batch_size=MAX_BATCH_SIZE))
    return model / "1" / filename


def main() -> int:
    parser = argparse.ArgumentParser(description="Write a model of the size of ResNet-18.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--torch", action="store_true", help="as a TorchScript file too")
    arguments = parser.parse_args()
    print(write_onnx(arguments.folder))
    if arguments.torch:
        print(write_torch(arguments.folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
