"""Both halves of a binding: the client writes a request and reads its answer, the server reads a request and
writes its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from interlingua.protocols.brpc_status import ERROR_CODES
from interlingua.protocols.dialect import Binding, BrpcEndpoint, GrpcEndpoint, HttpEndpoint, Opened
from interlingua.protocols.path_table import PathTable
from interlingua.protocols.wire import BrpcAnswer, BrpcRequest, GrpcRequest, HttpRequest
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
    """A request as a server decodes it, and what encodes its answer."""

    request: InferRequest
    received: raw.Request
    endpoint: Any
    opened: Opened[Any]
    form: Any


# --- the client's half


def encode_request(
    binding: Binding, request: InferRequest, signature: Signature | None
) -> tuple[raw.Call, Any]:
    """The call of a client, and what it needs to read the answer. Raises ``InferenceError``."""
    if not binding.capability.many_models:
        request = replace(request, model="")
    return binding.calls[Operation.INFER].encode(request, signature)


def decode_answer(binding: Binding, form: Any, reply: raw.Reply) -> InferResponse:
    """The response in the answer to a client. Raises the error in it, or BAD_UPSTREAM."""
    if isinstance(reply, BrpcAnswer) and reply.code:
        raise InferenceError(ERROR_CODES.get(reply.code, ErrorCode.BAD_UPSTREAM), reply.text)
    response: InferResponse = binding.calls[Operation.INFER].decode(form, reply)
    return response


# --- the server's half


def decode_request(binding: Binding, request: raw.Request, signature: Signature | None) -> DecodedRequest:
    """The request as a server decodes it. Raises ``InferenceError``, also for other operations than
    inference."""
    label, find = _ENDPOINTS[binding.transport]
    endpoint = find(binding.endpoints, request)
    if endpoint is None:
        text = f"{label.format(request)} is nothing that {binding.name} has"
        raise InferenceError(ErrorCode.NOT_FOUND, text)
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
    """The server's answer to ``decoded``. Raises ``InferenceError`` if it cannot carry ``response``."""
    answer: raw.Answer | None
    if isinstance(response, InferenceError):
        answer = decoded.endpoint.fail(decoded.received, decoded.opened, response)
    else:
        answer = decoded.opened.action.encode(decoded.form, response)
    if answer is None:
        raise InferenceError(ErrorCode.UNREPRESENTABLE, f"{binding.name} has no message for that answer")
    return answer


def sent(binding: Binding, call: raw.Call) -> raw.Request:
    """``call`` as a server of ``binding`` receives it."""
    form = raw.FORMS[binding.transport]
    request: raw.Request = form.read_request(form.write(call), call, {}, "")
    return request


def received(binding: Binding, answer: raw.Answer) -> raw.Reply:
    """``answer`` as a client of ``binding`` receives it."""
    form = raw.FORMS[binding.transport]
    reply: raw.Reply = form.read_answer(form.write(answer), {})
    return reply


def _http_endpoint(endpoints: Sequence[HttpEndpoint], request: HttpRequest) -> HttpEndpoint | None:
    methods, request.params = PathTable(endpoints).find(request.path)
    endpoint = request.endpoint = methods.get(request.method) or methods.get("*")
    return endpoint


def _brpc_name(call: BrpcEndpoint | BrpcRequest) -> tuple[str, str]:
    return call.service.rpartition(".")[2], call.method


def _grpc_endpoint(endpoints: Sequence[GrpcEndpoint], call: GrpcRequest) -> GrpcEndpoint | None:
    return next((each for each in endpoints if each.method == call.method), None)


def _brpc_endpoint(endpoints: Sequence[BrpcEndpoint], call: BrpcRequest) -> BrpcEndpoint | None:
    return next((each for each in endpoints if _brpc_name(each) == _brpc_name(call)), None)


_ENDPOINTS: Mapping[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "http": ("{0.method} {0.path}", _http_endpoint),
    "grpc": ("{0.method}", _grpc_endpoint),
    "brpc": ("{0.service}/{0.method}", _brpc_endpoint),
    "tcp": ("tcp", lambda endpoints, message: endpoints[0]),
}
"""By transport: the format of a request's name in errors, and the search for its endpoint."""
