"""What clients are told of a model's configuration."""

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format

from interlingua.runtime.model_config.config import ModelConfig
from interlingua.runtime.model_config.message import config_message
from interlingua.runtime.model_config.pbtxt import read_config
from interlingua.runtime.repository.files import ModelSource, load_model
from interlingua.schemas import Datatype, Signature, TensorSpec, VersionPolicy
from interlingua.schemas.model_config import MODEL_CONFIG
from tests.runtime.onnx_models import node, value, write, write_identity

SIGNATURE = Signature(
    (TensorSpec("a", Datatype.FP32, (-1, 3)), TensorSpec("b", Datatype.BOOL, (-1,), optional=True)),
    (TensorSpec("c", Datatype.BYTES, (-1, -1)),),
    8,
)


def reported(config: ModelConfig, signature: Signature = SIGNATURE) -> Any:
    return MODEL_CONFIG.FromString(config_message(config, signature))


def as_message(text: str) -> Any:
    return text_format.Parse(text, MODEL_CONFIG())


def test_the_defaults_are_filled_in() -> None:
    config = ModelConfig(name="m", backend="onnxruntime", platform="onnxruntime_onnx")
    assert reported(config) == as_message("""
        name: "m" platform: "onnxruntime_onnx" backend: "onnxruntime" max_batch_size: 8
        version_policy { latest { num_versions: 1 } }
        input { name: "a" data_type: TYPE_FP32 dims: 3 }
        input { name: "b" data_type: TYPE_BOOL optional: true }
        output { name: "c" data_type: TYPE_STRING dims: -1 }
        instance_group { name: "m" count: 1 kind: KIND_CPU }
        optimization { input_pinned_memory { enable: true } output_pinned_memory { enable: true } }
    """)


@pytest.mark.parametrize(
    ("stated", "filled"),
    [
        ("dynamic_batching { }", "dynamic_batching { preferred_batch_size: 8 }"),
        ("dynamic_batching { preferred_batch_size: 4 }", "dynamic_batching { preferred_batch_size: 4 }"),
        ("sequence_batching { }", "sequence_batching { max_sequence_idle_microseconds: 1000000 }"),
        (
            "sequence_batching { max_sequence_idle_microseconds: 5 oldest { max_candidate_sequences: 2 } }",
            "sequence_batching { max_sequence_idle_microseconds: 5 "
            "oldest { max_candidate_sequences: 2 preferred_batch_size: 8 } }",
        ),
        (
            "optimization { input_pinned_memory { enable: false } }",
            "optimization { input_pinned_memory { enable: false } output_pinned_memory { enable: true } }",
        ),
    ],
)
def test_defaults_are_those_of_the_original_servers(stated: str, filled: str) -> None:
    message = reported(ModelConfig(name="m", stated=as_message(stated).SerializeToString()))
    (field,) = (field.name for field, _ in as_message(filled).ListFields())
    assert getattr(message, field) == getattr(as_message(filled), field)


@pytest.mark.parametrize(
    ("stated", "config", "filled"),
    [
        ("{ count: 2 }, { name: 'x' }", {"instances": 3}, "{ name: 'm_0' count: 2 }, { name: 'x' count: 1 }"),
        # as the model runs here, whatever the author has asked for
        ("{ kind: KIND_GPU gpus: 1 }", {"instances": 1, "device": "cpu"}, "{ name: 'm_0' count: 1 }"),
        ("{ count: 2 }", {"instances": 5}, "{ name: 'm' count: 5 }"),
    ],
)
def test_instance_groups_have_names_counts_and_kinds(
    stated: str, config: dict[str, Any], filled: str
) -> None:
    groups = as_message(f"instance_group [ {stated} ]").SerializeToString()
    message = reported(ModelConfig(name="m", stated=groups, **config))
    expected = as_message(f"instance_group [ {filled} ]").instance_group
    for group in expected:
        group.kind = group.KIND_CPU
    assert list(message.instance_group) == list(expected)


def test_instance_groups_on_several_gpus() -> None:
    stated = as_message("instance_group [ { kind: KIND_GPU gpus: [0, 2] }, { kind: KIND_CPU } ]")
    config = ModelConfig(
        name="m",
        stated=stated.SerializeToString(),
        instances=3,
        devices=("cuda:0", "cuda:2", "cpu"),
    )
    assert list(reported(config).instance_group) == list(
        as_message("""instance_group [
            { name: "m_0" count: 1 kind: KIND_GPU gpus: [0, 2] }, { name: "m_1" count: 1 kind: KIND_CPU }
        ]""").instance_group
    )


def test_without_batches_dims_are_the_whole_shape() -> None:
    signature = Signature((TensorSpec("a", Datatype.BF16, (-1, 3)),), (TensorSpec("c", Datatype.INT8, ()),))
    message = reported(ModelConfig(name="m"), signature)
    assert (message.max_batch_size, list(message.input[0].dims), list(message.output[0].dims)) == (
        0,
        [-1, 3],
        [],
    )
    assert (
        message.input[0].data_type
        == message.input[0].DESCRIPTOR.file.enum_types_by_name["DataType"].values_by_name["TYPE_BF16"].number
    )


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (VersionPolicy(latest=3), "latest { num_versions: 3 }"),
        (VersionPolicy(latest=0), "all { }"),
        (VersionPolicy(specific=(1, 7)), "specific { versions: [1, 7] }"),
    ],
)
def test_version_policies(policy: VersionPolicy, text: str) -> None:
    message = reported(ModelConfig(name="m", version_policy=policy))
    assert message.version_policy == as_message(f"version_policy {{ {text} }}").version_policy


