"""The contract of version 1, held against the one that the tests' stand-ins are written from."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from interlingua.schemas.oip import MESSAGES as OIP_MESSAGES
from interlingua.schemas.trtis import MESSAGES
from tests.standins.trtis_contract import POOL

ROOT = Path(__file__).parents[2]
PACKAGE = "nvidia.inferenceserver."


def kinds(messages: Any) -> Iterator[Descriptor | EnumDescriptor]:
    """Every message and enumeration, those within messages included."""
    seen = {message.DESCRIPTOR.file.name: message.DESCRIPTOR.file for message in messages.values()}
    for file in seen.values():
        yield from file.enum_types_by_name.values()
        for message in file.message_types_by_name.values():
            yield from within(message)


def within(message: Descriptor) -> Iterator[Descriptor | EnumDescriptor]:
    yield message
    yield from message.enum_types
    for nested in message.nested_types:
        yield from within(nested)


VARINTS = {FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_UINT64}
OURS = {kind.full_name: kind for kind in kinds(MESSAGES)}


def field(field: FieldDescriptor) -> tuple[object, ...]:
    # what a message is called does not show on the wire
    oneof = field.containing_oneof.name if field.containing_oneof else None
    return field.name, field.number, field.type, field.is_repeated, oneof


def shape(kind: Descriptor | EnumDescriptor) -> set[tuple[object, ...]]:
    if isinstance(kind, EnumDescriptor):
        return {(value.name, value.number) for value in kind.values}
    return {field(each) for each in kind.fields}


def theirs(name: str, of: Descriptor | EnumDescriptor) -> Descriptor | EnumDescriptor | None:
    find = POOL.FindEnumTypeByName if isinstance(of, EnumDescriptor) else POOL.FindMessageTypeByName
    try:
        return find(name)  # type: ignore[no-any-return]
    except KeyError:
        return None


SHARED = [name for name, kind in OURS.items() if theirs(name, kind) is not None]


@pytest.mark.parametrize("name", SHARED)
def test_both_contracts_say_the_same(name: str) -> None:
    ours = OURS[name]
    other = theirs(name, ours)
    assert other is not None
    assert shape(other) <= shape(ours), shape(other) - shape(ours)


def test_most_of_the_contract_is_compared() -> None:
    assert len(SHARED) > 45
    assert {f"{PACKAGE}{name}" for name in ("InferRequestHeader", "InferResponseHeader.Output", "RequestStatus",
            "ServerStatus", "ModelConfig", "SharedMemoryControlRequest", "RequestStatusCode")} <= set(SHARED)  # fmt: skip


def test_the_service_has_the_same_methods() -> None:
    ours = MESSAGES[f"{PACKAGE}InferRequest"].DESCRIPTOR.file.services_by_name["GRPCService"]
    other = POOL.FindServiceByName(f"{PACKAGE}GRPCService")
    for service in (ours, other):
        assert service.full_name == f"{PACKAGE}GRPCService"

    def methods(service: Any) -> set[tuple[object, ...]]:
        return {
            (each.name, each.input_type.full_name, each.output_type.full_name,
             each.client_streaming, each.server_streaming)
            for each in service.methods
        }  # fmt: skip

    assert methods(ours) == methods(other)


def test_configurations_of_version_2_are_read_by_version_1() -> None:
    """What both have stands under the same numbers, nested messages included."""
    ours = MESSAGES[f"{PACKAGE}ModelConfig"].DESCRIPTOR
    second = OIP_MESSAGES["inference.ModelConfig"].DESCRIPTOR
    compared = set()

    def compare(one: Descriptor, other: Descriptor) -> None:
        if one.name in compared:
            return
        compared.add(one.name)
        for number, each in one.fields_by_number.items():
            same = other.fields_by_number.get(number)
            if same is None:
                continue
            assert (each.name, each.is_repeated) == (same.name, same.is_repeated)
            # wider integers look the same on the wire
            assert each.type == same.type or {each.type, same.type} <= VARINTS
            if each.message_type is not None:
                compare(each.message_type, same.message_type)

    compare(ours, second)
    assert {
        "ModelConfig",
        "ModelInput",
        "ModelOutput",
        "ModelInstanceGroup",
        "ModelVersionPolicy",
    } <= compared


def test_beside_another_contract_of_the_same_package() -> None:
    """Client libraries put theirs into protobuf's default pool."""
    program = (
        "from google.protobuf import descriptor_pb2, descriptor_pool\n"
        "file = descriptor_pb2.FileDescriptorProto(name='api.proto', package='nvidia.inferenceserver')\n"
        "file.message_type.add(name='InferRequestHeader')\n"
        "descriptor_pool.Default().Add(file)\n"
        "import interlingua.schemas.trtis as t\n"
        "t.MESSAGES['nvidia.inferenceserver.InferRequestHeader'](batch_size=1)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
