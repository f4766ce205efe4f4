"""config.pbtxt: what is read, what is refused by name, and how it is held against a model."""

from dataclasses import replace
from pathlib import Path

import pytest

from interlingua.runtime.model_config.config import LoadError, ModelConfig, agreed_signature
from interlingua.runtime.model_config.pbtxt import read_config
from interlingua.runtime.scheduling.policy import DynamicBatching, QueuePolicy
from interlingua.schemas import Datatype, Signature, TensorSpec, VersionPolicy

FULL = """
name: "m"
platform: "onnxruntime_onnx"
backend: "onnxruntime"
max_batch_size: 8
default_model_filename: "other.onnx"
input [ { name: "IMAGE" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, -1, 224 ] },
        { name: "MASK" data_type: TYPE_BOOL dims: [ -1 ] optional: true } ]
output { name: "CLASS" data_type: TYPE_STRING dims: 2 label_filename: "labels.txt" }
output { name: "ROW" data_type: TYPE_BF16 }
version_policy: { latest { num_versions: 2 } }
instance_group [ { count: 2 kind: KIND_GPU gpus: [ 1 ] }, { kind: KIND_GPU gpus: 1 } ]
parameters { key: "intra_op_thread_count" value: { string_value: "2" } }
dynamic_batching { max_queue_delay_microseconds: 100 }
optimization { graph { level: 1 } }
some_field_of_tomorrow { deep: [ 1, 2 ] }
"""


def config(folder: Path, text: str) -> ModelConfig:
    folder.joinpath("config.pbtxt").write_text(text)
    return read_config(folder)


def test_everything_that_matters_is_read(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("cat\nkůň\n", encoding="utf-8")
    found = config(tmp_path, FULL)
    assert found.stated
    assert replace(found, stated=b"") == ModelConfig(
        name="m",
        platform="onnxruntime_onnx",
        backend="onnxruntime",
        max_batch_size=8,
        default_model_filename="other.onnx",
        inputs=(
            TensorSpec("IMAGE", Datatype.FP32, (-1, 3, -1, 224)),
            TensorSpec("MASK", Datatype.BOOL, (-1, -1), optional=True),
        ),
        outputs=(
            TensorSpec("CLASS", Datatype.BYTES, (-1, 2), labels=("cat", "kůň")),
            TensorSpec("ROW", Datatype.BF16, (-1,)),
        ),
        version_policy=VersionPolicy(latest=2),
        instances=3,
        groups=(("", 2), ("", 1)),
        device="cuda:1",
        parameters={"intra_op_thread_count": "2"},
        dynamic_batching=DynamicBatching(max_delay_us=100),
    )


def test_a_folder_without_one_states_nothing(tmp_path: Path) -> None:
    assert read_config(tmp_path) == ModelConfig()


def test_without_batching_dims_are_the_whole_shape(tmp_path: Path) -> None:
    found = config(tmp_path, 'input { name: "A" data_type: TYPE_UINT64 dims: [ 2, 2 ] }')
    assert found.inputs == (TensorSpec("A", Datatype.UINT64, (2, 2)),)


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("", VersionPolicy(latest=1)),
        ("version_policy { latest { } }", VersionPolicy(latest=1)),
        ("version_policy { all { } }", VersionPolicy(latest=0)),
        ("version_policy: { specific: { versions: [3, 1] } }", VersionPolicy(specific=(3, 1))),
    ],
)
def test_version_policies(tmp_path: Path, text: str, policy: VersionPolicy) -> None:
    assert config(tmp_path, text).version_policy == policy


