"""The dialect as KServe or MLServer speak it as servers, for listeners that are told so.

The endpoints are those of ``server``; what differs stands in one table. Only what a client can tell is
imitated, and nothing that would lose an answer: MLServer's refusal of binary data, say, or KServe's of
versions.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from protocols.dialect import Action, GrpcEndpoint, HttpEndpoint, Opened
from protocols.oip.http_endpoint import http_fail, json_answer
from protocols.wire import GrpcAnswer, GrpcRequest, HttpAnswer, HttpRequest
from schemas import (
    ErrorCode,
    IndexQuery,
    InferenceError,
    InferRequest,
    ModelStatus,
    Operation,
    Readiness,
    Signature,
)

_PROBES = frozenset({Operation.LIVE, Operation.READY, Operation.MODEL_READY})
_CONTROL = {Operation.MODEL_LOAD: "load", Operation.MODEL_UNLOAD: "unload"}
_INVALID = 422
_GRPC_NOT_FOUND = 5


@dataclass(frozen=True, slots=True)
class Habits:
    """What a server does that Triton does not. Common to all of them: a model that is not ready is not
    found, a body that fails the validation is 422 with ``detail``, an id that is missing is invented.

    ``bare_probes``: probes are answered by the status alone. ``always``: the members that an answer to
    an inference has even where there is nothing to say. ``asked_order``: over HTTP outputs come in the
    order of the request. ``told``: a load or unload is answered with what was done. ``listed``: the
    models are listed at ``/v2/models``. ``unloadable`` is the HTTP status for a model that there is not to
    load.
    """

    bare_probes: bool = False
    always: Mapping[str, Any] = field(default_factory=dict)
    asked_order: bool = False
    told: bool = False
    listed: bool = False
    unloadable: int = 404


HABITS: Mapping[str, Habits] = {
    "kserve": Habits(
        always={"model_version": None, "parameters": None},
        asked_order=True,
        told=True,
        listed=True,
        unloadable=503,
    ),
    "mlserver": Habits(bare_probes=True, always={"parameters": {}}),
}
"""The flavors beside Triton's."""


def http_endpoints(endpoints: Iterable[HttpEndpoint], habits: Habits) -> tuple[HttpEndpoint, ...]:
    """``endpoints`` with ``habits``."""
    flavored = tuple(_http_endpoint(endpoint, habits) for endpoint in endpoints)
    return (*flavored, _MODELS) if habits.listed else flavored


def grpc_endpoints(endpoints: Iterable[GrpcEndpoint]) -> tuple[GrpcEndpoint, ...]:
    """``endpoints`` as both servers have them."""
    return tuple(_grpc_endpoint(endpoint) for endpoint in endpoints)


# --- HTTP


def _http_endpoint(endpoint: HttpEndpoint, habits: Habits) -> HttpEndpoint:
    def open_request(request: HttpRequest) -> Opened[HttpAnswer]:
        opened = endpoint.open(request)
        opened.action = _http_action(opened.action, habits)
        return opened

    def fail(request: HttpRequest, opened: Opened[HttpAnswer] | None, error: InferenceError) -> HttpAnswer:
        answer = endpoint.fail(request, opened, error)
        operation = opened.action.operation if opened else None
        if error.code is ErrorCode.MALFORMED and answer.status == 400:
            detail = [{"type": "value_error", "loc": ["body"], "msg": _text(error)}]
            return json_answer(_INVALID, {"error": _text(error), "detail": detail})
        if operation is Operation.MODEL_LOAD and error.code is ErrorCode.INTERNAL:
            return replace(answer, status=habits.unloadable)
        return answer

    return replace(endpoint, open=open_request, fail=fail)


def _http_action(action: Action[HttpAnswer], habits: Habits) -> Action[HttpAnswer]:
    operation = action.operation
    if operation is Operation.INFER:
        return replace(action, decode=_decoder(action, habits))
    if operation in _PROBES:
        return replace(action, encode=_probe_encoder(action, habits))
    if operation in _CONTROL and habits.told:
        return replace(action, encode=_told)
    return action


def _decoder(
    action: Action[HttpAnswer], habits: Habits
) -> Callable[[Opened[HttpAnswer], Signature], tuple[InferRequest, Any]]:
    decode = action.decode
    assert decode is not None, "an action for inference has a decoder"  # noqa: S101

    def decoded(opened: Opened[HttpAnswer], signature: Signature) -> tuple[InferRequest, Any]:
        request, form = _with_id(*decode(opened, signature))
        order = tuple(output.name for output in request.outputs or ()) if habits.asked_order else ()
        return request, replace(form, always=habits.always, order=order)

    return decoded


def _probe_encoder(
    action: Action[HttpAnswer], habits: Habits
) -> Callable[[Opened[HttpAnswer], Readiness], HttpAnswer | None]:
    def encode(opened: Opened[HttpAnswer], state: Readiness) -> HttpAnswer | None:
        answer = action.encode(opened, state)
        if answer is None:
            return None
        if action.operation is Operation.MODEL_READY and not state.ready:
            return replace(answer, status=404)
        return HttpAnswer(200) if habits.bare_probes and answer.status == 200 else answer

    return encode


def _told(opened: Opened[HttpAnswer], result: None) -> HttpAnswer:
    return json_answer(200, {"name": opened.model, _CONTROL[opened.action.operation]: True})


def _encode_names(opened: Opened[HttpAnswer], models: Iterable[ModelStatus]) -> HttpAnswer:
    return json_answer(200, {"models": [model.name for model in models]})


_LISTING: Action[HttpAnswer] = Action(Operation.REPOSITORY_INDEX, _encode_names)
_MODELS = HttpEndpoint(
    "GET", "/v2/models", lambda request: Opened(_LISTING, argument=IndexQuery(ready=True)), http_fail
)


# --- gRPC


def _grpc_endpoint(endpoint: GrpcEndpoint) -> GrpcEndpoint:
    def open_message(request: GrpcRequest) -> Opened[GrpcAnswer]:
        opened = endpoint.open(request)
        action = opened.action
        if action.operation is Operation.INFER:
            decode = action.decode
            assert decode is not None, "an action for inference has a decoder"  # noqa: S101
            opened.action = replace(action, decode=lambda *given: _with_id(*decode(*given)))
        elif action.operation is Operation.MODEL_READY:
            opened.action = replace(action, encode=_ready_or_not_found(action))
        return opened

    return replace(endpoint, open=open_message)


def _ready_or_not_found(
    action: Action[GrpcAnswer],
) -> Callable[[Opened[GrpcAnswer], Readiness], GrpcAnswer | None]:
    def encode(opened: Opened[GrpcAnswer], state: Readiness) -> GrpcAnswer | None:
        if state.ready:
            return action.encode(opened, state)
        reason = state.reason.encode(errors="backslashreplace").decode()
        return GrpcAnswer(code=_GRPC_NOT_FOUND, details=reason)

    return encode


# --- both


def _with_id(request: InferRequest, form: Any) -> tuple[InferRequest, Any]:
    """The request under an id of ours where it has none."""
    if request.id:
        return request, form
    request.id = str(uuid.uuid4())
    return request, replace(form, id=request.id)


def _text(error: InferenceError) -> str:
    return error.message.encode(errors="backslashreplace").decode()
