"""The models that tritonclient's published examples ask for: those of the golden repository that have their names,
and small ones in place of the networks that the examples about images download."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.conformance.golden_repository import FOLDER

GOLDEN = (
    "simple",
    "simple_int8",
    "simple_string",
    "simple_identity",
    "simple_sequence",
    "simple_dyna_sequence",
    "repeat_int32",
)

LABELS = ("ant", "bee", "cat")

_HEAD = """
import numpy as np
import triton_python_backend_utils as utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]
"""

_MODELS = {
    # sums up a sequence, whose id is text; the last answer has the id added
    "simple_string_dyna_sequence": (
        """
backend: "python" max_batch_size: 8
input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }
sequence_batching {
  max_sequence_idle_microseconds: 5000000
  oldest { max_candidate_sequences: 16 }
}
""",
        """
    def initialize(self, args):
        self.sums = {}

    def answer(self, request):
        identity, flags = request.correlation_id(), request.flags()
        if flags & utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
            self.sums[identity] = 0
        self.sums[identity] += int(utils.get_input_tensor_by_name(request, "INPUT").as_numpy().item())
        told = self.sums[identity]
        if flags & utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END:
            told += int(identity)
        return utils.InferenceResponse([utils.Tensor("OUTPUT", np.full((1, 1), told, np.int32))])
""",
    ),
    # how much of an image each channel has
    "image": (
        """
backend: "python" max_batch_size: 4
input { name: "PIXELS" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, 4, 4 ] }
output { name: "CLASSES" data_type: TYPE_FP32 dims: [ 3 ] label_filename: "labels.txt" }
""",
        """
    def answer(self, request):
        pixels = utils.get_input_tensor_by_name(request, "PIXELS").as_numpy()
        return utils.InferenceResponse([utils.Tensor("CLASSES", pixels.mean(axis=(2, 3)).astype(np.float32))])
""",
    ),
    # the bytes of a file of 48 numbers, one for each pixel
    "decode": (
        """
backend: "python" max_batch_size: 4
input { name: "FILE" data_type: TYPE_STRING dims: [ 1 ] }
output { name: "DECODED" data_type: TYPE_FP32 dims: [ 3, 4, 4 ] }
""",
        """
    def answer(self, request):
        files = utils.get_input_tensor_by_name(request, "FILE").as_numpy().ravel()
        pixels = np.stack([np.frombuffer(each, np.uint8).reshape(3, 4, 4) for each in files])
        return utils.InferenceResponse([utils.Tensor("DECODED", pixels.astype(np.float32))])
""",
    ),
}

_ENSEMBLE = """
platform: "ensemble" max_batch_size: 4
input { name: "INPUT" data_type: TYPE_STRING dims: [ 1 ] }
output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 3 ] }
ensemble_scheduling {
  step { model_name: "decode" model_version: -1
    input_map { key: "FILE" value: "INPUT" } output_map { key: "DECODED" value: "pixels" } }
  step { model_name: "image" model_version: -1
    input_map { key: "PIXELS" value: "pixels" } output_map { key: "CLASSES" value: "OUTPUT" } }
}
"""

LOADED = (*GOLDEN, *_MODELS, "image_ensemble")


def write(folder: Path) -> tuple[str, ...]:
    """The repository in ``folder``; the names of its models."""
    for name in GOLDEN:
        shutil.copytree(FOLDER / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name, (config, code) in _MODELS.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(config)
        (folder / name / "1" / "model.py").write_text(_HEAD + code)
    (folder / "image" / "labels.txt").write_text("\n".join(LABELS))
    (folder / "image_ensemble" / "1").mkdir(parents=True)
    (folder / "image_ensemble" / "config.pbtxt").write_text(_ENSEMBLE)
    return LOADED
