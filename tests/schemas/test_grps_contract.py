"""The contract of grps, held against the one that the tests' stand-ins are written from."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor
from google.protobuf.descriptor_pool import Default

from interlingua.schemas.grps import MESSAGES
from tests.standins.grps_contract import BRPC_SERVICE

PACKAGE = "grps.protos.v1."
FILE: Any = MESSAGES[f"{PACKAGE}GrpsMessage"].DESCRIPTOR.file


def of_messages(message: Descriptor) -> list[Descriptor | EnumDescriptor]:
    nested = [kind for inner in message.nested_types for kind in of_messages(inner)]
    return [message, *message.enum_types, *nested]


OURS = [kind for message in FILE.message_types_by_name.values() for kind in of_messages(message)]
OURS += FILE.enum_types_by_name.values()
# the stand-ins lack the one method that never answers, and what it takes
OURS = [kind for kind in OURS if kind.name != "EmptyGrpsMessage"]


def shape(kind: Descriptor | EnumDescriptor) -> set[tuple[object, ...]]:
    if isinstance(kind, EnumDescriptor):
        return {(value.name, value.number) for value in kind.values}
    return {
        (each.name, each.number, each.type, each.is_repeated, each.is_packed,
         each.containing_oneof.name if each.containing_oneof else None,
         each.message_type.full_name if each.message_type else None)
        for each in kind.fields
    }  # fmt: skip


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.full_name)
def test_both_contracts_say_the_same(kind: Descriptor | EnumDescriptor) -> None:
    find = (
        Default().FindEnumTypeByName if isinstance(kind, EnumDescriptor) else Default().FindMessageTypeByName
    )
    assert shape(find(kind.full_name)) == shape(kind)


def test_all_of_it_is_compared() -> None:
    assert len(OURS) == 14


@pytest.mark.parametrize("name", ["GrpsService", BRPC_SERVICE.rpartition(".")[2]])
def test_the_services_have_the_same_methods(name: str) -> None:
    def methods(service: Any) -> set[tuple[object, ...]]:
        return {
            (each.name, each.input_type.full_name, each.output_type.full_name,
             each.client_streaming, each.server_streaming)
            for each in service.methods
        }  # fmt: skip

    other = Default().FindServiceByName(f"{PACKAGE}{name}")
    ours = methods(FILE.services_by_name[name])
    assert {method[0] for method in ours - methods(other)} <= {"PredictByHttp"}
    assert methods(other) <= ours
