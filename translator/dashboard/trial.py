"""One inference that an operator sends from the dashboard, in any dialect of a listener.

It takes the path of a client's request, from the encoded bytes through the handlers of the listener, without
a socket: ``allow`` of the listener holds for the operator as for any client at the same address.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import orjson

from interlingua.protocols.dialect import Binding
from interlingua.protocols.wire import HttpAnswer, HttpRequest
from interlingua.schemas import (
    Context,
    ErrorCode,
    InferenceError,
    InferRequest,
    Signature,
    offload,
)
from interlingua.schemas.offload import OffloadRequired
from interlingua.translator.admin.handler import AdminAction, QueryError, document, plain
from interlingua.translator.config.bindings import bindings_of
from interlingua.translator.config.options import Config
from interlingua.translator.conversion import codec, raw
from interlingua.translator.dashboard.snippets import TOKEN, SnippetAddress, snippets
from interlingua.translator.dashboard.trial_tensors import read_inputs, write_outputs
from interlingua.translator.listening import Listening
from interlingua.translator.serving.routing.conditions import RouteKey

T = TypeVar("T")

MAX_BODY_BYTES = 32 << 20

TIMEOUT_SECS = 30.0

_AT_ONCE_BYTES = 1 << 15
"""Messages up to this size are handled on the event loop: that takes less than about 2 ms."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What the form requests. An input has a ``name`` and one of ``json``, ``text`` (JSON in a
    string, which the browser has not parsed), ``npy`` (base64), or ``raw`` (base64) with ``shape``.
    ``headers`` are credentials, ``peer`` is the operator. With ``describe`` only the signature of the
    model. ``nbytes`` is the size of the form."""

    listener: str
    dialect: str
    transport: str
    model: str
    version: str = ""
    inputs: Sequence[Mapping[str, Any]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    peer: str = ""
    describe: bool = False
    nbytes: int = 0

    @classmethod
    def of_request(cls, request: HttpRequest) -> Trial:
        """Raises ``QueryError``."""
        try:
            given = orjson.loads(request.body)
            texts = {key: str(given[key]) for key in ("listener", "dialect", "transport", "model")}
            headers = {str(name).lower(): str(value) for name, value in given.get("headers", {}).items()}
            inputs = [dict(each) for each in given.get("inputs", ())]
            version, describe = str(given.get("version", "")), bool(given.get("describe"))
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise QueryError(f"not a request of the form: {error}") from error
        return cls(
            **texts,
            version=version,
            inputs=inputs,
            headers=headers,
            peer=request.context.peer,
            describe=describe,
            nbytes=len(request.body),
        )


def trial_action(infer: Callable[[Trial], Awaitable[dict[str, Any]]]) -> AdminAction:
    """``POST /try``: the form in JSON, which pages of other origins cannot send without a preflight."""

    async def act(request: HttpRequest) -> HttpAnswer:
        if not request.headers.get("content-type", "").startswith("application/json"):
            return plain(415, "the form is application/json")
        return document(await infer(Trial.of_request(request)))

    return AdminAction(act, "inference", MAX_BODY_BYTES)


async def run(trial: Trial, config: Config, listening: Sequence[Listening]) -> dict[str, Any]:
    """The answer to ``trial``, for JSON: ``outputs`` or an ``error``, with the same request for other
    programs."""
    found: dict[str, Any] = {}
    try:
        await _run(trial, config, listening, found)
    except InferenceError as error:
        found["error"] = {"code": error.code.name, "message": error.message}
    return found


async def _run(trial: Trial, config: Config, listening: Sequence[Listening], found: dict[str, Any]) -> None:
    place = next((each for each in listening if str(each.address) == trial.listener), None)
    if place is None:
        raise InferenceError(ErrorCode.NOT_FOUND, f"no listener at {trial.listener}")
    spoken = (trial.dialect, trial.transport)
    bindings = bindings_of(config, place.options)
    binding = next((each for each in bindings if (each.dialect, each.transport) == spoken), None)
    if binding is None:
        raise InferenceError(ErrorCode.NOT_FOUND, f"{trial.listener} does not speak {'/'.join(spoken)}")
    place.pipeline.authorization.authenticate(context := _context(trial, {}))
    place.pipeline.authorization.admit("inference", context)
    signature = await _signature(trial, place)
    if trial.describe:
        found["signature"] = {
            side: [
                {"name": each.name, "datatype": each.datatype.value, "shape": each.shape} for each in specs
            ]
            for side, specs in (("inputs", signature.inputs), ("outputs", signature.outputs))
        }
        return
    addressed = SnippetAddress(trial.listener, place.options.tls is not None, _credentials(trial, place))
    encode = partial(_encoded, trial, binding, signature, addressed)
    received, form, found["snippets"] = await _beside_the_loop(trial.nbytes, encode)
    received.context = _context(trial, getattr(received, "headers", {}))
    began = time.monotonic_ns()
    answer = await _served(place.pipeline.handlers[binding.transport], received)
    found["ms"] = round((time.monotonic_ns() - began) / 1e6, 3)
    found |= await _beside_the_loop(answer.size, partial(_decoded, binding, form, answer))


def _encoded(
    trial: Trial, binding: Binding, signature: Signature, addressed: SnippetAddress
) -> tuple[Any, Any, dict[str, Any]]:
    """The message as the server receives it, what decodes its answer, and the snippets."""
    work = (read_inputs, trial.inputs, signature)
    tensors = offload.call(*work) if trial.nbytes > _AT_ONCE_BYTES else work[0](*work[1:])
    request = InferRequest(trial.model, tuple(tensors), version=trial.version)
    call, form = codec.encode_request(binding, request, signature)
    return codec.sent(binding, call), form, snippets(addressed, binding, call, request, signature)


def _decoded(binding: Binding, form: Any, answer: raw.Answer) -> dict[str, Any]:
    return write_outputs(codec.decode_answer(binding, form, codec.received(binding, answer)))


async def _beside_the_loop(nbytes: int, function: Callable[[], T]) -> T:
    """The result of ``function``; in an offload thread if it handles many bytes."""
    try:
        if nbytes > _AT_ONCE_BYTES:
            offload.require()
        return function()
    except OffloadRequired as required:
        return await required.offloader.run(offload.DEFAULT_LIMITS, function)


def _credentials(trial: Trial, place: Listening) -> Mapping[str, str]:
    """The headers that a client needs for an inference, with a placeholder of the secret."""
    grant = place.pipeline.authorization.grants["inference"]
    if trial.headers.get("authorization") or (grant.users and not grant.anyone):
        return {"authorization": f"Bearer {TOKEN}"}
    return {} if grant.anyone else {key.header: TOKEN for key in grant.keys[:1]}


def _context(trial: Trial, headers: Mapping[str, str]) -> Context:
    return Context(
        deadline=time.monotonic() + TIMEOUT_SECS, peer=trial.peer, headers={**headers, **trial.headers}
    )


async def _served(handler: Any, request: Any) -> Any:
    """The whole answer of ``handler``."""
    if not isinstance(request, HttpRequest):
        return handler.refusal(request) or await handler.serve(request)
    request.headers = request.context.headers
    answer: HttpAnswer = handler.head(request) or await handler.serve(request)
    if answer.rest is not None:
        return HttpAnswer(answer.status, answer.headers, (await answer.rest.whole(),))
    return answer


async def _signature(trial: Trial, place: Listening) -> Signature:
    """Raises ``InferenceError``."""
    router = place.pipeline.service.router
    key = RouteKey(trial.model, trial.dialect, place.options.listen, trial.version, trial.headers)
    route = router.route(key)
    if route is None:
        return await router.target(trial.model, trial.version).signature(trial.version)
    target = router.target(route.lead(router.models), trial.version)
    return await route.view(target, trial.model).signature(trial.version)
