"""Ensembles behind the real daemon, over Open Inference Protocol and version 1 alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from interlingua.schemas import Datatype
from tests.e2e.daemon import Daemon
from tests.e2e.trtis_clients import clients_of, refused
from tests.runtime.onnx_models import node, value, write
from tests.standins.trtis_client import Top

LABELS = ("ant", "bee", "cat")
ROWS = np.array([[1, 5, 2], [7, 0, -3]], np.float32)

MAYBE = """
import numpy as np
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb.get_input_tensor_by_name(request, "x").as_numpy()
            extra = pb.get_input_tensor_by_name(request, "extra")
            if (x == 13).any():
                raise ValueError("thirteen is no number")
            y = x if extra is None else x + extra.as_numpy()
            answers.append(pb.InferenceResponse([pb.Tensor("y", y)]))
        return answers
"""

ENSEMBLES = {
    "chain": """
        step [
          { model_name: "negate" input_map { key: "x" value: "doubled" } output_map { key: "y" value: "OUT" } },
          { model_name: "double" input_map { key: "x" value: "IN" } output_map { key: "y" value: "doubled" } }
        ]""",
    "fan": """
        step [
          { model_name: "double" input_map { key: "x" value: "IN" } output_map { key: "y" value: "doubled" } },
          { model_name: "negate" input_map { key: "x" value: "IN" } output_map { key: "y" value: "negated" } },
          { model_name: "add" input_map { key: "a" value: "doubled" } input_map { key: "b" value: "negated" }
            output_map { key: "y" value: "OUT" } }
        ]""",
    "optional": """
        step [
          { model_name: "double" input_map { key: "x" value: "IN" } output_map { key: "y" value: "doubled" } },
          { model_name: "maybe" input_map { key: "x" value: "doubled" } input_map { key: "extra" value: "EXTRA" }
            output_map { key: "y" value: "OUT" } }
        ]""",
    "labelled": """
        step [
          { model_name: "double" input_map { key: "x" value: "IN" } output_map { key: "y" value: "doubled" } },
          { model_name: "classes" input_map { key: "x" value: "doubled" } output_map { key: "y" value: "OUT" } }
        ]""",
    "nested": """
        step [
          { model_name: "chain" input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "half" } },
          { model_name: "chain" model_version: 1 input_map { key: "IN" value: "half" }
            output_map { key: "OUT" value: "OUT" } }
        ]""",
    "itself": """
        step [ { model_name: "itself" input_map { key: "IN" value: "IN" }
                 output_map { key: "OUT" value: "OUT" } } ]""",
    "nobatch": """
        step [
          { model_name: "negate" input_map { key: "x" value: "doubled" } output_map { key: "y" value: "OUT" } },
          { model_name: "double" input_map { key: "x" value: "IN" } output_map { key: "y" value: "doubled" } }
        ]""",
    "absent": """
        step [ { model_name: "nobody" input_map { key: "x" value: "IN" }
                 output_map { key: "y" value: "OUT" } } ]""",
}


def write_models(folder: Path) -> Path:
    """The models of the steps, and the ensembles."""
    x, y = (value(name, Datatype.FP32, ["n", 3]) for name in "xy")
    for name, nodes in {
        "double": [node("Add", ["x", "x"], ["y"])],
        "negate": [node("Neg", ["x"], ["y"])],
        "classes": [node("Identity", ["x"], ["y"])],
    }.items():
        write(folder / name / "1" / "model.onnx", nodes, [x], [y])
    (folder / "classes" / "labels.txt").write_text("\n".join(LABELS))
    (folder / "classes" / "config.pbtxt").write_text(
        'platform: "onnxruntime_onnx" max_batch_size: 8 '
        'input [{ name: "x" data_type: TYPE_FP32 dims: [ 3 ] }] '
        'output [{ name: "y" data_type: TYPE_FP32 dims: [ 3 ] label_filename: "labels.txt" }]'
    )
    sides = [value(name, Datatype.FP32, ["n", 3]) for name in "ab"]
    write(folder / "add" / "1" / "model.onnx", [node("Add", ["a", "b"], ["y"])], sides, [y])
    (folder / "maybe" / "1").mkdir(parents=True)
    (folder / "maybe" / "1" / "model.py").write_text(MAYBE)
    (folder / "maybe" / "config.pbtxt").write_text(
        'backend: "python" max_batch_size: 8 '
        'input [{ name: "x" data_type: TYPE_FP32 dims: [ 3 ] }, '
        '{ name: "extra" data_type: TYPE_FP32 dims: [ 3 ] optional: true }] '
        'output [{ name: "y" data_type: TYPE_FP32 dims: [ 3 ] }]'
    )
    for name, steps in ENSEMBLES.items():
        (folder / name / "1").mkdir(parents=True)
        extra = (
            ', { name: "EXTRA" data_type: TYPE_FP32 dims: [ 3 ] optional: true }'
            if name == "optional"
            else ""
        )
        batch = 0 if name == "nobatch" else 8
        (folder / name / "config.pbtxt").write_text(
            f'platform: "ensemble" max_batch_size: {batch} '
            f'input [{{ name: "IN" data_type: TYPE_FP32 dims: [ 3 ] }}{extra}] '
            f'output [{{ name: "OUT" data_type: TYPE_FP32 dims: [ 3 ] }}] '
            f"ensemble_scheduling {{ {steps} }}"
        )
    return folder


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("ensembles")
    listeners = [{"listen": "127.0.0.1:0", "transport": transport} for transport in ("http", "grpc")]
    running = Daemon.start(
        folder,
        {
            "listeners": listeners,
            "model_repository": [{"path": str(write_models(folder / "models")), "control": "explicit"}],
        },
    )
    try:
        yield running
        assert running.stop() == 0
    finally:
        running.kill()


@pytest.fixture(scope="module")
def v1(daemon: Daemon) -> Iterator[dict[str, Any]]:
    with clients_of(daemon) as clients:
        yield clients


class Oip:
    """tritonclient over one transport."""

    def __init__(self, module: Any, address: str) -> None:
        self.module = module
        self.client = module.InferenceServerClient(address)

    def infer(self, model: str, asked: Any = None, **inputs: Any) -> Any:
        given = []
        for name, rows in inputs.items():
            tensor = self.module.InferInput(name, rows.shape, "FP32")
            tensor.set_data_from_numpy(rows)
            given.append(tensor)
        return self.client.infer(model, given, outputs=asked).as_numpy("OUT")


@pytest.fixture(scope="module", params=["http", "grpc"])
def oip(daemon: Daemon, request: pytest.FixtureRequest) -> Iterator[Oip]:
    module, address = {
        "http": (triton_http, daemon.addresses[0]),
        "grpc": (triton_grpc, daemon.addresses[1]),
    }[request.param]
    found = Oip(module, address)
    yield found
    found.client.close()


ANSWERS = {"chain": -2 * ROWS, "fan": ROWS, "optional": 2 * ROWS, "labelled": 2 * ROWS, "nested": 4 * ROWS}


@pytest.mark.parametrize("model", ANSWERS)
def test_each_gives_what_its_steps_make(oip: Oip, v1: dict[str, Any], model: str) -> None:
    assert oip.infer(model, IN=ROWS).tolist() == ANSWERS[model].tolist()
    for client in v1.values():
        if model != "optional":  # version 1 has no optional inputs
            answer = client.infer(model, {"IN": ROWS}, {"OUT": None})
            assert answer.outputs["OUT"].tolist() == ANSWERS[model].tolist()


def test_an_ensemble_without_batches_may_have_steps_with(oip: Oip, v1: dict[str, Any]) -> None:
    """NVIDIA's own models for its tests are such; the original sends the steps a batch of one."""
    assert oip.infer("nobatch", IN=ROWS[0]).tolist() == (-2 * ROWS[0]).tolist()
    for client in v1.values():
        answer = client.infer("nobatch", {"IN": ROWS[0]}, {"OUT": None})
        assert answer.outputs["OUT"].tolist() == (-2 * ROWS[0]).tolist()


