"""Both halves of a binding: the client writes a request and reads its answer, the server reads a request and
writes its answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from interlingua.protocols.brpc_status import ERROR_CODES
from interlingua.protocols.dialect import Binding, Opened
from interlingua.protocols.path_table import PathTable
from interlingua.protocols.wire import (
    BrpcAnswer,
    BrpcRequest,
    FramedAnswer,
    FramedReply,
    FramedRequest,
    GrpcRequest,
    HttpAnswer,
    HttpCall,
    HttpReply,
    HttpRequest,
)
from interlingua.schemas import (
    Context,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Operation,
    Signature,
)
from interlingua.translator.conversion import raw

NOTHING = Signature((), ())
"""The signature of an unknown model."""

_INFERENCE = (Operation.INFER, Operation.INFER_STREAM)


@dataclass(slots=True)
class DecodedRequest:
    """A request as a server reads it, and what encodes its answer."""

    request: InferRequest
    sent: raw.Request
    endpoint: Any
    opened: Opened[Any]
    form: Any


# --- the client's half


def encode_request(
    binding: Binding, request: InferRequest, signature: Signature | None
) -> tuple[raw.Call, Any]:
    """The request that a client sends, and what it needs to read the answer. Raises ``InferenceError``."""
    if not binding.capability.many_models:
        request = replace(request, model="")
    return binding.calls[Operation.INFER].encode(request, signature)


def decode_answer(binding: Binding, form: Any, reply: raw.Reply) -> InferResponse:
    """The response in an answer to a client. Raises the error in it, or the fault of the answer."""
    if isinstance(reply, BrpcAnswer) and reply.code:
        raise InferenceError(ERROR_CODES.get(reply.code, ErrorCode.BAD_UPSTREAM), reply.text)
    response: InferResponse = binding.calls[Operation.INFER].decode(form, reply)
    return response


# --- the server's half


def decode_request(
    binding: Binding, sent: raw.Request | raw.Call, signature: Signature | None
) -> DecodedRequest:
    """The request as a server reads it. Raises ``InferenceError``, also where ``sent`` is no inference."""
    request, endpoint = _endpoint(binding, sent)
    # as for every request that is served
    request.context = Context(server_id="inference:0", request_number=1)
    opened: Opened[Any] = endpoint.open(request)
    operation = opened.action.operation
    if operation not in _INFERENCE or opened.action.decode is None:
        raise InferenceError(
            ErrorCode.UNSUPPORTED, f"the message asks for {operation.value}, which is no inference"
        )
    decoded, form = opened.action.decode(opened, signature or NOTHING)
    decoded.model = decoded.model or opened.model
    return DecodedRequest(decoded, request, endpoint, opened, form)


def encode_answer(
    binding: Binding, decoded: DecodedRequest, response: InferResponse | InferenceError
) -> raw.Answer:
    """The server's answer to ``decoded``. Raises ``InferenceError`` for what it has no form for."""
    answer: raw.Answer | None
    if isinstance(response, InferenceError):
        answer = decoded.endpoint.fail(decoded.sent, decoded.opened, response)
    else:
        answer = decoded.opened.action.encode(decoded.form, response)
    if answer is None:
        raise InferenceError(ErrorCode.UNREPRESENTABLE, f"{binding.name} has no message for that answer")
    return answer


def _endpoint(binding: Binding, sent: raw.Request | raw.Call) -> tuple[Any, Any]:
    """``sent`` as a server gets it, and its endpoint."""
    endpoints = binding.endpoints
    if isinstance(sent, HttpCall):
        sent = HttpRequest(sent.method, sent.path, sent.query, sent.headers, raw.body(sent))
    request = replace(sent)
    endpoint: Any = None
    match request:
        case HttpRequest():
            request.headers = {name.lower(): value for name, value in request.headers.items()}
            methods, request.params = PathTable(endpoints).find(request.path)
            request.endpoint = endpoint = methods.get(request.method) or methods.get("*")
            where = f"{request.method} {request.path}"
        case GrpcRequest():
            endpoint = next((each for each in endpoints if each.method == request.method), None)
            where = request.method
        case BrpcRequest():
            name = request.service.rpartition(".")[2], request.method
            names = ((each.service.rpartition(".")[2], each.method) for each in endpoints)
            endpoint = dict(zip(names, endpoints, strict=True)).get(name)
            where = f"{request.service}/{request.method}"
        case FramedRequest():
            if request.parts:
                request.message = raw.body(request)
            endpoint, where = endpoints[0], "tcp"
    if endpoint is None:
        raise InferenceError(ErrorCode.NOT_FOUND, f"{where} is nothing that {binding.name} has")
    return request, endpoint


def received(answer: raw.Answer) -> raw.Reply:
    """An answer as the client gets it."""
    if isinstance(answer, HttpAnswer):
        return HttpReply(
            answer.status, {name.lower(): value for name, value in answer.headers}, raw.body(answer)
        )
    return FramedReply(raw.body(answer)) if isinstance(answer, FramedAnswer) else answer
