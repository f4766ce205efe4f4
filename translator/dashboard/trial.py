"""One inference that an operator sends from the dashboard, in any dialect of a listener.

It takes the path of a client's request, from the encoded bytes through the handlers of the listener, without
a socket: ``allow`` of the listener holds for the operator as for any client at the same address.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from interlingua.protocols.wire import HttpAnswer, HttpRequest
from interlingua.schemas import (
    Context,
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Signature,
    Tensor,
)
from interlingua.translator.admin.handler import AdminAction, QueryError, document, plain
from interlingua.translator.cli.arguments import RefusedError
from interlingua.translator.cli.values import from_array, from_json, read_npy
from interlingua.translator.config.bindings import bindings_of
from interlingua.translator.config.options import Config
from interlingua.translator.conversion import codec
from interlingua.translator.dashboard.snippets import snippets
from interlingua.translator.listening import Listening
from interlingua.translator.serving.routing.conditions import RouteKey

MAX_BODY_BYTES = 32 << 20

TIMEOUT_SECS = 30.0

_MAX_ELEMENTS = 1 << 16
"""The elements of an output that the page gets; a picture of 256 x 256 is whole."""

_MAX_SAFE = (1 << 53) - 1
"""The largest integer that a number of JavaScript holds exactly: larger ones are sent as text."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What the form requests. An input has a ``name`` and one of ``json``, ``text`` (JSON in a
    string, which the browser has not parsed), ``npy`` (base64), or ``raw`` (base64) with ``shape``.
    ``headers`` are credentials, ``peer`` is the operator. With ``describe`` only the signature of the
    model."""

    listener: str
    dialect: str
    transport: str
    model: str
    version: str = ""
    inputs: Sequence[Mapping[str, Any]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    peer: str = ""
    describe: bool = False

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
    except RefusedError as error:
        found["error"] = {"code": ErrorCode.INVALID_TENSOR.name, "message": str(error)}
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
    tensors = [_tensor(each, signature) for each in trial.inputs]
    request = InferRequest(trial.model, tuple(tensors), version=trial.version)
    call, form = codec.encode_request(binding, request, signature)
    found["snippets"] = snippets(trial.listener, binding, call, request, place.options.tls is not None)
    received: Any = codec.sent(binding, call)
    received.context = _context(trial, getattr(received, "headers", {}))
    began = time.monotonic_ns()
    answer = await _served(place.pipeline.handlers[binding.transport], received)
    found["ms"] = round((time.monotonic_ns() - began) / 1e6, 3)
    found |= _shown(codec.decode_answer(binding, form, codec.received(binding, answer)))


def _context(trial: Trial, headers: Mapping[str, str]) -> Context:
    return Context(
        deadline=time.monotonic() + TIMEOUT_SECS, peer=trial.peer, headers={**headers, **trial.headers}
    )


async def _served(handler: Any, request: Any) -> Any:
    """The whole answer of ``handler``."""
    if not isinstance(request, HttpRequest):
        return await handler.serve(request)
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


def _tensor(given: Mapping[str, Any], signature: Signature) -> Tensor:
    """Raises ``InferenceError`` and ``RefusedError``."""
    name = str(given.get("name", ""))
    spec = signature.input_names.get(name)
    datatype = None if spec is None else spec.datatype
    try:
        if "npy" in given:
            content = base64.b64decode(given["npy"], validate=True)
            return from_array(name, read_npy(name, f"{name or 'input'}.npy", content), datatype)
        if "raw" in given and datatype is not None:
            data = base64.b64decode(given["raw"], validate=True)
            array = np.frombuffer(data, datatype.dtype).reshape([int(size) for size in given["shape"]])
            return Tensor.from_numpy(name, array, datatype)
        value = orjson.loads(given["text"]) if "text" in given else given.get("json")
        return from_json(name, value, datatype)
    except orjson.JSONDecodeError as error:
        raise InferenceError(ErrorCode.INVALID_TENSOR, f"input '{name}' is not JSON: {error}") from error
    except (ValueError, TypeError, KeyError, OverflowError, binascii.Error) as error:
        raise InferenceError(ErrorCode.INVALID_TENSOR, f"input '{name}': {error}") from error


def _shown(response: InferResponse) -> dict[str, Any]:
    outputs = []
    for tensor in response.outputs:
        array = tensor.numpy().reshape(-1)[:_MAX_ELEMENTS]
        if tensor.datatype is Datatype.BYTES:
            data: list[Any] = [each.decode(errors="replace") for each in tensor.elements()[:_MAX_ELEMENTS]]
        elif array.dtype.kind in "fV":
            numbers = array.astype(np.float64)
            data = [value if np.isfinite(value) else str(value) for value in numbers.tolist()]
        elif array.dtype.itemsize == 8:
            data = [value if abs(value) <= _MAX_SAFE else str(value) for value in array.tolist()]
        else:
            data = array.tolist()
        outputs.append(
            {
                "name": tensor.name,
                "datatype": tensor.datatype.value,
                "shape": tensor.shape,
                "data": data,
                "elements": int(np.prod(tensor.shape, dtype=np.int64)),
            }
        )
    return {"model": response.model, "version": response.version, "outputs": outputs}