def test_an_optional_input_of_a_step_is_used_where_it_is_given(oip: Oip) -> None:
    assert oip.infer("optional", IN=ROWS, EXTRA=ROWS).tolist() == (3 * ROWS).tolist()


def test_classes_have_the_labels_of_the_last_step(oip: Oip, v1: dict[str, Any]) -> None:
    asked = [oip.module.InferRequestedOutput("OUT", class_count=2)]
    classes = oip.infer("labelled", asked, IN=ROWS)
    assert classes.tolist() == [
        [b"10.000000:1:bee", b"4.000000:2:cat"],
        [b"14.000000:0:ant", b"0.000000:1:bee"],
    ]
    for client in v1.values():
        answer = client.infer("labelled", {"IN": ROWS}, {"OUT": Top(1)})
        assert answer.outputs["OUT"] == [[(1, 10.0, "bee")], [(0, 14.0, "ant")]]


def test_a_failing_step_is_named(oip: Oip, v1: dict[str, Any]) -> None:
    bad = np.array([[6.5, 0, 0]], np.float32)
    with pytest.raises(InferenceServerException) as caught:
        oip.infer("optional", IN=bad)
    assert caught.value.message().startswith("in ensemble 'optional', step 'maybe': ")
    assert "thirteen is no number" in caught.value.message()
    assert oip.infer("chain", IN=ROWS).tolist() == ANSWERS["chain"].tolist()


def test_an_ensemble_without_one_of_its_models_is_not_ready(oip: Oip, v1: dict[str, Any]) -> None:
    assert not oip.client.is_model_ready("absent")
    assert oip.client.is_model_ready("chain")
    with pytest.raises(InferenceServerException, match="in ensemble 'absent', step 'nobody': "):
        oip.infer("absent", IN=ROWS)
    for client in v1.values():
        with refused("UNAVAILABLE", "in ensemble 'absent', step 'nobody': "):
            client.infer("absent", {"IN": ROWS}, {"OUT": None})


def test_an_ensemble_that_enters_itself_is_refused(oip: Oip) -> None:
    with pytest.raises(InferenceServerException, match="'itself' is a step of itself: itself -> itself"):
        oip.infer("itself", IN=ROWS)


def test_the_models_of_the_steps_count_their_part(oip: Oip) -> None:
    def counted(model: str) -> int:
        told = oip.client.get_inference_statistics(model)
        told = (
            told
            if isinstance(told, dict)
            else {"model_stats": [{"inference_count": told.model_stats[0].inference_count}]}
        )
        return int(told["model_stats"][0].get("inference_count", 0))

    before = {model: counted(model) for model in ("fan", "double", "negate", "add")}
    oip.infer("fan", IN=ROWS)
    assert {model: counted(model) - count for model, count in before.items()} == dict.fromkeys(before, 2)


def test_a_model_of_a_step_may_go_and_come_back(oip: Oip) -> None:
    oip.client.unload_model("add")
    try:
        assert not oip.client.is_model_ready("fan")
        with pytest.raises(InferenceServerException, match="in ensemble 'fan', step 'add': "):
            oip.infer("fan", IN=ROWS)
    finally:
        oip.client.load_model("add")
    assert oip.client.is_model_ready("fan")
    assert oip.infer("fan", IN=ROWS).tolist() == ROWS.tolist()
