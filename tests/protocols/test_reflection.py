"""Reflection: what a listener tells of its contracts is enough to call it."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from interlingua.protocols.reflection import SERVICES, Reflection
from interlingua.protocols.registry import DIALECTS
from interlingua.schemas.grpc import MESSAGES

REQUEST: Any = MESSAGES["grpc.reflection.v1.ServerReflectionRequest"]
RESPONSE: Any = MESSAGES["grpc.reflection.v1.ServerReflectionResponse"]

BOTH = Reflection(
    [*DIALECTS["oip"].bindings["grpc"].contracts, *DIALECTS["trtis"].bindings["grpc"].contracts]
)


def requested(**question: Any) -> Any:
    answer = BOTH.answer(REQUEST(host="h", **question).SerializeToString())
    assert answer.code == 0
    told = RESPONSE.FromString(answer.message)
    assert told.valid_host == "h"
    assert told.original_request == REQUEST(host="h", **question)
    return told


def files(told: Any) -> list[FileDescriptorProto]:
    return [
        FileDescriptorProto.FromString(written)
        for written in told.file_descriptor_response.file_descriptor_proto
    ]


def test_the_services_of_every_dialect() -> None:
    told = requested(list_services="*")
    assert [service.name for service in told.list_services_response.service] == [
        "grpc.health.v1.Health",
        *SERVICES,
        "inference.GRPCInferenceService",
        "nvidia.inferenceserver.GRPCService",
    ]


def test_contracts_with_files_of_the_same_name_load_side_by_side() -> None:
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()
    for symbol in ("inference.GRPCInferenceService", "nvidia.inferenceserver.GRPCService.Infer"):
        for file in reversed(files(requested(file_containing_symbol=symbol))):
            if file.name not in added:
                pool.Add(file)  # type: ignore[no-untyped-call]
                added.add(file.name)
    service = pool.FindServiceByName("inference.GRPCInferenceService")
    request = message_factory.GetMessageClass(service.methods_by_name["ModelInfer"].input_type)
    assert request(model_name="m").SerializeToString() == b"\n\x01m"
    assert pool.FindServiceByName("nvidia.inferenceserver.GRPCService").methods_by_name["Infer"]


def test_every_service_is_found_by_its_name_and_its_file_by_that() -> None:
    for service in requested(list_services="").list_services_response.service:
        first = files(requested(file_containing_symbol=service.name))[0]
        assert service.name.rpartition(".")[2] in [each.name for each in first.service]
        assert files(requested(file_by_filename=first.name))[0] == first


@pytest.mark.parametrize("service", SERVICES)
def test_both_names_of_reflection_itself_are_whole(service: str) -> None:
    """Tools that describe all that is listed stop at a service without a contract."""
    pool: Any = descriptor_pool.DescriptorPool()
    for file in files(requested(file_containing_symbol=service)):
        pool.Add(file)
    method = pool.FindServiceByName(service).methods_by_name["ServerReflectionInfo"]
    scope = service.rpartition(".")[0]
    assert method.input_type.full_name == f"{scope}.ServerReflectionRequest"
    extension = method.input_type.fields_by_name["file_containing_extension"]
    assert extension.message_type.full_name == f"{scope}.ExtensionRequest"


@pytest.mark.parametrize(
    "symbol",
    ["inference.ModelInferRequest.InferInputTensor", ".inference.DataType", "grpc.health.v1.Health.Watch"],
)
def test_nested_types_enumerations_and_methods(symbol: str) -> None:
    assert files(requested(file_containing_symbol=symbol))


@pytest.mark.parametrize(
    ("question", "code"),
    [
        ({"file_by_filename": "grpc_service.proto"}, 5),
        ({"file_containing_symbol": "nope"}, 5),
        ({"all_extension_numbers_of_type": "nope"}, 5),
        ({"file_containing_extension": {"containing_type": "inference.ModelInferRequest"}}, 5),
        ({}, 12),
    ],
)
def test_what_is_not_there(question: Any, code: int) -> None:
    error = requested(**question).error_response
    assert error.error_code == code
    assert error.error_message


def test_no_extensions() -> None:
    told = requested(all_extension_numbers_of_type="inference.ModelInferRequest")
    assert told.all_extension_numbers_response.base_type_name == "inference.ModelInferRequest"


def test_what_is_no_message() -> None:
    assert BOTH.answer(b"\xff").code == 13
