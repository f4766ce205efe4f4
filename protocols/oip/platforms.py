"""Platform names of the Open Inference Protocol: a project and a format, where Triton names an engine and a
format. Other names stay as the server or the configuration has them."""

from __future__ import annotations

_LISTED = {"onnxruntime_onnx": "onnx_onnxv1", "pytorch_libtorch": "pytorch_torchscript"}


def listed_platform(name: str) -> str:
    """The protocol's name for platform ``name``."""
    return _LISTED.get(name, name)
