"""The call for the index of an upstream's repositories, over HTTP and over gRPC. Not every server has this
extension."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.oip.grpc_messages import SERVICE, reader
from interlingua.protocols.protobuf_message import parse_bounded
from interlingua.protocols.wire import Buffer, GrpcAnswer, GrpcRequest, HttpCall
from interlingua.schemas import ModelState, ModelStatus, Signature, VersionStatus, malformed
from interlingua.schemas.oip import MESSAGES

_RESPONSE = MESSAGES["inference.RepositoryIndexResponse"]


def encode_http(argument: None, signature: Signature | None) -> tuple[HttpCall, None]:
    """The call over HTTP."""
    return HttpCall("POST", "/v2/repository/index", parts=[b"{}"], repeatable=True), None


def read_document(document: Any) -> tuple[ModelStatus, ...]:
    """The models in the JSON of an answer. Raises MALFORMED."""
    if type(document) is not list:
        raise malformed("the index of the repository is not a list")
    for entry in document:
        if type(entry) is not dict or type(entry.get("name")) is not str:
            raise malformed("an entry of the index of the repository has no name")
    return _models(document)


def _encode_grpc(argument: None, signature: Signature | None) -> tuple[GrpcRequest, None]:
    return GrpcRequest(f"{SERVICE}RepositoryIndex", b""), None


@reader
def _decode_grpc(form: None, message: Buffer) -> tuple[ModelStatus, ...]:
    answer: Any = parse_bounded(_RESPONSE, message)
    return _models(
        {"name": each.name, "version": each.version, "state": each.state, "reason": each.reason}
        for each in answer.models
    )


GRPC_INDEX_CALL: UpstreamCall[GrpcRequest, GrpcAnswer] = UpstreamCall(_encode_grpc, _decode_grpc)


def _models(entries: Iterable[Mapping[str, Any]]) -> tuple[ModelStatus, ...]:
    """Models with their versions; an entry is a version, or a model without versions."""
    found: dict[str, list[VersionStatus]] = {}
    for entry in entries:
        versions = found.setdefault(entry["name"], [])
        version, state = str(entry.get("version") or ""), str(entry.get("state") or "")
        if version:
            known = ModelState.__members__.get(state, ModelState.UNKNOWN)
            versions.append(VersionStatus(version, known, str(entry.get("reason") or "")))
    return tuple(ModelStatus(name, versions=tuple(versions)) for name, versions in found.items())
