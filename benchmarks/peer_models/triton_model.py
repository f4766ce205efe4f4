"""An ONNX model behind Triton's Python backend: the requests of a batch are run as one.

It runs in Triton's environment, which has none of this project.
"""

import json
from pathlib import Path

import numpy as np
import onnxruntime as ort
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """What Triton asks for."""

    def initialize(self, args):
        config = json.loads(args["model_config"])
        self._input = config["input"][0]["name"]
        self._outputs = [output["name"] for output in config["output"]]
        options = ort.SessionOptions()
        options.intra_op_num_threads = int(config["parameters"]["intra_op_thread_count"]["string_value"])
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        file = Path(args["model_repository"]) / args["model_version"] / "model.onnx"
        self._session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])

    def execute(self, requests):
        arrays = [pb_utils.get_input_tensor_by_name(request, self._input).as_numpy() for request in requests]
        batch = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
        results = self._session.run(self._outputs, {self._input: batch})
        responses, start = [], 0
        for array in arrays:
            end = start + len(array)
            tensors = [
                pb_utils.Tensor(name, result[start:end])
                for name, result in zip(self._outputs, results, strict=True)
            ]
            responses.append(pb_utils.InferenceResponse(tensors))
            start = end
        return responses