def test_instances() -> None:
    message = reported(ModelConfig(name="m", instances=3, device="cuda:2"))
    assert list(message.instance_group) == list(
        as_message('instance_group { name: "m" count: 3 kind: KIND_GPU gpus: 2 }').instance_group
    )


def test_ensembles_have_neither_engine_nor_instances() -> None:
    stated = as_message('ensemble_scheduling { step { model_name: "n" } }').SerializeToString()
    config = ModelConfig(name="m", backend="ensemble", platform="ensemble", instances=2, stated=stated)
    message = reported(config)
    assert (message.platform, message.backend, list(message.instance_group)) == ("ensemble", "", [])


WRITTEN = """
name: "m"
max_batch_size: 8
default_model_filename: "net.onnx"
input { name: "x" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, -1, -1 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 3, -1, -1 ] label_filename: "labels.txt" }
instance_group [ { count: 2 }, { count: 1 } ]
dynamic_batching { preferred_batch_size: [ 4, 8 ] }
parameters { key: "session.intra_op.allow_spinning" value { string_value: "0" } }
metric_tags { key: "team" value: "vision" }
some_field_of_tomorrow: 1
"""


async def test_what_the_author_wrote_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "m"
    write_identity(folder / "1" / "net.onnx", shape=("N", 3, "h", "w"))
    (folder / "config.pbtxt").write_text(WRITTEN)
    (folder / "labels.txt").write_text("cat\n")
    model = load_model(ModelSource("alias", folder))
    message = MODEL_CONFIG.FromString((await model.status()).config)
    assert message == as_message("""
        name: "alias" platform: "onnxruntime_onnx" backend: "onnxruntime" max_batch_size: 8
        version_policy { latest { num_versions: 1 } }
        default_model_filename: "net.onnx"
        input { name: "x" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, -1, -1 ] }
        output { name: "y" data_type: TYPE_FP32 dims: [ 3, -1, -1 ] label_filename: "labels.txt" }
        instance_group [
            { name: "alias_0" count: 2 kind: KIND_CPU }, { name: "alias_1" count: 1 kind: KIND_CPU }
        ]
        optimization { input_pinned_memory { enable: true } output_pinned_memory { enable: true } }
        dynamic_batching { preferred_batch_size: [ 4, 8 ] }
        parameters { key: "session.intra_op.allow_spinning" value { string_value: "0" } }
        metric_tags { key: "team" value: "vision" }
    """)
    (record,) = [
        record for record in caplog.records if record.name == "interlingua.runtime.model_config.pbtxt"
    ]
    assert "some_field_of_tomorrow" in record.facts["first"]
    await model.close()


def test_a_file_without_surprises_logs_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "config.pbtxt").write_text('name: "m" optimization { graph { level: 1 } }')
    read_config(tmp_path)
    assert not caplog.records


@pytest.mark.parametrize(
    ("shapes", "limit"),
    [
        ((["N", 3], ["N", 3]), 65536),
        (([None, 3], ["N", 3]), 65536),
        ((["N", 3], ["M", 3]), 0),
        (([4, 3], ["N", 3]), 0),
        ((["N"], ["N"]), 0),
        (([], []), 0),
    ],
)
async def test_a_bare_model_file_tells_whether_it_batches(tmp_path: Path, shapes, limit: int) -> None:
    given, made = shapes
    file = write(
        tmp_path / "bare.onnx",
        [node("Identity", ["x"], ["y"])],
        [value("x", Datatype.FP32, given)],
        [value("y", Datatype.FP32, made)],
    )
    model = load_model(ModelSource("bare", file))
    assert (await model.signature()).max_batch_size == limit
    message = MODEL_CONFIG.FromString((await model.status()).config)
    assert message.max_batch_size == limit
    assert message.default_model_filename == "bare.onnx"
    whole = [size if isinstance(size, int) else -1 for size in given]
    assert list(message.input[0].dims) == (whole[1:] if limit else whole)
    await model.close()


@pytest.mark.parametrize("config", ['input { name: "x" data_type: TYPE_FP32 dims: [ -1, 3 ] }', None])
async def test_a_configuration_with_tensors_is_believed(tmp_path: Path, config: str | None) -> None:
    folder = tmp_path / "m"
    write_identity(folder / "1" / "model.onnx", shape=("N", 3))
    stated = None
    if config:
        (folder / "config.pbtxt").write_text(config)
    else:
        full = (TensorSpec("x", Datatype.FP32, (-1, 3)),), (TensorSpec("y", Datatype.FP32, (-1, 3)),)
        stated = Signature(*full)
    model = load_model(ModelSource("m", folder, signature=stated))
    assert (await model.signature()).max_batch_size == 0
    await model.close()
