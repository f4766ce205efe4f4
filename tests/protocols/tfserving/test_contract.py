"""The contract against that of OpenVINO Model Server's client, which is TensorFlow Serving's under another name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from ovmsclient.tfs_compat.protos.tensorflow_serving.apis import (
    get_model_metadata_pb2,
    model_service_pb2,
    prediction_service_pb2,
)

from interlingua.schemas.tfserving import MESSAGES

PREFIX = "tensorflow."


def theirs() -> dict[str, Any]:
    """Messages and enumerations that the services use, by their names without the first part."""
    found: dict[str, Any] = {}
    pending = [
        kind
        for module in (prediction_service_pb2, model_service_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
        for kind in (method.input_type, method.output_type)
    ]
    pending.append(get_model_metadata_pb2.SignatureDefMap.DESCRIPTOR)
    while pending:
        kind = pending.pop()
        name = kind.full_name.removeprefix("ovmsclient.")
        if name in found:
            continue
        found[name] = kind
        if isinstance(kind, Descriptor) or hasattr(kind, "fields"):
            pending += [
                each for field in kind.fields for each in (field.message_type, field.enum_type) if each
            ]
    return found


def ours() -> Iterator[Any]:
    pending = [message.DESCRIPTOR for message in MESSAGES.values()]
    pending += [
        enum for message in MESSAGES.values() for enum in message.DESCRIPTOR.file.enum_types_by_name.values()
    ]
    while pending:
        kind = pending.pop()
        yield kind
        if hasattr(kind, "fields"):
            pending += [*kind.nested_types, *kind.enum_types]


THEIRS = theirs()
OURS = {kind.full_name.removeprefix(PREFIX): kind for kind in ours()}
USED = sorted(OURS.keys() & THEIRS.keys())


def form(field: FieldDescriptor) -> tuple[Any, ...]:
    kind = field.message_type or field.enum_type
    named = kind.full_name.removeprefix("ovmsclient.").removeprefix(PREFIX) if kind else ""
    oneof = field.containing_oneof.name if field.containing_oneof else ""
    return field.number, field.type, field.is_repeated, named, oneof


@pytest.mark.parametrize("name", USED)
def test_names_and_numbers(name: str) -> None:
    mine, other = OURS[name], THEIRS[name]
    if not hasattr(mine, "fields"):
        values = {value.name: value.number for value in other.values}
        assert {value.name: value.number for value in mine.values}.items() <= values.items()
        return
    expected = {field.name: form(field) for field in other.fields}
    for field in mine.fields:
        wanted = expected[field.name]
        if name == "TensorInfo":  # sparse and composite tensors are not in our contract, nor their oneof
            wanted = (*wanted[:-1], "")
        assert form(field) == wanted


def test_the_services_have_the_same_methods() -> None:
    file = MESSAGES["tensorflow.serving.PredictRequest"].DESCRIPTOR.file
    for module in (prediction_service_pb2, model_service_pb2):
        for name, service in module.DESCRIPTOR.services_by_name.items():
            methods = {
                method.name: (method.input_type.name, method.output_type.name) for method in service.methods
            }
            mine = file.services_by_name[name]
            assert {
                each.name: (each.input_type.name, each.output_type.name) for each in mine.methods
            } == methods


def test_everything_that_the_services_need_is_compared() -> None:
    assert {"TensorProto", "DataType", "serving.PredictRequest", "serving.ModelVersionStatus.State"} <= set(
        USED
    )
    assert len(USED) > 40
