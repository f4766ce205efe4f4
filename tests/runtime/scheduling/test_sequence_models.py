"""Models of sequences from their folders: what an ONNX model has beside what its clients see, the states it
carries, and what is refused when it is loaded."""

from __future__ import annotations

import asyncio
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.models.model import LocalModel
from interlingua.runtime.repository.files import ModelSource, load_model
from interlingua.schemas import Datatype, InferenceError, InferRequest, RequestedOutput, Tensor
from interlingua.schemas.messages import Sequence
from tests.runtime.onnx_models import node, value, write
from tests.runtime.python_models import python_model
from tests.waiting import until

SUM = """
max_batch_size: 4
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
STATE = 'state { input_name: "sum" output_name: "next" data_type: TYPE_FP32 dims: [ 1 ] %s }'


def accumulator(folder: Path, config: str, batched: bool = True) -> ModelSource:
    """A model whose y is x plus the input sum, and its output next the same."""
    shape = ["n", 1] if batched else [1]
    write(
        folder / "m" / "1" / "model.onnx",
        [node("Add", ["x", "sum"], ["y"]), node("Identity", ["y"], ["next"])],
        [value(name, Datatype.FP32, shape) for name in ("x", "sum")],
        [value(name, Datatype.FP32, shape) for name in ("y", "next")],
    )
    (folder / "m" / "config.pbtxt").write_text(config)
    return ModelSource("m", folder / "m")


def step(
    identity: int | str, number: float, flags: str = "", batched: bool = True, **more: Any
) -> InferRequest:
    array = np.full((1, 1) if batched else (1,), number, np.float32)
    place = Sequence(identity, "s" in flags, "e" in flags)
    return InferRequest("m", (Tensor.from_numpy("x", array),), sequence=place, **more)


async def reported(model: LocalModel, *arguments: Any, **more: Any) -> list[float]:
    response = await model.infer(step(*arguments, **more))
    return [tensor.numpy().item() for tensor in response.outputs]


@pytest.mark.parametrize("strategy", ["direct { }", "oldest { max_candidate_sequences: 2 }"])
async def test_a_state_goes_from_one_request_to_the_next(tmp_path: Path, strategy: str) -> None:
    source = accumulator(tmp_path, f"{SUM} sequence_batching {{ {STATE % ''} {strategy} }}")
    model = load_model(source)
    signature = await model.signature()
    assert [spec.name for spec in signature.inputs] == ["x"]
    assert [spec.name for spec in signature.outputs] == ["y"]
    assert await asyncio.gather(*(reported(model, key, key, "s") for key in (1, 2))) == [[1], [2]]
    assert await asyncio.gather(*(reported(model, key, 10) for key in (2, 1))) == [[12], [11]]
    assert await reported(model, 1, 1, "e") == [12]
    assert await reported(model, 1, 5, "s") == [5], "nothing is left of the sequence that ended"
    assert await reported(model, 2, 7, "s") == [7], "nor of a sequence that was restarted"
    sent = step(2, 1)
    sent.inputs += (sent.inputs[0].renamed("sum"),)
    with pytest.raises(InferenceError, match="expected 1 inputs but got 2"):
        await model.infer(sent)
    with pytest.raises(InferenceError, match="unexpected inference output 'next'"):
        await model.infer(step(2, 1, outputs=(RequestedOutput("next"),)))
    assert await reported(model, 2, 1, outputs=()) == []
    assert await reported(model, 2, 1, "e") == [9], "it is kept though nothing was asked for"
    await model.close()


async def test_a_state_that_is_declared_is_shown_too(tmp_path: Path) -> None:
    config = SUM + 'output { name: "next" data_type: TYPE_FP32 dims: 1 }'
    model = load_model(accumulator(tmp_path, f"{config} sequence_batching {{ {STATE % ''} }}"))
    assert await reported(model, "a", 1, "s") == [1, 1]
    assert await reported(model, "a", 2, outputs=(RequestedOutput("next"),)) == [3]
    assert await reported(model, "a", 2, "e") == [5, 5]
    await model.close()


async def test_a_state_begins_with_a_file(tmp_path: Path) -> None:
    (tmp_path / "m" / "initial_state").mkdir(parents=True)
    (tmp_path / "m" / "initial_state" / "hundred").write_bytes(np.float32(100).tobytes())
    initial = 'initial_state { data_type: TYPE_FP32 dims: 1 data_file: "hundred" name: "h" }'
    model = load_model(accumulator(tmp_path, f"{SUM} sequence_batching {{ {STATE % initial} }}"))
    assert await asyncio.gather(reported(model, 1, 1, "s"), reported(model, 2, 2, "s")) == [[101], [102]]
    assert [await reported(model, 2, 1), await reported(model, 1, 1, "s")] == [[103], [101]]
    await model.close()


async def test_a_model_without_batches_and_without_a_declared_signature(tmp_path: Path) -> None:
    model = load_model(accumulator(tmp_path, f"sequence_batching {{ {STATE % ''} }}", batched=False))
    signature = await model.signature()
    assert ([spec.name for spec in signature.inputs], signature.max_batch_size) == (["x"], 0)
    assert [await reported(model, 1, 1, "s", False), await reported(model, 1, 2, "e", False)] == [[1], [3]]
    await model.close()


async def test_a_state_that_grows(tmp_path: Path) -> None:
    """All that a sequence has given so far; sequences of one length and of several go on beside each other."""
    write(
        tmp_path / "m" / "1" / "model.onnx",
        [node("Concat", ["past", "x"], ["next"], axis=1), node("Identity", ["next"], ["y"])],
        [value("x", Datatype.FP32, ["n", 1]), value("past", Datatype.FP32, ["n", "k"])],
        [value(name, Datatype.FP32, ["n", "m"]) for name in ("next", "y")],
    )
    (tmp_path / "m" / "config.pbtxt").write_text("""
        max_batch_size: 4
        input { name: "x" data_type: TYPE_FP32 dims: 1 }
        output { name: "y" data_type: TYPE_FP32 dims: -1 }
        sequence_batching {
          state { input_name: "past" output_name: "next" data_type: TYPE_FP32 dims: -1 }
          control_input { name: "unused" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }
        }
    """)
    with pytest.raises(LoadError, match="sequence_batching names input 'unused', but the model's inputs are"):
        load_model(ModelSource("m", tmp_path / "m"))
    text = (tmp_path / "m" / "config.pbtxt").read_text()
    (tmp_path / "m" / "config.pbtxt").write_text(re.sub(r"control_input .*", "", text))
    model = load_model(ModelSource("m", tmp_path / "m"))

    async def given(*arguments: Any) -> list[float]:
        (found,) = (await model.infer(step(*arguments))).outputs
        assert found.shape[0] == 1
        return [float(number) for number in found.numpy().ravel()]

    assert await asyncio.gather(given(1, 1, "s"), given(2, 2, "s")) == [[0, 1], [0, 2]]
    assert await asyncio.gather(given(1, 3), given(3, 4, "s")) == [[0, 1, 3], [0, 4]]
    assert await asyncio.gather(given(1, 5), given(2, 6), given(3, 7)) == [[0, 1, 3, 5], [0, 2, 6], [0, 4, 7]]
    await model.close()


async def test_controls_of_an_onnx_model(tmp_path: Path) -> None:
    """It adds up, by itself, what it is told: start 100, end 10, ready 1, and the id."""
    names = {"start": Datatype.FP32, "end": Datatype.BOOL, "ready": Datatype.INT32, "id": Datatype.UINT64}
    casts = [node("Cast", [name], [f"{name}_"], to=1) for name in names]
    write(
        tmp_path / "m" / "1" / "model.onnx",
        [*casts, node("Sum", ["x", *(f"{name}_" for name in names)], ["y"])],
        [value("x", Datatype.FP32, ["n", 1]), *(value(name, kind, ["n", 1]) for name, kind in names.items())],
        [value("y", Datatype.FP32, ["n", 1])],
    )
    controls = {
        "start": "CONTROL_SEQUENCE_START fp32_false_true: [ 0, 100 ]",
        "end": "CONTROL_SEQUENCE_END bool_false_true: [ false, true ]",
        "ready": "CONTROL_SEQUENCE_READY int32_false_true: [ -1, 1 ]",
        "id": "CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64",
    }
    stated = "".join(
        f'control_input {{ name: "{key}" control {{ kind: {text} }} }}' for key, text in controls.items()
    )
    (tmp_path / "m" / "config.pbtxt").write_text(f"{SUM} sequence_batching {{ {stated} }}")
    model = load_model(ModelSource("m", tmp_path / "m"))
    assert [
        await reported(model, 1000, 0, "s"),
        await reported(model, 1000, 0),
        await reported(model, 1000, 0, "e"),
    ] == [
        [1101],
        [1001],
        [1002],
    ]
    assert await reported(model, 2**64 - 1, 0, "se") == [float(np.float32(2**64))]
    with pytest.raises(InferenceError, match="correlation ID 'a' is none that model 'm' takes"):
        await reported(model, "a", 0, "s")
    await model.close()


CONTROL = 'control_input { name: "c" control { kind: CONTROL_SEQUENCE_%s } }'
START = CONTROL % "START int32_false_true: [ 0, 1 ]"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (START * 2, "states control 'CONTROL_SEQUENCE_START' 2 times"),
        (START + CONTROL % "END int32_false_true: [ 0, 1 ]", "states input 'c' 2 times"),
        (CONTROL % "END int32_false_true: [ 0 ]", "'c' needs int32_false_true, .* of two values"),
        (
            CONTROL % "END int32_false_true: [ 0, 1 ] bool_false_true: [ false, true ]",
            "'c' needs int32_false_true, .* of two values",
        ),
        (CONTROL % "CORRID data_type: TYPE_FP32", "control input 'c' is FP32, which holds no correlation id"),
        (CONTROL % "CORRID", "control input 'c' has no data_type"),
        ("direct { minimum_slot_utilization: 1.5 }", "minimum_slot_utilization is 1.5, not from 0 to 1"),
        ("oldest { max_candidate_sequences: -1 }", "max_candidate_sequences is -1"),
        ("oldest { preferred_batch_size: 9 }", "preferred_batch_size 9 is not from 1 to max_batch_size"),
        (
            "iterative_sequence: true",
            "iterative_sequence is not supported by backend 'onnxruntime'",
        ),
        (
            START + "iterative_sequence: true",
            "sequence_batching: control_input is not supported together with iterative_sequence",
        ),
        (STATE % "" + "iterative_sequence: true", "state is not supported together with iterative_sequence"),
        ("generative_sequence: true", "generative_sequence is not supported"),
        ('state { output_name: "o" }', "a state has no input_name"),
        ('state { input_name: "sum" output_name: "next" }', "state 'sum' has no data_type"),
        (STATE.replace("[ 1 ]", "[ -2 ]") % "", "state 'sum' has dims \\[-2\\]"),
        (STATE % "initial_state { } initial_state { }", "state 'sum' has 2 of initial_state"),
        (
            STATE % "initial_state { data_type: TYPE_INT32 dims: 1 zero_data: true }",
            "initial_state of state 'sum' is not of the datatype and dims of the state",
        ),
        (
            STATE % "initial_state { data_type: TYPE_FP32 dims: 2 zero_data: true }",
            "initial_state of state 'sum' is not of the datatype and dims of the state",
        ),
        (STATE % "initial_state { data_type: TYPE_FP32 dims: 1 }", "needs zero_data or data_file"),
        (
            STATE % 'initial_state { data_type: TYPE_FP32 dims: 1 data_file: "none" }',
            "initial_state of state 'sum': .*initial_state/none: .*No such file",
        ),
        (
            STATE % 'initial_state { data_type: TYPE_FP32 dims: 1 data_file: "../config.pbtxt" }',
            "file '../config.pbtxt' is not in the model's folder",
        ),
        (
            (STATE % "").replace("next", "other"),
            "names output 'other', but the model's outputs are 'y', 'next'",
        ),
        (
            (STATE % "").replace("FP32", "INT32"),
            "has input 'sum' as INT32 \\[-1, 1\\], the model as FP32 \\[-1, 1\\]",
        ),
        ((STATE % "").replace("[ 1 ]", "[ 2 ]"), "has input 'sum' as FP32 \\[-1, 2\\], the model as FP32"),
        ("", "the model also needs input 'sum'"),
        (
            f'{START} }} backend: "identity" parameters {{',
            "needs as many outputs as inputs, got 2 inputs and 1",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    source = accumulator(tmp_path, f"{SUM} sequence_batching {{ {text} }}")
    with pytest.raises(LoadError, match=said):
        load_model(source)


def test_a_python_model_has_no_implicit_state(tmp_path: Path) -> None:
    config = f"{SUM} sequence_batching {{ {STATE % ''} }}"
    with pytest.raises(LoadError, match="state is not supported by backend 'python'"):
        load_model(python_model(tmp_path, "def execute(self, requests):\n    return []", config))


@pytest.mark.parametrize("strategy", ["direct { }", "oldest { }"])
async def test_a_torch_model_has_controls_and_states_too(tmp_path: Path, strategy: str) -> None:
    torch = pytest.importorskip("torch", reason="needs the extra 'torch' (make test-torch)")

    class Sums(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x, end, past):  # type: ignore[no-untyped-def]
            total = x + past
            return total + end, total

    folder = tmp_path / "m" / "1"
    folder.mkdir(parents=True)
    with warnings.catch_warnings():
        # PyTorch tells of its successor
        warnings.simplefilter("ignore")
        torch.jit.script(Sums()).save(str(folder / "model.pt"))
    control = (
        'control_input { name: "end" control { kind: CONTROL_SEQUENCE_END fp32_false_true: [ 0, 1000 ] } }'
    )
    state = (STATE % "").replace('"sum"', '"past"')
    config = f'backend: "pytorch" {SUM} sequence_batching {{ {control} {state} {strategy} }}'
    (tmp_path / "m" / "config.pbtxt").write_text(config)
    model = load_model(ModelSource("m", tmp_path / "m"))
    assert [spec.name for spec in (await model.signature()).inputs] == ["x"]
    assert await asyncio.gather(*(reported(model, key, key, "s") for key in (1, 2))) == [[1], [2]]
    assert await asyncio.gather(*(reported(model, key, 10, "e") for key in (2, 1))) == [[1012], [1011]]
    await model.close()


# --- Python models, which remember by themselves


SUMS = """
def initialize(self, args):
    self.sums = {}
    self.name = args["model_instance_name"]

