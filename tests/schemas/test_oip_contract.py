"""The OIP contract: the numbers of Triton's own stubs, and peace with any client library."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from tritonclient.grpc import model_config_pb2, service_pb2

from interlingua.schemas.oip import HEALTH_MESSAGES, MESSAGES
from interlingua.schemas.protobuf import load_messages

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "tests" / "golden" / "oip" / "model_repository").glob("*/config.pbtxt"))

OURS = "import interlingua.schemas.oip as o; o.MESSAGES['inference.ModelInferRequest'](model_name='m').SerializeToString()"
TRITON = "import tritonclient.grpc as t; t.service_pb2.ModelInferRequest(model_name='m').SerializeToString()"
KSERVE = (
    "from kserve.protocol.grpc import grpc_predict_v2_pb2 as k; "
    "k.ModelInferRequest(model_name='m').SerializeToString()"
)


def run(*statements: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "\n".join(statements)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize("client", [TRITON, KSERVE], ids=["tritonclient", "kserve"])
@pytest.mark.parametrize("ours_first", [True, False])
def test_beside_a_client_library(client: str, ours_first: bool) -> None:
    done = run(OURS, client) if ours_first else run(client, OURS)
    assert done.returncode == 0, done.stderr


def test_why_the_pool_is_private() -> None:
    """Those two libraries cannot live beside each other: both use protobuf's default pool."""
    done = run(TRITON, KSERVE)
    assert done.returncode != 0
    assert "inference" in done.stderr


def files() -> Iterator[tuple[str, Descriptor | EnumDescriptor, Any]]:
    """Every message and enumeration of tritonclient's that we have, with ours."""
    for module in (service_pb2, model_config_pb2):
        file = module.DESCRIPTOR
        ours = {message.DESCRIPTOR.file.name: message.DESCRIPTOR.file for message in MESSAGES.values()}
        mine = ours[file.name]
        for name, theirs in file.message_types_by_name.items():
            if name in mine.message_types_by_name:
                yield name, theirs, mine.message_types_by_name[name]
        for name, enum in file.enum_types_by_name.items():
            if name in mine.enum_types_by_name:
                yield name, enum, mine.enum_types_by_name[name]


def shape(field: FieldDescriptor) -> tuple[object, ...]:
    kind = field.message_type or field.enum_type
    return (
        field.name,
        field.type,
        field.is_repeated,
        field.containing_oneof.name if field.containing_oneof else None,
        kind.full_name if kind else None,
    )


MLSERVERS = {("inference.ModelMetadataResponse.TensorMetadata", 4): ("parameters", "ParametersEntry")}
"""A field that MLServer's contract has and Triton's does not, by message and number: its name, and the type of its
entries."""


def agree(theirs: Any, ours: Any, partial: bool) -> None:
    if isinstance(theirs, EnumDescriptor):
        numbers = {value.number: value.name for value in theirs.values}
        mine = {value.number: value.name for value in ours.values}
        assert mine == {number: numbers.get(number) for number in (mine if partial else numbers)}
        return
    fields = {field.number: shape(field) for field in theirs.fields}
    added = {number: names for (message, number), names in MLSERVERS.items() if message == ours.full_name}
    mine = {field.number: shape(field) for field in ours.fields if field.number not in added}
    assert [(number, ours.fields_by_number[number].name) for number in added] == [
        (number, name) for number, (name, _) in added.items()
    ]
    assert mine == {number: fields.get(number) for number in (mine if partial else fields)}, theirs.full_name
    entries = {entry for _, entry in added.values()}
    for name, nested in ours.nested_types_by_name.items():
        if name in entries:
            continue
        agree(theirs.nested_types_by_name[name], nested, partial)
    for name, nested in ours.enum_types_by_name.items():
        agree(theirs.enum_types_by_name[name], nested, partial)


PAIRS = list(files())
KSERVES = ["RepositoryModelLoadResponse", "RepositoryModelUnloadResponse"]
"""Answers that are empty with Triton."""


@pytest.mark.parametrize(("name", "theirs", "ours"), PAIRS, ids=[name for name, _, _ in PAIRS])
def test_numbers_are_those_of_triton(name: str, theirs: Any, ours: Any) -> None:
    """Of model_config we hold a part; every other message is complete, and none but KServe's and MLServer's have more."""
    if name in KSERVES:
        assert not theirs.fields
    else:
        agree(theirs, ours, partial=theirs.file.name == "model_config.proto")


def test_what_only_kserve_has() -> None:
    told = (
        "from interlingua.schemas.oip import MESSAGES as ours; "
        "from kserve.protocol.grpc import grpc_predict_v2_pb2 as theirs; "
        "named = lambda message: [(field.number, field.name, field.type) for field in message.fields]; "
        f"[print(named(ours['inference.' + name].DESCRIPTOR) == named(getattr(theirs, name).DESCRIPTOR)) "
        f"for name in {KSERVES}]"
    )
    assert run(told).stdout.split() == ["True", "True"]


def test_every_message_of_the_service_is_there() -> None:
    theirs = service_pb2.DESCRIPTOR.message_types_by_name
    ours = MESSAGES["inference.ModelInferRequest"].DESCRIPTOR.file.message_types_by_name
    assert set(ours) == set(theirs)
    assert len(PAIRS) > len(ours) + 10


def test_every_method_is_there() -> None:
    (theirs,) = service_pb2.DESCRIPTOR.services_by_name.values()
    (ours,) = MESSAGES["inference.ModelInferRequest"].DESCRIPTOR.file.services_by_name.values()
    assert ours.full_name == theirs.full_name
    for method in theirs.methods:
        mine = ours.methods_by_name[method.name]
        assert mine.input_type.full_name == method.input_type.full_name
        assert mine.output_type.full_name == method.output_type.full_name
        assert (mine.client_streaming, mine.server_streaming) == (
            method.client_streaming,
            method.server_streaming,
        )


def test_health() -> None:
    answer = HEALTH_MESSAGES["grpc.health.v1.HealthCheckResponse"](status="SERVING")
    assert answer.SerializeToString() == b"\x08\x01"
    request = HEALTH_MESSAGES["grpc.health.v1.HealthCheckRequest"](service="s")
    assert request.SerializeToString() == b"\x0a\x01s"


@pytest.mark.parametrize("path", CONFIGS, ids=[path.parent.name for path in CONFIGS])
def test_configurations_parse(path: Path) -> None:
    """Triton's own reading of a file and ours are the same bytes, as far as we know the fields."""
    ours = MESSAGES["inference.ModelConfig"]()
    text_format.Parse(path.read_text(), ours, allow_unknown_field=True)
    theirs = text_format.Parse(path.read_text(), model_config_pb2.ModelConfig())
    assert ours.SerializeToString(deterministic=True) == theirs.SerializeToString(deterministic=True)


def test_a_set_is_loaded_once() -> None:
    assert load_messages("interlingua.schemas.oip", "health.desc") is HEALTH_MESSAGES
