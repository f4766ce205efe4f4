"""The dialect as KServe or MLServer speak it as servers: the endpoints of ``server`` with a table of quirks.

Only what clients notice is imitated, and nothing that would lose an answer, such as MLServer's refusal of
binary data or KServe's of versions.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from urllib.parse import unquote

from interlingua.protocols.dialect import Action, GrpcEndpoint, HttpEndpoint, Opened
from interlingua.protocols.http_error import error_document
from interlingua.protocols.oip import mlserver, stream_grpc
from interlingua.protocols.oip.codec_http import ReaderOf, decode_request
from interlingua.protocols.oip.grpc_messages import SERVICE
from interlingua.protocols.oip.http_endpoint import http_fail, json_answer, json_encoder
from interlingua.protocols.oip.json_members import UNKNOWN_DATATYPE
from interlingua.protocols.oip.metadata_parameters import add_model_parameters
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest, HttpAnswer, HttpRequest
from interlingua.schemas import (
    ErrorCode,
    IndexQuery,
    InferenceError,
    InferRequest,
    ModelControl,
    ModelMetadata,
    Operation,
    Readiness,
    Signature,
)

_PROBES = frozenset({Operation.LIVE, Operation.READY, Operation.MODEL_READY})
_CONTROL = {Operation.MODEL_LOAD: "load", Operation.MODEL_UNLOAD: "unload"}
_INVALID = 422
_GRPC_NOT_FOUND = 5


@dataclass(frozen=True, slots=True)
class Quirks:
    """The differences of a server from Triton. All servers answer 404 for a model that is not ready and 422
    with ``detail`` for a body that fails validation, and invent a missing id.

    ``bare_probes``: the answer to a probe is only a status. ``always``: members that the answer to an
    inference has even if they are empty. ``requested_order``: over HTTP outputs have the order of the
    request. ``control_reports``: the answer to a load or unload has a body. ``listed``: ``/v2/models``
    lists the models. ``unloadable`` is the HTTP status for a load of an unknown model, ``grpc_unloadable``
    the gRPC status if it is not Triton's. ``reader_of`` gives the reader of inputs in JSON; ``codecs``:
    MLServer's codecs apply over gRPC too. ``named_versions``: paths may have versions that are no numbers.
    ``checks_datatypes``: a datatype that does not exist fails the validation of the body.
    ``stream`` is the endpoint of a gRPC stream with answers of another form. ``services`` are further gRPC
    services with existing methods, and ``contracts`` describe them as ``Binding.contracts`` does.
    """

    bare_probes: bool = False
    always: Mapping[str, Any] = field(default_factory=dict)
    requested_order: bool = False
    control_reports: bool = False
    listed: bool = False
    unloadable: int = 404
    grpc_unloadable: int = 0
    reader_of: ReaderOf | None = None
    codecs: bool = False
    named_versions: bool = False
    checks_datatypes: bool = False
    stream: GrpcEndpoint | None = None
    services: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    contracts: tuple[tuple[str, str], ...] = ()


QUIRKS: Mapping[str, Quirks] = {
    "kserve": Quirks(
        always={"model_version": None, "parameters": None},
        requested_order=True,
        control_reports=True,
        listed=True,
        unloadable=503,
    ),
    "mlserver": Quirks(
        bare_probes=True,
        always={"parameters": {}},
        grpc_unloadable=_GRPC_NOT_FOUND,
        reader_of=mlserver.reader_of,
        codecs=True,
        named_versions=True,
        checks_datatypes=True,
        stream=mlserver.STREAM_ENDPOINT,
        services={
            "/inference.model_repository.ModelRepositoryService/": (
                "RepositoryIndex",
                "RepositoryModelLoad",
                "RepositoryModelUnload",
            )
        },
        contracts=(("interlingua.schemas.oip", "model_repository.desc"),),
    ),
}
"""The flavors other than Triton's."""


def flavored_http_endpoints(endpoints: Iterable[HttpEndpoint], quirks: Quirks) -> tuple[HttpEndpoint, ...]:
    """``endpoints`` with ``quirks``."""
    flavored = tuple(_http_endpoint(endpoint, quirks) for endpoint in endpoints)
    # both servers redirect there, and clients follow
    more = [replace(endpoint, path="/v2/") for endpoint in flavored if endpoint.path == "/v2"]
    return (*flavored, *more, *((_MODELS,) if quirks.listed else ()))


def grpc_endpoints(endpoints: Iterable[GrpcEndpoint], quirks: Quirks) -> tuple[GrpcEndpoint, ...]:
    """``endpoints`` with ``quirks``."""
    chosen = [
        quirks.stream if quirks.stream and endpoint.method == stream_grpc.METHOD else endpoint
        for endpoint in endpoints
    ]
    flavored = {endpoint.method: _grpc_endpoint(endpoint, quirks) for endpoint in chosen}
    more = [
        replace(flavored[SERVICE + rpc], method=service + rpc)
        for service, rpcs in quirks.services.items()
        for rpc in rpcs
    ]
    return (*flavored.values(), *more)


# --- HTTP