def execute(self, requests):
    answers = []
    for request in requests:
        key, flags = request.correlation_id(), request.flags()
        value = given(request).ravel()
        if value[0] == 66:
            os._exit(1)
        if flags & pb.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
            self.sums[key] = 0
        self.sums[key] = self.sums.get(key, 0) + int(value[0])
        ready = pb.get_input_tensor_by_name(request, "READY")
        told = -1 if ready is None else int(ready.as_numpy().item())
        answers.append(answer([[self.sums[key], os.getpid(), len(requests), told]]))
    return answers
"""
PYTHON = """
max_batch_size: 4
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 4 ] } ]
"""
READY = 'control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } }'


async def python_reported(model: LocalModel, identity: int | str, number: int, flags: str = "") -> list[int]:
    place = Sequence(identity, "s" in flags, "e" in flags)
    tensor = Tensor.from_numpy("IN", np.array([[number]], np.int32))
    (found,) = (await model.infer(InferRequest("m", (tensor,), sequence=place))).outputs
    return [int(each) for each in found.numpy()[0]]


@pytest.mark.parametrize("strategy", ["direct { }", "oldest { }"])
async def test_the_processes_of_a_python_model_have_sequences_of_their_own(
    tmp_path: Path, strategy: str
) -> None:
    config = f"{PYTHON} sequence_batching {{ {strategy} }} instance_group [ {{ count: 2 }} ]"
    model = load_model(python_model(tmp_path, SUMS, config))
    keys = [1, "two", 3, 4]
    begun = await asyncio.gather(*(python_reported(model, key, 1, "s") for key in keys))
    processes = [found[1] for found in begun]
    assert len(set(processes)) == 2
    for total in (2, 3):
        found = await asyncio.gather(*(python_reported(model, key, 1) for key in keys))
        assert [each[0] for each in found] == [total] * 4
        assert [each[1] for each in found] == processes
    assert [each[2] for each in found] == [2] * 4
    await model.close()


async def test_a_python_model_with_a_ready_input_gets_padding_rows(tmp_path: Path) -> None:
    config = f"{PYTHON} sequence_batching {{ {READY} }}"
    model = load_model(python_model(tmp_path, SUMS, config))
    await asyncio.gather(*(python_reported(model, key, 1, "s") for key in (1, 2, 3)))
    assert (await python_reported(model, 3, 1))[2:] == [3, 1]
    assert (await python_reported(model, 1, 1))[2:] == [1, 1]
    await model.close()


async def test_the_sequences_of_a_process_end_with_it(tmp_path: Path) -> None:
    config = f"{PYTHON} sequence_batching {{ max_sequence_idle_microseconds: 60000000 }}"
    model = load_model(python_model(tmp_path, SUMS, config))
    await asyncio.gather(python_reported(model, 1, 1, "s"), python_reported(model, 2, 1, "s"))
    with pytest.raises(InferenceError, match="exit code 1"):
        await python_reported(model, 1, 66)
    await until(lambda: model.readiness().ready)
    # whatever the new process would answer, it would not be the sum
    with pytest.raises(InferenceError, match="must specify the START flag"):
        await python_reported(model, 2, 1)
    assert (await python_reported(model, 2, 5, "s"))[0] == 5
    await model.close()


async def test_new_sequences_go_where_a_process_is(tmp_path: Path) -> None:
    config = f"{PYTHON} sequence_batching {{ }} instance_group [ {{ count: 2 }} ]"
    model = load_model(python_model(tmp_path, SUMS, config))
    _, there, *_ = (await asyncio.gather(*(python_reported(model, key, 1, "s") for key in (1, 2))))[1]
    with pytest.raises(InferenceError, match="exit code 1"):
        await python_reported(model, 1, 66)
    # the slots of the one that has ended are free, and it is not back yet
    begun = await asyncio.gather(*(python_reported(model, key, key, "s") for key in (3, 4, 5)))
    assert [(total, process) for total, process, *_ in begun] == [(key, there) for key in (3, 4, 5)]
    await model.close()


async def test_a_decoupled_model_takes_the_next_request_of_a_sequence(tmp_path: Path) -> None:
    body = """
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        for request in requests:
            key, sender = request.correlation_id(), request.get_response_sender()
            for _ in range(2):
                self.sums[key] = self.sums.get(key, 0) + int(given(request).ravel()[0])
                sender.send(answer([[self.sums[key], 0, 0, 0]]))
            sender.send(flags=FINAL)
    """
    config = f"{PYTHON} model_transaction_policy {{ decoupled: true }} sequence_batching {{ }}"
    model = load_model(python_model(tmp_path, body, config))

    async def given(identity: int, number: int, flags: str = "") -> list[int]:
        place = Sequence(identity, "s" in flags, "e" in flags)
        tensor = Tensor.from_numpy("IN", np.array([[number]], np.int32))
        request = InferRequest("m", (tensor,), sequence=place)
        return [int(each.outputs[0].numpy()[0, 0]) async for each in model.stream(request) if each.outputs]

    assert await asyncio.gather(given(1, 1, "s"), given(2, 10, "s")) == [[1, 2], [10, 20]]
    assert await asyncio.gather(given(1, 1), given(1, 1, "e"), given(2, 1, "e")) == [[3, 4], [5, 6], [21, 22]]
    await model.close()
