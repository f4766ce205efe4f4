"""Writes a small convolutional network as a TorchScript file and as an exported program.

    python examples/make_torch_model.py FOLDER

makes the model folders ``FOLDER/cnn_script`` and ``FOLDER/cnn_export`` with the same weights, ready for a
``model_repository``. It needs PyTorch, which `pip install interlingua[torch]` brings. The weights come from a
fixed seed: the network shows how a model is served, not how digits are read.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch
from torch import nn

CONFIG = """\
backend: "pytorch"
max_batch_size: 64
input [{ name: "image" data_type: TYPE_FP32 dims: [ 1, 8, 8 ] }]
output [{ name: "scores" data_type: TYPE_FP32 dims: [ 10 ] }]
"""


class Network(nn.Module):
    """Images of shape [batch, 1, 8, 8] to scores of shape [batch, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
        )
        self.head = nn.Linear(32 * 4 * 4, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(image).flatten(1))


def network() -> Network:
    """The network with its weights, in evaluation mode."""
    torch.manual_seed(20)
    return Network().eval()


def write(folder: Path) -> None:
    """Write both model folders below ``folder``."""
    model = network()
    for name in ("cnn_script", "cnn_export"):
        (folder / name / "1").mkdir(parents=True, exist_ok=True)
        (folder / name / "config.pbtxt").write_text(CONFIG)
    with warnings.catch_warnings():
        # TorchScript is deprecated, and what many servers still hold
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(model).save(str(folder / "cnn_script" / "1" / "model.pt"))
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(model, (torch.zeros(2, 1, 8, 8),), dynamic_shapes={"image": {0: batch}})
    torch.export.save(program, folder / "cnn_export" / "1" / "model.pt2")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
