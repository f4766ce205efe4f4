"""gRPC server reflection, v1 and v1alpha: the contracts of a listener for tools without a copy. Files of
equal names differ in the folder of their package."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError

from interlingua.protocols.protobuf_message import SHORT_BYTES
from interlingua.protocols.wire import Buffer, GrpcAnswer
from interlingua.schemas.grpc import MESSAGES
from interlingua.schemas.protobuf import load_files

_PACKAGE, _OLDER_PACKAGE = "grpc.reflection.v1", "grpc.reflection.v1alpha"
SERVICES = tuple(f"{package}.ServerReflection" for package in (_PACKAGE, _OLDER_PACKAGE))
REFLECTION_METHODS = frozenset(f"/{service}/ServerReflectionInfo" for service in SERVICES)

_REQUEST: Any = MESSAGES["grpc.reflection.v1.ServerReflectionRequest"]
_RESPONSE: Any = MESSAGES["grpc.reflection.v1.ServerReflectionResponse"]

_INTERNAL = 13
_NOT_FOUND = 5
_RESOURCE_EXHAUSTED = 8
_UNIMPLEMENTED = 12


class Reflection:
    """The service for ``contracts``, descriptor sets by package and file."""

    def __init__(self, contracts: Iterable[tuple[str, str]]) -> None:
        own = load_files("interlingua.schemas.grpc", "reflection.desc")
        found = [*(load_files(*contract) for contract in contracts), own, tuple(map(_older, own))]
        self._files = {file.name: file for files in found for file in _in_folders(files)}
        self._symbols = {name: file for file in self._files.values() for name in _symbols(file)}
        self._services = sorted(
            f"{file.package}.{service.name}" for file in self._files.values() for service in file.service
        )

    def answer(self, message: Buffer) -> GrpcAnswer:
        """The answer to one message of a reflection stream."""
        if len(message) > SHORT_BYTES:
            # the answer repeats it
            return GrpcAnswer(code=_RESOURCE_EXHAUSTED, details=f"a request has at most {SHORT_BYTES} bytes")
        try:
            request = _REQUEST.FromString(message)
        except DecodeError as fault:
            return GrpcAnswer(code=_INTERNAL, details=f"unable to parse ServerReflectionRequest: {fault}")
        response = _RESPONSE(valid_host=request.host, original_request=request)
        match request.WhichOneof("message_request"):
            case "list_services":
                for name in self._services:
                    response.list_services_response.service.add(name=name)
            case "file_by_filename":
                self._add_file(response, self._files.get(request.file_by_filename), request.file_by_filename)
            case "file_containing_symbol":
                symbol = request.file_containing_symbol
                self._add_file(response, self._symbols.get(symbol.lstrip(".")), symbol)
            case "all_extension_numbers_of_type" if request.all_extension_numbers_of_type in self._symbols:
                # none of the contracts has extensions
                response.all_extension_numbers_response.base_type_name = request.all_extension_numbers_of_type
            case "all_extension_numbers_of_type" | "file_containing_extension":
                _refuse(response, _NOT_FOUND, "no such extension or type")
            case _:
                _refuse(response, _UNIMPLEMENTED, "the request has no known operation")
        return GrpcAnswer(response.SerializeToString())

    def _add_file(self, response: Any, file: FileDescriptorProto | None, name: str) -> None:
        if file is None:
            _refuse(response, _NOT_FOUND, f"'{name}' is not found")
            return
        written = response.file_descriptor_response.file_descriptor_proto
        # with all its imports, to save further requests
        pending, seen = [file.name], {file.name}
        while pending:
            current = self._files[pending.pop(0)]
            written.append(current.SerializeToString())
            new = [name for name in current.dependency if name not in seen]
            pending += new
            seen.update(new)


def _in_folders(files: Iterable[FileDescriptorProto]) -> Iterator[FileDescriptorProto]:
    """``files``, which import only each other, with the package in their names."""
    names: dict[str, str] = {}
    for file in files:
        named = FileDescriptorProto()
        named.CopyFrom(file)
        names[file.name] = named.name = f"{file.package.replace('.', '/')}/{file.name}"
        named.dependency[:] = [names[dependency] for dependency in file.dependency]
        yield named


def _older(file: FileDescriptorProto) -> FileDescriptorProto:
    """Reflection's own file under its older name."""
    older = FileDescriptorProto()
    older.CopyFrom(file)
    older.package = _OLDER_PACKAGE

    def renamed(name: str) -> str:
        return name.replace(f".{_PACKAGE}.", f".{_OLDER_PACKAGE}.")

    for message in older.message_type:
        for field in message.field:
            if field.type_name:
                field.type_name = renamed(field.type_name)
    for service in older.service:
        for method in service.method:
            method.input_type, method.output_type = renamed(method.input_type), renamed(method.output_type)
    return older


def _symbols(file: FileDescriptorProto) -> Iterator[str]:
    """The full names of what ``file`` declares."""
    for message in file.message_type:
        yield from _symbols_of(message, file.package)
    for enum in file.enum_type:
        yield f"{file.package}.{enum.name}"
    for service in file.service:
        yield f"{file.package}.{service.name}"
        for method in service.method:
            yield f"{file.package}.{service.name}.{method.name}"


def _symbols_of(message: DescriptorProto, scope: str) -> Iterator[str]:
    name = f"{scope}.{message.name}"
    yield name
    for nested in message.nested_type:
        yield from _symbols_of(nested, name)
    for enum in message.enum_type:
        yield f"{name}.{enum.name}"


def _refuse(response: Any, code: int, message: str) -> None:
    response.error_response.error_code = code
    response.error_response.error_message = message
