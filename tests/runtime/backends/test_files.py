"""What files of models show without their engine, and what is said of those that no engine takes."""

from __future__ import annotations

import zipfile
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from interlingua.runtime.backends import BACKENDS, onnx_file, onnxruntime, python_file, torch_file
from interlingua.runtime.model_config.config import LoadError, ModelConfig
from interlingua.schemas import Datatype, TensorSpec
from tests.runtime.onnx_models import write_identity, write_slow

EXAMPLES = Path(__file__).parents[3] / "examples" / "models"
DECLARED = ModelConfig(outputs=(TensorSpec("OUTPUT__0", Datatype.FP32, (-1,)),))


def zipmap(path: Path) -> Path:
    """What skl2onnx makes of a classifier: probabilities as a sequence of maps."""
    graph = helper.make_graph(
        [
            helper.make_node(
                "ZipMap", ["x"], ["output_probability"], "", "", "ai.onnx.ml", classlabels_int64s=[0, 1]
            )
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 2])],
        [
            helper.make_value_info(
                "output_probability",
                helper.make_sequence_type_proto(
                    helper.make_map_type_proto(
                        TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None)
                    )
                ),
            )
        ],
    )
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def said(path: Path, backend: str, config: ModelConfig = ModelConfig()) -> str:  # noqa: B008
    examine = {"onnx": onnx_file.examine, "torch": torch_file.examine, "python": python_file.examine}[backend]
    with pytest.raises(LoadError) as raised:
        examine(path, config)
    text = str(raised.value)
    assert text.startswith(str(path))
    return text.removeprefix(str(path)).lstrip(": ")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/*/model.onnx")), ids=lambda path: path.parts[-3])
def test_every_example_is_onnx(path: Path) -> None:
    onnx_file.examine(path, ModelConfig())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a", "is no ONNX model, or damaged"),
        (b"<!DOCTYPE html><html></html>", "is no ONNX model, or damaged"),
        (b"\x08\x07", "is no ONNX model: there is no graph"),
        ((EXAMPLES / "digits" / "1" / "model.onnx").read_bytes()[:-10], "is no ONNX model, or damaged"),
    ],
)
def test_a_file_that_is_no_onnx(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    assert said(path, "onnx").startswith(reason)


def test_a_format_of_onnx_runtimes_own_is_left_to_it(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\x28\0\0\0ORTM" + bytes(20))
    onnx_file.examine(path, ModelConfig())


def test_a_classifier_of_skl2onnx_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """Without the engine and by the engine: neither can serve maps."""
    path = zipmap(tmp_path / "model.onnx")
    advice = "unless it is converted with options={'zipmap': False}"
    text = said(path, "onnx")
    assert text.startswith("output 'output_probability' is a sequence, which cannot be served; ")
    assert text.endswith(advice)
    with pytest.raises(LoadError) as raised:
        onnxruntime.load(path, ModelConfig())
    assert "'output_probability' is a seq(map(int64,tensor(float))), which cannot" in str(raised.value)
    assert str(raised.value).endswith(advice)


def archive(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name in names:
            file.writestr(f"archive/{name}", b"")
    return path


def test_weights_are_no_program(tmp_path: Path) -> None:
    """`torch.save(model.state_dict(), path)`, as nearly every tutorial has it."""
    path = archive(
        tmp_path / "model.pt", "data.pkl", "byteorder", "data/0", "version", ".data/serialization_id"
    )
    text = said(path, "torch", DECLARED)
    assert text.startswith("holds weights (a state_dict) or a pickled module, no program; torch.jit.script")
    path.write_bytes(b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.")  # what older releases wrote
    assert said(path, "torch", DECLARED).startswith("is no program of PyTorch, or cut short; ")


def test_a_program_has_to_be_declared_where_it_does_not_declare_itself(tmp_path: Path) -> None:
    path = archive(tmp_path / "model.pt", "data.pkl", "code/__torch__.py", "constants.pkl", "version")
    torch_file.examine(path, DECLARED)
    text = said(path, "torch")
    assert text.startswith("a TorchScript file does not declare its tensors, so a configuration must: ")
    assert "`input` and `output` in config.pbtxt, or `signature`" in text
    torch_file.examine(archive(tmp_path / "model.pt2", "models/model.json"), ModelConfig())


def test_a_python_file_is_read_and_not_run(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text("raise SystemExit\n")
    python_file.examine(path, ModelConfig())
    path.write_text("x = 1\ndef f(:\n")
    assert said(path, "python") == ", line 2: invalid syntax"
    path.write_text("\0")
    assert "null bytes" in said(path, "python")
    assert "EXECUTION_ENV_PATH is not supported" in said(
        path, "python", ModelConfig(parameters={"EXECUTION_ENV_PATH": "x"})
    )


@pytest.mark.parametrize(
    ("backend", "extra"), [("onnxruntime", "onnx"), ("torch", "torch"), ("pytorch", "torch")]
)
def test_a_missing_engine_is_reported_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, backend: str, extra: str
) -> None:
    import builtins
    import sys

    usual = builtins.__import__
    engine = BACKENDS[backend].engine

    def without(name: str, *arguments: object) -> object:
        if name == engine:
            raise ModuleNotFoundError(f"No module named '{name}'")
        return usual(name, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.delitem(sys.modules, BACKENDS[backend].module, raising=False)
    monkeypatch.setattr("interlingua.runtime.backends.find_spec", lambda name: None)
    install = f"pip install 'interlingua[{extra}]'"
    for attempt in (BACKENDS[backend].load, BACKENDS[backend].examine):
        with pytest.raises(LoadError) as raised:
            attempt(Path("m.onnx"), ModelConfig())
        assert "m.onnx: the engine for platform '" in str(raised.value)
        assert str(raised.value).endswith(f"; {install}")


def bounded(folder: Path, *operators: str, domain: str = "") -> bool:
    """Of a graph with these operators, which need no engine."""
    nodes = [helper.make_node(operator, ["x"], ["y"], domain=domain) for operator in operators]
    tensor = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in ("x", "y")]
    path = folder / "model.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", tensor[:1], tensor[1:])), path)
    return onnx_file.is_bounded(path)


def test_models_whose_shapes_bound_a_run(tmp_path: Path) -> None:
    assert bounded(tmp_path, "Gemm", "Relu", "Softmax")
    assert bounded(tmp_path, "TreeEnsembleClassifier", domain="ai.onnx.ml")
    assert onnx_file.is_bounded(EXAMPLES / "digits" / "1" / "model.onnx")
    for operator in ("Loop", "If", "Scan", "Range", "Expand"):
        assert not bounded(tmp_path, "Relu", operator, "Relu")
    assert not bounded(tmp_path, "BeamSearch", domain="com.microsoft")
    assert not bounded(tmp_path, *["Relu"] * 1001)
    assert not onnx_file.is_bounded(write_slow(tmp_path / "slow.onnx"))
    (tmp_path / "none").write_bytes(b"\xff\xff\xff\xff")
    assert not onnx_file.is_bounded(tmp_path / "none")
    (tmp_path / "ort").write_bytes(b"\0\0\0\0ORTM1234")
    assert not onnx_file.is_bounded(tmp_path / "ort")


def test_functions_of_a_model_count(tmp_path: Path) -> None:
    opsets = [helper.make_opsetid("", 17)]
    for operator in ("Relu", "Tile"):
        inner = helper.make_function(
            "ai.onnx", "F", ["a"], ["b"], [helper.make_node(operator, ["a"], ["b"])], opsets
        )
        tensor = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in ("x", "y")]
        graph = helper.make_graph([helper.make_node("F", ["x"], ["y"])], "g", tensor[:1], tensor[1:])
        path = tmp_path / "model.onnx"
        onnx.save(helper.make_model(graph, functions=[inner], opset_imports=opsets), path)
        assert onnx_file.is_bounded(path) is (operator == "Relu")


def test_instances_that_may_run_inline(tmp_path: Path) -> None:
    identity = onnxruntime.load(write_identity(tmp_path / "a.onnx"), ModelConfig())
    assert identity.bounded
    assert not onnxruntime.load(write_identity(tmp_path / "b.onnx", Datatype.BYTES), ModelConfig()).bounded
    assert not onnxruntime.load(write_slow(tmp_path / "c.onnx"), ModelConfig()).bounded
