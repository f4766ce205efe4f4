"""ONNX Runtime with real models: every datatype bit for bit, odd buffers, and what it cannot do."""

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.runtime.backends.onnxruntime import OnnxInstance, load
from interlingua.runtime.model_config.config import LoadError, ModelConfig
from interlingua.schemas import Datatype, ErrorCode, InferenceError, Tensor, TensorSpec, pack_bytes
from tests.runtime.onnx_models import node, sequence, value, write, write_identity
from tests.strategies import tensors

NUMERIC = [datatype for datatype in Datatype if datatype is not Datatype.BYTES]


def loaded(path: Path, **config) -> OnnxInstance:
    return load(path, ModelConfig(**config))


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> dict[Datatype, OnnxInstance]:
    folder = tmp_path_factory.mktemp("identities")
    return {
        datatype: loaded(write_identity(folder / f"{datatype.value}.onnx", datatype, ["a", "b"]))
        for datatype in Datatype
    }


@given(
    tensor=tensors(NUMERIC, name="x", shape=st.tuples(st.integers(0, 4), st.integers(0, 4))),
)
def test_every_numeric_datatype_survives_bit_for_bit(
    identities: dict[Datatype, OnnxInstance], tensor: Tensor
) -> None:
    (output,) = identities[tensor.datatype].run((tensor,), ("y",))
    assert (output.name, output.datatype, output.shape) == ("y", tensor.datatype, tensor.shape)
    assert bytes(output.view) == bytes(tensor.view)
    assert output.view.readonly


@given(texts=st.lists(st.text(st.characters(codec="utf-8"), max_size=6), max_size=6))
def test_text_survives_with_nul_and_empty_elements(
    identities: dict[Datatype, OnnxInstance], texts: list[str]
) -> None:
    packed = pack_bytes(text.encode() for text in texts)
    tensor = Tensor.checked("x", Datatype.BYTES, [1, len(texts)], packed)
    (output,) = identities[Datatype.BYTES].run((tensor,), ("y",))
    assert (output.shape, bytes(output.view)) == ((1, len(texts)), packed)


def test_bytes_that_are_not_text_are_refused_by_name(identities: dict[Datatype, OnnxInstance]) -> None:
    tensor = Tensor.checked("x", Datatype.BYTES, [1, 2], pack_bytes([b"fine", b"ab\xff"]))
    with pytest.raises(InferenceError, match=r"input 'x': element 1 is not UTF-8.* at byte 2") as caught:
        identities[Datatype.BYTES].run((tensor,), ("y",))
    assert caught.value.code is ErrorCode.INVALID_TENSOR


def test_the_signature_has_names_datatypes_and_free_dimensions(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.onnx",
        [node("Identity", ["x"], ["y"]), node("Identity", ["s"], ["t"])],
        [value("x", Datatype.FP16, ["batch", None, 3]), value("s", Datatype.BYTES, [])],
        [value("y", Datatype.FP16, ["batch", None, 3]), value("t", Datatype.BYTES, [])],
    )
    signature = loaded(path).signature
    assert signature.inputs == (
        TensorSpec("x", Datatype.FP16, (-1, -1, 3)),
        TensorSpec("s", Datatype.BYTES, ()),
    )
    assert signature.outputs == (
        TensorSpec("y", Datatype.FP16, (-1, -1, 3)),
        TensorSpec("t", Datatype.BYTES, ()),
    )
    assert signature.max_batch_size == 0


@pytest.mark.parametrize("datatype", Datatype)
def test_scalars(tmp_path: Path, datatype: Datatype) -> None:
    instance = loaded(write_identity(tmp_path / "m.onnx", datatype, []))
    data = pack_bytes([b"one"]) if datatype is Datatype.BYTES else b"\x01" + bytes(datatype.itemsize - 1)
    (output,) = instance.run((Tensor.checked("x", datatype, [], data),), ("y",))
    assert (output.shape, bytes(output.view)) == ((), data)


