"""The methods of the dialect over gRPC and bRPC, over HTTP/1.1 and gRPC on the port of bRPC, and as a stub
over HTTP on the port of the HTTP interface.

Errors are in the message, under a transport status of OK; only bytes that are not a message get another
status.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from interlingua.protocols.brpc_status import unparsable
from interlingua.protocols.content_coding import plain_body
from interlingua.protocols.dialect import Action, BrpcEndpoint, GrpcEndpoint, HttpEndpoint, Opened
from interlingua.protocols.grps import outcome
from interlingua.protocols.grps.codec import GrpsReplyForm, decode_request, encode_response
from interlingua.protocols.grps.codec_grpc import read_message, write_message
from interlingua.protocols.grps.codec_json import read_body
from interlingua.protocols.grps.flavors import Flavor
from interlingua.protocols.grps.json_quirks import COMPACT, JsonQuirks
from interlingua.protocols.grps.json_writer import write_message as write_json
from interlingua.protocols.grps.message import GrpsMessage, Kind
from interlingua.protocols.grps.options import PredictOptions
from interlingua.protocols.grps.passthrough import PASSTHROUGH, Call
from interlingua.protocols.grps.server_predict import Predict
from interlingua.protocols.wire import (
    BrpcAnswer,
    BrpcRequest,
    GrpcAnswer,
    GrpcRequest,
    HttpAnswer,
    HttpRequest,
)
from interlingua.schemas import Deployment, InferenceError, InferRequest, InferResponse, Operation, Signature

GRPC_SERVICE = "grps.protos.v1.GrpsService"
BRPC_SERVICE = "grps.protos.v1.GrpsBrpcService"

PREDICT, STREAMING = "Predict", "PredictStreaming"
"""The methods of inference. Only gRPC has the second."""

BRPC_NAMES = (BRPC_SERVICE, BRPC_SERVICE.rpartition(".")[2])
"""bRPC takes the name of a service without its package too."""

_BY_HTTP = "PredictByHttp"
"""Of the methods over HTTP."""

_GRPC_INVALID_ARGUMENT, _GRPC_INTERNAL = 3, 13
_PROTOBUF_TYPES = frozenset({"application/proto", "application/x-protobuf"})

Write = Callable[[GrpsMessage], Any]


Open = Callable[[Call], Opened[Any]]
Opener = tuple[Operation, Open]


def methods(flavor: Flavor, options: PredictOptions) -> Mapping[str, Opener]:
    """The operation and what opens a call, by method."""

    def plain(operation: Operation, report: Callable[[Any], GrpsMessage]) -> Opener:
        def encode(opened: Opened[Any], result: Any) -> Any:
            call: Call = opened.message
            return call.write(report(result))

        action: Action[Any] = Action(operation, encode)
        return operation, lambda call: Opened(action, message=call)

    return {
        PREDICT: (Operation.INFER, _inference(flavor, Operation.INFER)),
        STREAMING: (Operation.INFER_STREAM, _inference(flavor, Operation.INFER_STREAM)),
        "Online": plain(Operation.SET_ONLINE, lambda result: outcome.DONE),
        "Offline": plain(Operation.SET_OFFLINE, lambda result: outcome.DONE),
        "CheckLiveness": plain(Operation.LIVE, outcome.probed),
        "CheckReadiness": plain(Operation.READY, outcome.probed),
        "ServerMetadata": plain(Operation.DEPLOYMENT, partial(outcome.server_metadata, flavor, options)),
        "ModelMetadata": (Operation.DEPLOYMENT, _model_metadata(flavor)),
    }


def grpc_endpoints(flavor: Flavor, options: PredictOptions) -> tuple[GrpcEndpoint, ...]:
    """The methods of a gRPC listener."""
    offered = methods(flavor, options)
    return _over_grpc(flavor, GRPC_SERVICE, offered, _GRPC_INTERNAL)


def brpc_grpc_endpoints(flavor: Flavor, options: PredictOptions) -> tuple[GrpcEndpoint, ...]:
    """The methods of bRPC's service over gRPC on the port of a bRPC listener, without streams."""
    offered = _without_stream(flavor, options)
    return tuple(
        endpoint
        for service in BRPC_NAMES
        for endpoint in _over_grpc(flavor, service, offered, _GRPC_INVALID_ARGUMENT)
    )


def _over_grpc(
    flavor: Flavor, service: str, offered: Mapping[str, Opener], no_message: int
) -> tuple[GrpcEndpoint, ...]:
    """``offered`` as methods of ``service``; ``no_message`` is the status for bytes that are not a
    message."""

    def opener(open_call: Open) -> Callable[[GrpcRequest], Opened[GrpcAnswer]]:
        return lambda request: open_call(Call(read_message(request.message), _grpc_answer))

    def fail(request: GrpcRequest, opened: Opened[GrpcAnswer] | None, error: InferenceError) -> GrpcAnswer:
        if outcome.is_unparsable(opened, error):
            return GrpcAnswer(
                code=no_message, details=error.message.encode(errors="backslashreplace").decode()
            )
        return _grpc_answer(_failure(flavor, opened, error))

    return tuple(
        GrpcEndpoint(
            f"/{service}/{method}",
            opener(open_call),
            fail,
            streaming=method == STREAMING,
            operations=(operation,),
        )
        for method, (operation, open_call) in offered.items()
    )