@pytest.mark.parametrize(
    ("policy", "chosen"),
    [
        (VersionPolicy(), (10,)),
        (VersionPolicy(latest=2), (9, 10)),
        (VersionPolicy(latest=99), (1, 9, 10)),
        (VersionPolicy(latest=0), (1, 9, 10)),
        (VersionPolicy(specific=(9, 1, 4)), (1, 9)),
    ],
)
def test_versions_are_numbers(policy: VersionPolicy, chosen: tuple[int, ...]) -> None:
    assert policy.choose([10, 1, 9]) == chosen


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: m", "1:7"),
        ("max_batch_size: -1", "max_batch_size is -1"),
        ("input { data_type: TYPE_FP32 }", "input 0 has no name"),
        ('output { name: "A" }', "output 'A' has no data_type"),
        ('output { name: "A" data_type: 99 }', "output 'A' has no data_type"),
        (f"input {{ data_type: {10**30} }}", "Value out of range: 10{30}"),
        ('input { name: "A" data_type: TYPE_FP32 dims: -2 }', "input 'A' has dims \\[-2\\]"),
        (
            'input { name: "A" data_type: TYPE_FP32 dims: [ 2, 3 ] reshape { shape: 5 } }',
            r"input 'A' has dims \[2, 3\] and reshape \[5\]: both must have as many elements",
        ),
        (
            'output { name: "A" data_type: TYPE_FP32 dims: [ -1, 3 ] reshape { shape: 3 } }',
            r"reshape \[3\]: both must have as many free dimensions",
        ),
        ('input { name: "A" data_type: TYPE_FP32 reshape { shape: -2 } }', "input 'A' has dims"),
        (
            'output { name: "A" data_type: TYPE_FP32 is_shape_tensor: true }',
            "is_shape_tensor is not supported",
        ),
        ('input [ { name: "A" data_type: 1 }, { name: "A" data_type: 1 } ]', "input 'A' is declared twice"),
        ('output { name: "A" data_type: 1 label_filename: "no.txt" }', "no.txt: .*No such file"),
        (
            'sequence_batching { control_input { name: "START" control { kind: CONTROL_SEQUENCE_START } } }',
            "control input 'START' needs int32_false_true, fp32_false_true or bool_false_true of two values",
        ),
        (
            'sequence_batching { control_input { name: "ID" control { kind: CONTROL_SEQUENCE_CORRID } } }',
            "control input 'ID' has no data_type",
        ),
        ("ensemble_scheduling { }", "platform 'ensemble' and ensemble_scheduling go together"),
        (
            "max_batch_size: 4 dynamic_batching { preferred_batch_size: [ 4, 5 ] }",
            "preferred_batch_size 5 is not from 1 to max_batch_size",
        ),
        ("dynamic_batching { preferred_batch_size: [ 0 ] }", "preferred_batch_size 0"),
        ("dynamic_batching { priority_levels: 1001 }", "priority_levels is 1001, at most 1000"),
        ("dynamic_batching { priority_levels: 3 }", "default_priority_level is 0, not from 1 to 3"),
        (
            "dynamic_batching { priority_queue_policy { key: 1 value { } } }",
            "priority_queue_policy of level 1, not from 1 to 0",
        ),
        ("instance_group [ { count: 2 }, { count: -1 } ]", "instance_group has count -1, must be 0 or more"),
        (
            'input { name: "A" data_type: 1 } '
            'sequence_batching { state { input_name: "A" output_name: "B" data_type: 1 } }',
            "sequence_batching states input 'A', which clients give",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(LoadError, match=said) as caught:
        config(tmp_path, text)
    assert str(caught.value).startswith(str(tmp_path / "config.pbtxt"))


def test_dynamic_batching(tmp_path: Path) -> None:
    found = config(
        tmp_path,
        """
        max_batch_size: 8
        input { name: "A" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true }
        dynamic_batching {
            preferred_batch_size: [ 4, 8 ]
            max_queue_delay_microseconds: 500
            preserve_ordering: true
            priority_levels: 3
            default_priority_level: 2
            default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 70 }
            priority_queue_policy { key: 1 value { allow_timeout_override: true max_queue_size: 9 } }
        }
        """,
    )
    policies = {1: QueuePolicy(allow_override=True, max_size=9)}
    delayed = QueuePolicy(delays=True, timeout_us=70)
    assert found.dynamic_batching == DynamicBatching((4, 8), 500, True, 3, 2, delayed, policies)
    assert found.ragged


def test_preferred_sizes_of_a_model_that_says_its_own_limit(tmp_path: Path) -> None:
    found = config(tmp_path, "dynamic_batching { preferred_batch_size: [ 16 ] }").dynamic_batching
    assert found == DynamicBatching((16,))


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "config.pbtxt").write_bytes(b'name: "\xff"')
    with pytest.raises(LoadError, match=r"config\.pbtxt: .*utf-8"):
        read_config(tmp_path)


