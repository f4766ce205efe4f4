"""Models written in Python: what they are given, what they may answer, and how they fail."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest

from interlingua.runtime.backends import Job
from interlingua.runtime.model_config.config import DATATYPE_OF_TYPE, LoadError
from interlingua.runtime.repository.files import load_model
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    RequestedOutput,
    Tensor,
)
from interlingua.schemas.datatypes import DATATYPES
from tests.runtime.python_models import (
    ECHO,
    INT32,
    failure,
    instance,
    loaded,
    numbers,
    python_model,
    request,
    worker,
)

# --- tensors


IDENTITY = """
def execute(self, requests):
    return [pb.InferenceResponse([pb.Tensor("OUT", given(request))]) for request in requests]
"""


@pytest.mark.parametrize("datatype", DATATYPES.values(), ids=str)
async def test_every_datatype_comes_and_goes(tmp_path: Path, datatype: Datatype) -> None:
    kind = "TYPE_STRING" if datatype is Datatype.BYTES else f"TYPE_{datatype.value}"
    model = loaded(tmp_path, IDENTITY, INT32.replace("TYPE_INT32", kind))
    for count in (0, 3, 70_000):
        if datatype is Datatype.BYTES:
            array = np.array([b"\xff" * (index % 5) for index in range(count)], object)
        else:
            array = (np.arange(count) % 100).astype(datatype.dtype)
        given = Tensor.from_numpy("IN", array, datatype)
        response = await model.infer(InferRequest("m", (given,)))
        assert response.outputs == (given.renamed("OUT"),)
        assert response.outputs[0].view.readonly
    await model.close()


async def test_answers_stay_as_they_were_while_others_come(tmp_path: Path) -> None:
    model = loaded(tmp_path, ECHO)
    kept = []
    for index in range(6):
        array = np.full(50_000, index, np.int32)
        kept.append(await model.infer(InferRequest("m", (Tensor.from_numpy("IN", array),))))
    assert [set(numbers(response)) for response in kept] == [{index} for index in range(6)]
    await model.close()


async def test_memory_is_used_again(tmp_path: Path) -> None:
    model = loaded(tmp_path, ECHO)
    shared = worker(model)
    for size in (20_000, 40_000, 400_000, 30_000):
        for _ in range(20):
            array = np.arange(size, dtype=np.int32)
            response = await model.infer(InferRequest("m", (Tensor.from_numpy("IN", array),)))
            assert response.outputs[0].view == array.data.cast("B")
    assert len(shared._pool._regions) <= 3
    assert len(shared._views._regions) <= 3
    await model.close()


async def test_reshapes_are_for_clients_alone(tmp_path: Path) -> None:
    config = """
    max_batch_size: 4
    input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] reshape: { shape: [ ] } } ]
    output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 2, 2 ] reshape: { shape: [ 4 ] } } ]
    """
    body = """
    def execute(self, requests):
        shape, = {given(request).shape for request in requests}
        return [answer([[len(shape)] * 4] * 3) for request in requests]
    """
    model = loaded(tmp_path, body, config)
    given = Tensor.from_numpy("IN", np.zeros((3, 1), np.int32))
    response = await model.infer(InferRequest("m", (given,)))
    assert response.outputs[0].shape == (3, 2, 2)
    assert set(numbers(response)[0][0]) == {1}
    await model.close()


# --- what a model is told


async def test_what_initialize_receives(tmp_path: Path) -> None:
    body = """
    def initialize(self, args):
        import json
        args["model_config"] = json.loads(args["model_config"])
        self.told = json.dumps(args)

    def execute(self, requests):
        return [pb.InferenceResponse([pb.Tensor("OUT", np.array([self.told], object))])]
    """
    config = INT32.replace('"OUT" data_type: TYPE_INT32', '"OUT" data_type: TYPE_STRING')
    model = loaded(tmp_path, body, config + 'parameters { key: "k" value { string_value: "v" } }')
    response = await model.infer(request(1))
    told = orjson.loads(response.outputs[0].elements()[0])
    told_config = told.pop("model_config")
    assert told == {
        "model_name": "m",
        "model_version": "1",
        "model_repository": str(tmp_path / "m"),
        "model_instance_kind": "CPU",
        "model_instance_name": "m_0",
        "model_instance_device_id": "0",
    }
    assert told_config["name"] == "m"
    assert told_config["backend"] == "python"
    assert told_config["input"][0]["data_type"] == "TYPE_INT32"
    assert told_config["input"][0]["dims"] == [-1]
    assert told_config["parameters"] == {"k": {"string_value": "v"}}
    assert told_config["default_model_filename"] == "model.py"
    assert told_config["instance_group"][0]["kind"] == "KIND_CPU"
    await model.close()


async def test_a_model_completes_its_configuration(tmp_path: Path) -> None:
    body = """
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "IN", "data_type": "TYPE_INT32", "dims": [-1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_INT32", "dims": [-1]})
        config.set_max_batch_size(0)
        config.set_model_transaction_policy({"decoupled": True})
        return config

    def execute(self, requests):
        for request in requests:
            request.get_response_sender().send(answer(given(request)), FINAL)
    """
    model = loaded(tmp_path, body, "")
    signature = await model.signature()
    assert [spec.name for spec in (*signature.inputs, *signature.outputs)] == ["IN", "OUT"]
    assert [numbers(response) async for response in model.stream(request(4))] == [[4]]
    await model.close()


async def test_its_own_modules_may_have_any_name(tmp_path: Path) -> None:
    body = """
    def execute(self, requests):
        import runtime, schemas, protocols.oip
        return [answer([runtime.VALUE, schemas.VALUE, protocols.oip.VALUE]) for request in requests]
    """
    source = python_model(tmp_path, body)
    (tmp_path / "m" / "1" / "runtime.py").write_text("VALUE = 1")
    (tmp_path / "m" / "schemas.py").write_text("VALUE = 2")
    (tmp_path / "m" / "1" / "protocols").mkdir()
    (tmp_path / "m" / "1" / "protocols" / "oip.py").write_text("VALUE = 3")
    model = load_model(source)
    assert numbers(await model.infer(request(0))) == [1, 2, 3]
    await model.close()


async def test_requested_outputs(tmp_path: Path) -> None:
    body = """
    def execute(self, requests):
        names = requests[0].requested_output_names()
        return [pb.InferenceResponse([
            pb.Tensor("B", np.array([len(names)], np.int32)), pb.Tensor("A", np.array([7], np.int32)),
            pb.Tensor("unknown", np.zeros(1)),
        ])]
    """
    two = 'output [ { name: "A" data_type: TYPE_INT32 dims: [ 1 ] }, { name: "B" data_type: TYPE_INT32 dims: [ 1 ] } ]'
    model = loaded(tmp_path, body, INT32.splitlines()[1] + two)
    every = await model.infer(request(0))
    assert [(output.name, output.numpy().tolist()) for output in every.outputs] == [("A", [7]), ("B", [2])]
    one = await model.infer(request(0, outputs=(RequestedOutput("B"),)))
    assert [(output.name, output.numpy().tolist()) for output in one.outputs] == [("B", [1])]
    await model.close()


async def test_parameters_of_a_response(tmp_path: Path) -> None:
    body = """
    def execute(self, requests):
        return [answer([1], parameters={"text": "é", "number": 2, "yes": True, "part": 0.5})]
    """
    model = loaded(tmp_path, body)
    response = await model.infer(request(0))
    assert response.parameters == {"text": "é", "number": 2, "yes": True, "part": 0.5}
    await model.close()


async def test_its_log_is_the_server_s(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    body = """
    def execute(self, requests):
        pb.Logger.log_warn("beware")
        return [answer([1])]
    """
    model = loaded(tmp_path, body)
    with caplog.at_level(logging.WARNING):
        await model.infer(request(0))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [("WARNING", "beware")]
    await model.close()


@pytest.mark.parametrize("kind", ["float64", "int8", "object_"])
@pytest.mark.parametrize("declared", ["TYPE_STRING", "TYPE_INT32", "TYPE_FP16"])
async def test_an_empty_output_of_any_datatype_is_one_of_the_declared(
    tmp_path: Path, kind: str, declared: str
) -> None:
    """``np.array([])`` has FP64, and ends many a stream of tokens; Triton takes it."""
    config = INT32.replace('"OUT" data_type: TYPE_INT32', f'"OUT" data_type: {declared}')
    body = f"""
    def execute(self, requests):
        shape = given(requests[0]).tolist()
        return [pb.InferenceResponse([pb.Tensor("OUT", np.zeros(shape, np.{kind}))])]
    """
    model = loaded(tmp_path, body, config)
    for shape in ((0,), (1, 0), (0, 3)):
        (output,) = (await model.infer(request(*shape))).outputs
        assert output == Tensor("OUT", DATATYPE_OF_TYPE[declared], shape, memoryview(b""))
    await model.close()


GROUPS = """
instance_group [ { count: 1 kind: KIND_CPU }, { count: 2 }, { name: "mine" count: 2 }, { name: "own" } ]
"""


@pytest.mark.parametrize(
    ("groups", "names"),
    [
        ("", ["m_0"]),
        ("instance_group [ { count: 1 kind: KIND_CPU } ]", ["m_0_0"]),
        (GROUPS, ["m_0_0", "m_1_0", "m_1_1", "mine_0", "mine_1", "own_0"]),
    ],
)
async def test_instances_are_called_as_at_triton(tmp_path: Path, groups: str, names: list[str]) -> None:
    model = loaded(tmp_path, "def execute(self, requests):\n    raise ValueError('me')", INT32 + groups)
    places = instance(model)
    found = []
    for place in range(places.places):
        held = await places.claim(None, place)
        (answers,) = held.run([Job(request(1), request(1).inputs, ("OUT",))])
        answer = await anext(aiter(answers))
        assert answer.error is not None
        found.append(answer.error.message.split("'")[1])
        await answers.aclose()
    assert found == names
    await model.close()


async def test_instances_that_are_configured_in_another_place(tmp_path: Path) -> None:
    source = python_model(tmp_path, "def execute(self, requests):\n    raise ValueError('me')")
    model = load_model(replace(source, instances=2))
    assert [each["instance"] for each in instance(model)._settings] == ["m_0", "m_1"]
    await model.close()


# --- failures


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        (
            "def execute(self, requests):\n    raise ValueError('no')",
            ErrorCode.MODEL_FAILED,
            r"Failed to process the request\(s\) for model 'm_0', message: ValueError: no\n\n"
            r"At:\n  .*/m/1/model\.py\(\d+\): execute\n$",
        ),
        (
            "def execute(self, requests):\n"
            "    return [pb.InferenceResponse(error=pb.TritonError('which?', pb.TritonError.INVALID_ARG))]",
            ErrorCode.INVALID_TENSOR,
            "^which[?]$",
        ),
        (
            "def execute(self, requests):\n    return [pb.InferenceResponse(error=pb.TritonError('x'))]",
            ErrorCode.MODEL_FAILED,
            "^x$",
        ),
        (
            "def execute(self, requests):\n    return None",
            ErrorCode.MODEL_FAILED,
            "the model has let go of a request without a response",
        ),
        (
            "def execute(self, requests):\n    return []",
            ErrorCode.MODEL_FAILED,
            r"InferenceRequest\(s\) size is:1, and InferenceResponse\(s\) size is:0",
        ),
        (
            "def execute(self, requests):\n    return [7]",
            ErrorCode.MODEL_FAILED,
            "Expected an 'InferenceResponse' object .* found type 'int'",
        ),
        (
            "def execute(self, requests):\n    return [pb.InferenceResponse([pb.Tensor('OUT', np.zeros(2))])]",
            ErrorCode.MODEL_FAILED,
            "unexpected datatype FP64 for inference output 'OUT', expecting INT32",
        ),
        (
            "def execute(self, requests):\n    return [pb.InferenceResponse([pb.Tensor('OUT', np.zeros(2, complex))])]",
            ErrorCode.MODEL_FAILED,
            "no datatype stores NumPy's complex128",
        ),
        (
            "def execute(self, requests):\n    return [answer([1], parameters={'a': []})]",
            ErrorCode.MODEL_FAILED,
            "Expect parameters keys to have type str",
        ),
        (
            "def execute(self, requests):\n    return [answer([1], parameters={'a': float('nan')})]",
            ErrorCode.MODEL_FAILED,
            "a response has parameters that are not JSON",
        ),
        (
            "def execute(self, requests):\n    return [answer([1], parameters='[1]')]",
            ErrorCode.MODEL_FAILED,
            "parameters that are not plain values by name",
        ),
        (
            "def execute(self, requests):\n    raise ValueError('\\ud800')",
            ErrorCode.MODEL_FAILED,
            r"ValueError: \\ud800\n",
        ),
        (
            "def execute(self, requests):\n    os._exit(3)",
            ErrorCode.MODEL_FAILED,
            "the process of 'm_0' ended while it had the request: exit code 3",
        ),
    ],
)
async def test_a_run_that_fails(tmp_path: Path, body: str, code: ErrorCode, said: str) -> None:
    model = loaded(tmp_path, body)
    error = await failure(model, request(1))
    assert error.code is code
    assert error.origin == "m"
    with pytest.raises(InferenceError, match=said):
        raise error
    await model.close()


@pytest.mark.parametrize(
    ("body", "config", "said"),
    [
        (
            "raise ImportError('cannot')",
            INT32,
            r"^Internal: ImportError: cannot\n\nAt:\n.*model\.py\(\d+\): Tri",
        ),
        (
            "def initialize(self, args):\n    {}['weights']\n\ndef execute(self, requests):\n    pass",
            INT32,
            r"KeyError: 'weights'\n\nAt:\n.*initialize",
        ),
        (
            "def initialize(self, args):\n    os._exit(4)\n\ndef execute(self, _):\n    pass",
            INT32,
            "exit code 4",
        ),
        ("def run(self):\n    pass", INT32, "class TritonPythonModel has no method execute"),
        ("x = 1", INT32, "class TritonPythonModel has no method execute"),
        (
            ECHO,
            INT32 + 'parameters { key: "EXECUTION_ENV_PATH" value { } }',
            "EXECUTION_ENV_PATH is not supp",
        ),
    ],
)
def test_a_model_that_does_not_load(tmp_path: Path, body: str, config: str, said: str) -> None:
    with pytest.raises(LoadError, match=said):
        loaded(tmp_path, body, config)


def test_a_file_without_a_model(tmp_path: Path) -> None:
    source = python_model(tmp_path, ECHO)
    (tmp_path / "m" / "1" / "model.py").write_text("class Model: pass")
    with pytest.raises(LoadError, match="no class TritonPythonModel"):
        load_model(source)


async def test_an_id_that_is_no_text(tmp_path: Path) -> None:
    model = loaded(tmp_path, ECHO)
    error = await failure(model, request(1, id="\ud800"))
    assert (error.code, error.origin) == (ErrorCode.INVALID_TENSOR, "m")
    assert "the request id is not text" in error.message
    assert numbers(await model.infer(request(2))) == [2]
    await model.close()