@pytest.mark.parametrize("datatype", [Datatype.FP64, Datatype.BF16, Datatype.INT64])
@pytest.mark.parametrize("offset", [1, 3])
def test_unaligned_bodies(identities: dict[Datatype, OnnxInstance], datatype: Datatype, offset: int) -> None:
    data = np.arange(6).astype(datatype.dtype).tobytes()
    body = memoryview(bytes(offset) + data)[offset:]
    (output,) = identities[datatype].run((Tensor.checked("x", datatype, [2, 3], body),), ("y",))
    assert bytes(output.view) == data


def test_inputs_are_read_in_place_and_never_written(tmp_path: Path) -> None:
    # Relu could work in place, and Identity could hand the input itself back
    path = write(
        tmp_path / "m.onnx",
        [node("Relu", ["x"], ["y"]), node("Identity", ["x"], ["z"])],
        [value("x", Datatype.FP32, ["n"])],
        [value("y", Datatype.FP32, ["n"]), value("z", Datatype.FP32, ["n"])],
    )
    body = bytearray(np.linspace(-1, 1, 1000, dtype=np.float32).tobytes())
    before = bytes(body)
    relu, same = loaded(path).run((Tensor.checked("x", Datatype.FP32, [1000], body),), ("y", "z"))
    assert body == before
    assert relu.numpy().min() == 0
    body[:] = bytes(len(body))
    assert bytes(same.view) == before, "an output must outlive the request's body"


@pytest.mark.parametrize("datatype", [Datatype.FP32, Datatype.BF16])
def test_outputs_outlive_the_instance(tmp_path: Path, datatype: Datatype) -> None:
    instance = loaded(write_identity(tmp_path / "m.onnx", datatype))
    data = np.arange(100_000).astype(datatype.dtype).tobytes()
    tensor = Tensor.checked("x", datatype, [100_000], data)
    outputs = [instance.run((tensor,), ("y",))[0] for _ in range(5)]
    instance.close()
    del instance
    gc.collect()
    churn = [np.full(100_000, 7, np.float32) for _ in range(5)]
    assert all(bytes(output.view) == data for output in outputs)
    del churn


def test_outputs_come_in_the_requested_order(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.onnx",
        [node("Neg", ["x"], ["a"]), node("Abs", ["x"], ["b"])],
        [value("x", Datatype.INT32, ["n"])],
        [value("a", Datatype.INT32, ["n"]), value("b", Datatype.INT32, ["n"])],
    )
    instance = loaded(path)
    inputs = (Tensor.from_numpy("x", np.array([-5], np.int32)),)
    assert [(t.name, t.numpy().item()) for t in instance.run(inputs, ("b", "a"))] == [("b", 5), ("a", 5)]
    assert [t.name for t in instance.run(inputs, ("b",))] == ["b"]
    assert instance.run(inputs, ()) == ()


def test_bfloat16_beside_other_datatypes(tmp_path: Path) -> None:
    bf16 = Tensor.from_numpy("x", np.array([1.5, -2], Datatype.BF16.dtype))
    words = Tensor.from_numpy("w", np.array([3, 4], np.uint16))
    out = write(
        tmp_path / "out.onnx",
        [node("Identity", ["x"], ["y"]), node("Identity", ["w"], ["v"]), node("Cast", ["w"], ["t"], to=8)],
        [value("x", Datatype.BF16, ["n"]), value("w", Datatype.UINT16, ["n"])],
        [
            value("y", Datatype.BF16, ["n"]),
            value("v", Datatype.UINT16, ["n"]),
            value("t", Datatype.BYTES, ["n"]),
        ],
    )
    y, v, t = loaded(out).run((words, bf16), ("y", "v", "t"))
    assert y.numpy().astype(np.float32).tolist() == [1.5, -2]
    assert v.numpy().tolist() == [3, 4]
    assert t.elements() == [b"3", b"4"]

    into = write(
        tmp_path / "into.onnx",
        [node("Cast", ["x"], ["y"], to=1), node("Identity", ["s"], ["t"])],
        [value("x", Datatype.BF16, ["n"]), value("s", Datatype.BYTES, ["n"])],
        [value("y", Datatype.FP32, ["n"]), value("t", Datatype.BYTES, ["n"])],
    )
    text = Tensor.checked("s", Datatype.BYTES, [1], pack_bytes(["ä".encode()]))
    y, t = loaded(into).run((bf16, text), ("y", "t"))
    assert y.numpy().tolist() == [1.5, -2]
    assert t.elements() == ["ä".encode()]