def spec(name: str, shape: tuple[int, ...], datatype: Datatype = Datatype.FP32, **more) -> TensorSpec:
    return TensorSpec(name, datatype, shape, **more)


FOUND = Signature((spec("x", (-1, 3)), spec("k", (-1, -1))), (spec("y", (-1, 3)), spec("z", ())))
FILE = Path("m.onnx")


def agreed(found: Signature = FOUND, **declared) -> Signature:
    return agreed_signature(FILE, ModelConfig(**declared), found)


def test_nothing_declared_is_what_the_model_has() -> None:
    assert agreed() == FOUND


def test_the_model_declares_nothing() -> None:
    declared = ModelConfig(inputs=(spec("x", (-1, 3)),), outputs=(spec("y", (-1,)),), max_batch_size=2)
    assert agreed_signature(FILE, declared, None) == Signature(declared.inputs, declared.outputs, 2)


def test_the_fixed_dimension_of_either_side_counts() -> None:
    both = agreed(
        inputs=(spec("k", (5, -1)), spec("x", (-1, -1))), outputs=(spec("y", (-1, 3), labels=("a",)),)
    )
    assert both.inputs == (spec("k", (5, -1)), spec("x", (-1, 3)))
    assert both.outputs == (spec("y", (-1, 3), labels=("a",)),), "an output may be left out"


def test_an_unknown_rank_takes_the_declared_shape() -> None:
    assert agreed(outputs=(spec("z", (-1, 7)),)).outputs == (spec("z", (-1, 7)),)


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (
            {"inputs": (spec("X", (-1, 3)),)},
            r"input 'X' is declared, but the model's inputs are 'x' \(FP32 \[-1, 3\]\), 'k'",
        ),
        (
            {"inputs": (spec("x", (-1, 3), Datatype.INT32), spec("k", (1, 1)))},
            r"'x' \(INT32 \[-1, 3\]\) is declared, but the model has 'x' \(FP32 \[-1, 3\]\)",
        ),
        ({"inputs": (spec("x", (3,)), spec("k", (1, 1)))}, r"'x' \(FP32 \[3\]\) is declared"),
        ({"outputs": (spec("y", (-1, 4)),)}, r"output 'y' \(FP32 \[-1, 4\]\) is declared"),
        ({"inputs": (spec("x", (-1, 3)),)}, r"the model also needs input 'k' \(FP32 \[-1, -1\]\)"),
        (
            {"max_batch_size": 4},
            r"max_batch_size is 4, but .* no free first dimension in output 'z' \(FP32 \[\]\)",
        ),
    ],
)
def test_contradictions_say_what_the_model_has(declared, said: str) -> None:
    with pytest.raises(LoadError, match=said):
        agreed(**declared)


def test_a_model_with_a_fixed_batch_cannot_batch() -> None:
    fixed = Signature((spec("x", (1, 3)),), (spec("y", (1, 3)),))
    with pytest.raises(LoadError, match=r"no free first dimension in input 'x' \(FP32 \[1, 3\]\)"):
        agreed(fixed, inputs=(spec("x", (-1, 3)),), outputs=(spec("y", (-1, 3)),), max_batch_size=4)
