"""Models for the tests on Ray: slow ones, one that streams, one with state, one that says its version."""

from __future__ import annotations

from pathlib import Path

SLOW = """
import time
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb.get_input_tensor_by_name(request, "IN")
            time.sleep(float(x.as_numpy()[0]))
            answers.append(pb.InferenceResponse([pb.Tensor("OUT", x.as_numpy())]))
        return answers
"""

STREAM = """
import time
import numpy as np
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for number in range(int(pb.get_input_tensor_by_name(request, "IN").as_numpy()[0])):
                if number == 3:
                    time.sleep(0.3)
                sender.send(pb.InferenceResponse([pb.Tensor("OUT", np.array([number], np.float32))]))
            sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

SUMS = """
import os
import time
import numpy as np
import triton_python_backend_utils as pb

class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        answers = []
        for request in requests:
            key = request.correlation_id()
            start = request.flags() & pb.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
            x = pb.get_input_tensor_by_name(request, "IN").as_numpy()
            time.sleep(float(x[0]) % 1)
            self.sums[key] = x + (0 if start else self.sums[key])
            answers.append(pb.InferenceResponse([
                pb.Tensor("OUT", self.sums[key]), pb.Tensor("PROCESS", np.array([os.getpid()], np.int64))
            ]))
        return answers
"""

NOTING = """
import time
from pathlib import Path
import triton_python_backend_utils as pb

NOTES = Path(__file__).parents[2] / "notes"

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb.get_input_tensor_by_name(request, "IN")
            with NOTES.open("a") as notes:
                print(float(x.as_numpy()[0]), file=notes)
            time.sleep(float(x.as_numpy()[0]) % 1)
            answers.append(pb.InferenceResponse([pb.Tensor("OUT", x.as_numpy())]))
        return answers
"""

TURNED = """
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        return [pb.InferenceResponse([
            pb.Tensor("OUT", pb.get_input_tensor_by_name(request, "IN").as_numpy().T),
            pb.Tensor("OUT_TEXT", pb.get_input_tensor_by_name(request, "TEXT").as_numpy()),
        ]) for request in requests]
"""

FAILING = """
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        return [pb.InferenceResponse(error=pb.TritonError("not today")) for _ in requests]
"""

VERSION = """
import numpy as np
import triton_python_backend_utils as pb

class TritonPythonModel:
    def initialize(self, args):
        self.version = int(args["model_version"])

    def execute(self, requests):
        return [pb.InferenceResponse([pb.Tensor("OUT", np.array([self.version], np.float32))]) for _ in requests]
"""

_TENSORS = (
    'input { name: "IN" data_type: TYPE_FP32 dims: 1 } output { name: "OUT" data_type: TYPE_FP32 dims: 1 }'
)

_SUMS = f'{_TENSORS} output {{ name: "PROCESS" data_type: TYPE_INT64 dims: 1 }} '

MODELS = {
    "slow": (SLOW, _TENSORS),
    "noting": (NOTING, _TENSORS),
    "stream": (STREAM, f"{_TENSORS} model_transaction_policy {{ decoupled: true }}"),
    # one sequence at a time, and many
    "sums": (SUMS, f"{_SUMS} sequence_batching {{ max_sequence_idle_microseconds: 60000000 }}"),
    "totals": (
        SUMS,
        f"{_SUMS} sequence_batching {{ max_sequence_idle_microseconds: 60000000 "
        "oldest { max_candidate_sequences: 64 } }",
    ),
    "turned": (
        TURNED,
        'input { name: "IN" data_type: TYPE_FP32 dims: [-1, -1] } input { name: "TEXT" data_type: TYPE_STRING dims: -1 } '
        'output { name: "OUT" data_type: TYPE_FP32 dims: [-1, -1] } '
        'output { name: "OUT_TEXT" data_type: TYPE_STRING dims: -1 }',
    ),
    "failing": (FAILING, _TENSORS),
    "version": (VERSION, _TENSORS),
}


def write_model(folder: Path, name: str, version: int = 1) -> Path:
    """Write model ``name`` of :data:`MODELS`, and return its folder."""
    program, config = MODELS[name]
    (folder / name / str(version)).mkdir(parents=True, exist_ok=True)
    (folder / name / "config.pbtxt").write_text(f'backend: "python" {config}')
    (folder / name / str(version) / "model.py").write_text(program)
    return folder / name