def _http_endpoint(endpoint: HttpEndpoint, quirks: Quirks) -> HttpEndpoint:
    def open_request(request: HttpRequest) -> Opened[HttpAnswer]:
        named = quirks.named_versions and not request.params.get("version", "0").isdigit()
        version = unquote(request.params["version"]) if named else ""
        if named:
            request.params = {name: text for name, text in request.params.items() if name != "version"}
        opened = _strict(endpoint.open(request))
        opened.version = version or opened.version
        opened.action = _http_action(opened.action, quirks)
        return opened

    def fail(request: HttpRequest, opened: Opened[HttpAnswer] | None, error: InferenceError) -> HttpAnswer:
        answer = endpoint.fail(request, opened, error)
        operation = opened.action.operation if opened else None
        unknown = quirks.checks_datatypes and error.details == UNKNOWN_DATATYPE
        if (error.code is ErrorCode.MALFORMED or unknown) and answer.status == 400:
            document = error_document(error.message, request)
            detail = [{"type": "value_error", "loc": ["body"], "msg": document["error"]}]
            return json_answer(_INVALID, {**document, "detail": detail})
        if operation is Operation.MODEL_LOAD and error.code is ErrorCode.INTERNAL:
            return replace(answer, status=quirks.unloadable)
        return answer

    return replace(endpoint, open=open_request, fail=fail)


def _http_action(action: Action[HttpAnswer], quirks: Quirks) -> Action[HttpAnswer]:
    operation = action.operation
    if operation is Operation.INFER:
        return replace(action, decode=partial(_decode, quirks), passthrough=None)
    if operation in _PROBES:
        return replace(action, encode=partial(_encode_probe, action, quirks))
    if operation in _CONTROL and quirks.control_reports:
        return replace(action, encode=_encode_control)
    return action


def _decode(quirks: Quirks, opened: Opened[HttpAnswer], signature: Signature) -> tuple[InferRequest, Any]:
    request, form = _with_id(
        *decode_request(opened.message, opened.model, opened.version, signature, reader_of=quirks.reader_of)
    )
    order = tuple(output.name for output in request.outputs or ()) if quirks.requested_order else ()
    return request, replace(form, always=quirks.always, order=order)


def _encode_probe(
    action: Action[HttpAnswer], quirks: Quirks, opened: Opened[HttpAnswer], state: Readiness
) -> HttpAnswer | None:
    answer = action.encode(opened, state)
    if answer is None:
        return None
    if action.operation is Operation.MODEL_READY and not state.ready:
        return replace(answer, status=404)
    return HttpAnswer(200) if quirks.bare_probes and answer.status == 200 else answer


def _encode_control(opened: Opened[HttpAnswer], result: None) -> HttpAnswer:
    return json_answer(200, {"name": opened.model, _CONTROL[opened.action.operation]: True})


_LISTING: Action[HttpAnswer] = Action(
    Operation.REPOSITORY_INDEX, json_encoder(lambda models: {"models": [model.name for model in models]})
)
_MODELS = HttpEndpoint(
    "GET",
    "/v2/models",
    lambda request: Opened(_LISTING, argument=IndexQuery(ready=True)),
    http_fail,
    operations=(Operation.REPOSITORY_INDEX,),
)


# --- gRPC


def _grpc_endpoint(endpoint: GrpcEndpoint, quirks: Quirks) -> GrpcEndpoint:
    def open_message(request: GrpcRequest) -> Opened[GrpcAnswer]:
        opened = _strict(endpoint.open(request))
        action = opened.action
        if action.decode is not None:
            decode = partial(_decode_grpc, action, quirks)
            # these servers invent an id
            opened.action = replace(action, decode=decode, passthrough=None, stream_passthrough=None)
        elif action.operation is Operation.MODEL_READY:
            opened.action = replace(action, encode=partial(_ready_or_not_found, action))
        elif action.operation is Operation.MODEL_METADATA and quirks.codecs:
            opened.action = replace(action, encode=partial(_with_parameters, action))
        return opened

    def fail(request: GrpcRequest, opened: Opened[GrpcAnswer] | None, error: InferenceError) -> GrpcAnswer:
        answer = endpoint.fail(request, opened, error)
        loaded = opened is not None and opened.action.operation is Operation.MODEL_LOAD
        if quirks.grpc_unloadable and loaded and error.code is ErrorCode.INTERNAL:
            return replace(answer, code=quirks.grpc_unloadable)
        return answer

    return replace(endpoint, open=open_message, fail=fail)


def _decode_grpc(
    action: Action[GrpcAnswer], quirks: Quirks, opened: Opened[GrpcAnswer], signature: Signature
) -> tuple[InferRequest, Any]:
    assert action.decode is not None, "an action for inference has a decoder"  # noqa: S101
    raw = mlserver.as_raw(opened, signature) if quirks.codecs else opened
    request, form = action.decode(raw, signature)
    return (request, form) if action.operation is Operation.INFER_STREAM else _with_id(request, form)


def _ready_or_not_found(
    action: Action[GrpcAnswer], opened: Opened[GrpcAnswer], state: Readiness
) -> GrpcAnswer | None:
    if state.ready:
        return action.encode(opened, state)
    reason = state.reason.encode(errors="backslashreplace").decode()
    return GrpcAnswer(code=_GRPC_NOT_FOUND, details=reason)


def _with_parameters(
    action: Action[GrpcAnswer], opened: Opened[GrpcAnswer], metadata: ModelMetadata
) -> GrpcAnswer | None:
    answer = action.encode(opened, metadata)
    if answer is None or not metadata.parameters:
        return answer
    return GrpcAnswer(add_model_parameters(bytes(answer.message), metadata.parameters))


# --- both


def _strict(opened: Opened[Any]) -> Opened[Any]:
    """``opened``, where the unload of a model that is not served is an error, unlike on Triton."""
    if opened.action.operation is Operation.MODEL_UNLOAD:
        opened.argument = replace(opened.argument or ModelControl(), served=True)
    return opened


def _with_id(request: InferRequest, form: Any) -> tuple[InferRequest, Any]:
    """The request, with a new id if it has none."""
    if request.id:
        return request, form
    request.id = str(uuid.uuid4())
    return request, replace(form, id=request.id)
