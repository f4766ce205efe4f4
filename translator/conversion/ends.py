"""A dialect over a transport, from both sides: as the server that reads a request and writes its answer, and
as the client that writes a request and reads its answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from interlingua.protocols.brpc_status import ERROR_CODES
from interlingua.protocols.dialect import Binding, Capability, Opened, UpstreamCall
from interlingua.protocols.path_table import PathTable
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.wire import (
    BrpcAnswer,
    BrpcRequest,
    FramedAnswer,
    FramedReply,
    FramedRequest,
    GrpcRequest,
    HttpAnswer,
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
from interlingua.translator.config.wording import unknown
from interlingua.translator.conversion import raw

NOTHING = Signature((), ())
"""Of a model that nothing is known of."""

_INFERENCE = (Operation.INFER, Operation.INFER_STREAM)


@dataclass(slots=True)
class Asked:
    """A request as the server has read it; what it needs to answer goes with it."""

    request: InferRequest
    sent: raw.Request
    endpoint: Any
    opened: Opened[Any]
    form: Any


@dataclass(frozen=True)
class End:
    """Raises ``ValueError`` for a dialect or a transport that there is not."""

    dialect: str
    transport: str

    def __post_init__(self) -> None:
        if self.dialect not in DIALECTS:
            raise ValueError(unknown("dialect", self.dialect, DIALECTS))
        if self.transport not in DIALECTS[self.dialect].bindings:
            kinds = DIALECTS[self.dialect].bindings
            raise ValueError(unknown(f"transport of {self.dialect}", self.transport, kinds))

    @classmethod
    def of(cls, name: str) -> End:
        """The end that is written as `dialect/transport`."""
        return cls(*name.partition("/")[::2])

    def __str__(self) -> str:
        return f"{self.dialect}/{self.transport}"

    @property
    def binding(self) -> Binding:
        """The tables of it."""
        return DIALECTS[self.dialect].bindings[self.transport]

    @property
    def capability(self) -> Capability:
        """What it carries."""
        return self.binding.capability

    @property
    def call(self) -> UpstreamCall[Any, Any]:
        """Its call for an inference."""
        return self.binding.calls[Operation.INFER]

    # --- as a client

    def ask(self, request: InferRequest, signature: Signature | None) -> tuple[raw.Request, Any]:
        """The request that a client sends, and what it needs to read the answer. Raises
        ``InferenceError``."""
        if not self.capability.many_models:
            request = replace(request, model="")
        return self.call.encode(request, signature)

    def hear(self, form: Any, reply: raw.Reply) -> InferResponse:
        """The response in an answer to a client. Raises the error that it tells, or what is wrong with it."""
        if isinstance(reply, BrpcAnswer) and reply.code:
            raise InferenceError(ERROR_CODES.get(reply.code, ErrorCode.BAD_UPSTREAM), reply.text)
        response: InferResponse = self.call.decode(form, reply)
        return response

    # --- as a server

    def understand(self, sent: raw.Request, signature: Signature | None) -> Asked:
        """What a server reads. Raises ``InferenceError``, also where ``sent`` asks for no inference."""
        request, endpoint = self._endpoint(sent)
        # as for every request that is served
        request.context = Context(server_id="inference:0", request_number=1)
        opened: Opened[Any] = endpoint.open(request)
        operation = opened.action.operation
        if operation not in _INFERENCE or opened.action.decode is None:
            raise InferenceError(
                ErrorCode.UNSUPPORTED, f"the message asks for {operation.value}, which is no inference"
            )
        understood, form = opened.action.decode(opened, signature or NOTHING)
        understood.model = understood.model or opened.model
        return Asked(understood, request, endpoint, opened, form)

    def answer(self, asked: Asked, response: InferResponse | InferenceError) -> raw.Answer:
        """The server's answer to ``asked``. Raises ``InferenceError`` for what it has no form for."""
        answer: raw.Answer | None
        if isinstance(response, InferenceError):
            answer = asked.endpoint.fail(asked.sent, asked.opened, response)
        else:
            answer = asked.opened.action.encode(asked.form, response)
        if answer is None:
            raise InferenceError(ErrorCode.UNREPRESENTABLE, f"{self} has no message for that answer")
        return answer

    def _endpoint(self, sent: raw.Request) -> tuple[Any, Any]:
        """``sent`` as a server gets it, and the endpoint that it goes to."""
        endpoints, request = self.binding.endpoints, replace(sent)
        endpoint: Any = None
        match request:
            case HttpRequest():
                request.headers = {name.lower(): value for name, value in request.headers.items()}
                request.body = request.body or b"".join(map(bytes, request.parts))
                methods, request.params = self._paths.find(request.path)
                request.endpoint = endpoint = methods.get(request.method) or methods.get("*")
                where = f"{request.method} {request.path}"
            case GrpcRequest():
                endpoint = {each.method: each for each in endpoints}.get(request.method)
                where = request.method
            case BrpcRequest():
                name = request.service.rpartition(".")[2], request.method
                offered = ((each.service.rpartition(".")[2], each) for each in endpoints)
                endpoint = {(service, each.method): each for service, each in offered}.get(name)
                where = f"{request.service}/{request.method}"
            case FramedRequest():
                if request.parts:
                    request.message = raw.body(sent)
                endpoint, where = endpoints[0], "tcp"
        if endpoint is None:
            raise InferenceError(ErrorCode.NOT_FOUND, f"{where} is nothing that {self} has")
        return request, endpoint

    @cached_property
    def _paths(self) -> PathTable:
        return PathTable(self.binding.endpoints)


def received(answer: raw.Answer) -> raw.Reply:
    """An answer as the client gets it."""
    if isinstance(answer, HttpAnswer):
        return HttpReply(
            answer.status, {name.lower(): value for name, value in answer.headers}, raw.body(answer)
        )
    return FramedReply(raw.body(answer)) if isinstance(answer, FramedAnswer) else answer