def test_a_run_that_fails_says_what_onnx_runtime_says(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.onnx",
        [node("Add", ["x", "y"], ["z"])],
        [value("x", Datatype.FP32, ["n"]), value("y", Datatype.FP32, ["m"])],
        [value("z", Datatype.FP32, ["k"])],
    )
    inputs = (
        Tensor.from_numpy("x", np.zeros(2, np.float32)),
        Tensor.from_numpy("y", np.zeros(3, np.float32)),
    )
    with pytest.raises(InferenceError, match="ONNXRuntimeError.*Add") as caught:
        loaded(path).run(inputs, ("z",))
    assert caught.value.code is ErrorCode.MODEL_FAILED


def test_several_threads_at_once(identities: dict[Datatype, OnnxInstance]) -> None:
    def run(number: int) -> bool:
        data = np.full((8, 8), number, np.int64)
        (output,) = identities[Datatype.INT64].run((Tensor.from_numpy("x", data),), ("y",))
        return output.numpy().tolist() == data.tolist()

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(200)))


@pytest.mark.parametrize(
    ("outputs", "nodes", "said"),
    [
        (
            [sequence("q", Datatype.FP32)],
            [("SequenceConstruct", ["x"], ["q"])],
            r"output 'q' is a seq\(tensor\(float\)\)",
        ),
    ],
)
def test_what_is_no_tensor_is_refused_by_name(tmp_path: Path, outputs, nodes, said: str) -> None:
    inputs = [value("x", Datatype.FP32, ["n"])]
    path = write(tmp_path / "m.onnx", [node(*parts) for parts in nodes], inputs, outputs)
    with pytest.raises(LoadError, match=said):
        loaded(path)


def test_strings_in_beside_bfloat16_out_are_refused(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.onnx",
        [node("Identity", ["x"], ["y"]), node("Identity", ["s"], ["t"])],
        [value("x", Datatype.BF16, ["n"]), value("s", Datatype.BYTES, ["n"])],
        [value("y", Datatype.BF16, ["n"]), value("t", Datatype.BYTES, ["n"])],
    )
    with pytest.raises(LoadError, match="string inputs beside bfloat16 outputs"):
        loaded(path)


def test_files_that_are_no_model(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"this is no model")
    with pytest.raises(LoadError, match=r"broken\.onnx: .*INVALID_PROTOBUF"):
        loaded(broken)
    with pytest.raises(LoadError, match=r"absent\.onnx: .*NO_SUCHFILE"):
        loaded(tmp_path / "absent.onnx")
    assert capfd.readouterr() == ("", ""), "what is raised must not be printed too"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"device": "tpu"}, "device 'tpu' is not one of cpu, cuda"),
        ({"device": "cuda:x"}, "device 'cuda:x' is not one of"),
        (
            {"providers": (("NoSuchProvider", {}),)},
            "no execution provider NoSuchProvider; it has .*CPUExecution",
        ),
        ({"parameters": {"intra_op_thread_count": "many"}}, "intra_op_thread_count is 'many'"),
    ],
)
def test_options_that_cannot_be_met(tmp_path: Path, config, said: str) -> None:
    path = write_identity(tmp_path / "m.onnx")
    with pytest.raises(LoadError, match=said):
        loaded(path, **config)


@pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="this ONNX Runtime has CUDA"
)
def test_a_gpu_that_is_not_there_is_no_silent_fallback(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="no execution provider CUDAExecutionProvider"):
        loaded(write_identity(tmp_path / "m.onnx"), device="cuda:1")


def test_session_options_reach_onnx_runtime(tmp_path: Path) -> None:
    instance = loaded(
        write_identity(tmp_path / "m.onnx"),
        parameters={
            "intra_op_thread_count": "1",
            "session.intra_op.allow_spinning": "1",
            "of_another_backend": "ignored",
        },
        providers=(("CPUExecutionProvider", {}),),
    )
    options = instance._session.get_session_options()
    assert options.intra_op_num_threads == 1
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "1"
    assert options.get_session_config_entry("session.inter_op.allow_spinning") == "0"