def brpc_endpoints(flavor: Flavor, options: PredictOptions) -> tuple[BrpcEndpoint, ...]:
    """The methods of a bRPC listener."""

    def opener(open_call: Open) -> Callable[[BrpcRequest], Opened[BrpcAnswer]]:
        return lambda request: open_call(Call(read_message(request.message), _brpc_answer))

    def fail(request: BrpcRequest, opened: Opened[BrpcAnswer] | None, error: InferenceError) -> BrpcAnswer:
        if outcome.is_unparsable(opened, error):
            return unparsable(request)
        return _brpc_answer(_failure(flavor, opened, error))

    return tuple(
        BrpcEndpoint(
            BRPC_SERVICE,
            method,
            opener(open_call),
            fail,
            operations=(operation,),
        )
        for method, (operation, open_call) in _without_stream(flavor, options).items()
    )


def _without_stream(flavor: Flavor, options: PredictOptions) -> Mapping[str, Opener]:
    offered = methods(flavor, options)
    return {method: offered[method] for method in offered if method != STREAMING}


def stub_endpoints(
    flavor: Flavor, options: PredictOptions, written: JsonQuirks = COMPACT
) -> tuple[HttpEndpoint, ...]:
    """The methods of bRPC's service over HTTP/1.1: ``/service/method`` with protobuf by content type, else in
    bRPC's own JSON, answered in the form ``written``; and predict as on the HTTP interface. Bodies may be
    compressed."""

    def opener(open_call: Open) -> Callable[[HttpRequest], Opened[HttpAnswer]]:
        return lambda request: open_call(
            Call(_http_message(request), partial(_http_answer, written, request))
        )

    def fail(request: HttpRequest, opened: Opened[HttpAnswer] | None, error: InferenceError) -> HttpAnswer:
        if outcome.is_unparsable(opened, error):
            return flavor.unread(error.message)
        return _http_answer(written, request, _failure(flavor, opened, error))

    predict = Predict(flavor, options, plain_body)
    offered: list[tuple[str, Callable[[HttpRequest], Opened[HttpAnswer]], Any, Operation]] = [
        (method, opener(open_call), fail, operation)
        for method, (operation, open_call) in _without_stream(flavor, options).items()
    ]
    offered.append((_BY_HTTP, predict.open, predict.fail, Operation.INFER))
    return tuple(
        HttpEndpoint(
            "*",
            f"/{service}/{method}",
            open_request,
            failing,
            operations=(operation,),
        )
        for service in BRPC_NAMES
        for method, open_request, failing, operation in offered
    )


# --- the methods


@dataclass(frozen=True, slots=True)
class _Form:
    reply: GrpsReplyForm
    write: Write


def _inference(flavor: Flavor, operation: Operation) -> Open:
    def decode(opened: Opened[Any], signature: Signature) -> tuple[InferRequest, _Form]:
        call: Call = opened.message
        request, reply = decode_request(call.message, signature, model=opened.model)
        return request, _Form(reply, call.write)

    def encode(form: _Form, response: InferResponse) -> Any:
        if response.error is not None:
            return form.write(outcome.failed(flavor, response.error))
        if operation is Operation.INFER_STREAM and response.final and not response.outputs:
            return None
        return form.write(encode_response(form.reply, response))

    passthrough = PASSTHROUGH if operation is Operation.INFER else None
    action: Action[Any] = Action(operation, encode, decode, passthrough=passthrough)
    return lambda call: Opened(action, call.message.model, message=call)


def _model_metadata(flavor: Flavor) -> Open:
    def encode(opened: Opened[Any], deployment: Deployment) -> Any:
        call: Call = opened.message
        return call.write(outcome.model_metadata(flavor, deployment))

    action: Action[Any] = Action(Operation.DEPLOYMENT, encode)

    def open_call(call: Call) -> Opened[Any]:
        name = call.message.str_data if call.message.kind is Kind.STR_DATA else ""
        if not name:
            raise outcome.StatusError(flavor.empty_name)
        return Opened(action, name, message=call)

    return open_call


def _failure(flavor: Flavor, opened: Opened[Any] | None, error: InferenceError) -> GrpsMessage:
    operation, model = (opened.action.operation, opened.model) if opened else (None, "")
    return outcome.failed(flavor, error, operation, model)


# --- the bytes


def _grpc_answer(message: GrpsMessage) -> GrpcAnswer:
    return GrpcAnswer(write_message(message))


def _brpc_answer(message: GrpsMessage) -> BrpcAnswer:
    return BrpcAnswer(write_message(message))


def _is_protobuf(request: HttpRequest) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() in _PROTOBUF_TYPES


def _http_message(request: HttpRequest) -> GrpsMessage:
    body = plain_body(request)
    if _is_protobuf(request):
        return read_message(body)
    if not body:
        return GrpsMessage()
    _, message = read_body(body, COMPACT)
    if isinstance(message, InferenceError):
        try:
            raise message
        finally:
            del message  # its traceback refers to this frame
    return message


def _http_answer(written: JsonQuirks, request: HttpRequest, message: GrpsMessage) -> HttpAnswer:
    """``message`` in the coding of the request, under its content type."""
    headers = (("Content-Type", request.headers.get("content-type") or "application/json"),)
    body = write_message(message) if _is_protobuf(request) else write_json(message, written)
    return HttpAnswer(200, headers, [body])
