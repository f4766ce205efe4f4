"""A model repository with ensembles whose steps leave outputs out, or answer any number of times. Triton 2.51
serves the same folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

_HEAD = """
import numpy as np
import triton_python_backend_utils as utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]
"""

_MODELS = {
    "plain": """
    def answer(self, request):
        given = utils.get_input_tensor_by_name(request, "IN").as_numpy()
        if (given == -1).any():
            return utils.InferenceResponse([], utils.TritonError("minus one in plain"))
        return utils.InferenceResponse([utils.Tensor("OUT", given)])
""",
    "partial": """
    def answer(self, request):
        given = utils.get_input_tensor_by_name(request, "IN").as_numpy()
        tensors = [utils.Tensor("A", given)]
        if given[0] > 0:
            tensors.append(utils.Tensor("B", given * 10))
        return utils.InferenceResponse(tensors)
""",
    "optional": """
    def answer(self, request):
        given = utils.get_input_tensor_by_name(request, "IN").as_numpy()
        more = utils.get_input_tensor_by_name(request, "MORE")
        added = 1000 if more is None else more.as_numpy()
        return utils.InferenceResponse([utils.Tensor("OUT", (given + added).astype(np.int32))])
""",
    "repeat": """
    def answer(self, request):
        sender = request.get_response_sender()
        for each in utils.get_input_tensor_by_name(request, "IN").as_numpy():
            if each == -2:
                sender.send(utils.InferenceResponse([], utils.TritonError("minus two in repeat")))
            else:
                sender.send(utils.InferenceResponse([utils.Tensor("OUT", np.array([each], np.int32))]))
        sender.send(flags=utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""",
}

_SIDES: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "plain": (("IN",), ("OUT",)),
    "partial": (("IN",), ("A", "B")),
    "optional": (("IN", "MORE?"), ("OUT",)),
    "repeat": (("IN",), ("OUT",)),
}

Maps = tuple[str, Mapping[str, str], Mapping[str, str]]

ENSEMBLES: Mapping[str, tuple[Sequence[str], Sequence[Maps]]] = {
    "left_out": (
        ("Y",),
        (
            ("partial", {"IN": "X"}, {"A": "a", "B": "b"}),
            ("optional", {"IN": "a", "MORE": "b"}, {"OUT": "Y"}),
        ),
    ),
    "left_out_of_the_answer": (("Y", "Z"), (("partial", {"IN": "X"}, {"A": "Y", "B": "Z"}),)),
    "left_out_but_required": (
        ("Y", "Z"),
        (("partial", {"IN": "X"}, {"A": "Y", "B": "b"}), ("plain", {"IN": "b"}, {"OUT": "Z"})),
    ),
    "repeated": (("Y",), (("repeat", {"IN": "X"}, {"OUT": "r"}), ("plain", {"IN": "r"}, {"OUT": "Y"}))),
    "repeated_alone": (("Y",), (("repeat", {"IN": "X"}, {"OUT": "Y"}),)),
    "repeated_last": (("Y",), (("plain", {"IN": "X"}, {"OUT": "i"}), ("repeat", {"IN": "i"}, {"OUT": "Y"}))),
    "repeated_twice": (
        ("Y",),
        (("repeat", {"IN": "X"}, {"OUT": "r"}), ("repeat", {"IN": "r"}, {"OUT": "Y"})),
    ),
    "repeated_and_joined": (
        ("Y", "Z"),
        (
            ("repeat", {"IN": "X"}, {"OUT": "r"}),
            ("plain", {"IN": "r"}, {"OUT": "Z"}),
            ("optional", {"IN": "r", "MORE": "Z"}, {"OUT": "Y"}),
        ),
    ),
    "nested": (("Y",), (("repeated", {"X": "X"}, {"Y": "Y"}),)),
    "mixed_inputs": (
        ("Y",),
        (("repeat", {"IN": "X"}, {"OUT": "r"}), ("optional", {"IN": "r", "MORE": "X"}, {"OUT": "Y"})),
    ),
    "mixed_outputs": (
        ("Y", "Z"),
        (("repeat", {"IN": "X"}, {"OUT": "Y"}), ("plain", {"IN": "X"}, {"OUT": "Z"})),
    ),
}

DECOUPLED = ("repeated", "repeated_alone", "repeated_last", "repeated_twice", "repeated_and_joined", "nested")
MIXED = ("mixed_inputs", "mixed_outputs")
"""Those that Triton refuses to load."""


def write(folder: Path) -> Path:
    """The repository in ``folder``, a model for each step and the ensembles."""
    for name, code in _MODELS.items():
        inputs, outputs = _SIDES[name]
        config = 'backend: "python"\n' + _tensors(inputs, outputs)
        head = _HEAD
        if name == "repeat":
            config += "model_transaction_policy { decoupled: true }\n"
            head = head.replace("return [self.answer(request) for request in requests]", _EACH)
        _model(folder, name, config)
        (folder / name / "1" / "model.py").write_text(head + code)
    for name, (outputs, steps) in ENSEMBLES.items():
        config = 'platform: "ensemble"\n' + _tensors(("X",), outputs) + "ensemble_scheduling {\n"
        for model, inputs_of, outputs_of in steps:
            config += f'  step {{ model_name: "{model}" model_version: -1\n'
            config += "".join(f'    input_map {{ key: "{k}" value: "{v}" }}\n' for k, v in inputs_of.items())
            config += "".join(
                f'    output_map {{ key: "{k}" value: "{v}" }}\n' for k, v in outputs_of.items()
            )
            config += "  }\n"
        _model(folder, name, config + "}\n")
    return folder


_EACH = """for request in requests:
            self.answer(request)"""


def _model(folder: Path, name: str, config: str) -> None:
    (folder / name / "1").mkdir(parents=True)
    (folder / name / "config.pbtxt").write_text(config)


def _tensors(inputs: Sequence[str], outputs: Sequence[str]) -> str:
    lines = []
    for side, names in (("input", inputs), ("output", outputs)):
        for name in names:
            optional = " optional: true" if name.endswith("?") else ""
            lines.append(
                f'{side} {{ name: "{name.rstrip("?")}" data_type: TYPE_INT32 dims: [ -1 ]{optional} }}\n'
            )
    return "".join(lines)
