"""What the Open Inference Protocol calls the platform of a model, where its list has a name for it.

Servers that come from Triton name an engine and a format, the protocol a project and a format. Platforms
that it does not list keep the name that the server or the configuration gives them.
"""

from __future__ import annotations

from collections.abc import Mapping

_LISTED: Mapping[str, str] = {
    "onnxruntime_onnx": "onnx_onnxv1",
    "pytorch_libtorch": "pytorch_torchscript",
}


def listed_platform(name: str) -> str:
    """The protocol's name for what a configuration or another server calls ``name``."""
    return _LISTED.get(name, name)
