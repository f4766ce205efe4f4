"""Requests with examples: classification, regression, and several of both for the same examples.

``Task`` is what a request wants of a model's outputs; both transports have their forms of its result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from interlingua.protocols.dialect import Action, Opened
from interlingua.protocols.protobuf_message import SHORT_BYTES, parse_bounded, split_off
from interlingua.protocols.tfserving import examples
from interlingua.protocols.tfserving.codec import (
    CLASSIFY_METHOD,
    DEFAULT_SIGNATURE,
    REGRESS_METHOD,
    check_signature_name,
)
from interlingua.protocols.tfserving.grpc_messages import message_of, model_of, serialize, spec_of
from interlingua.protocols.tfserving.results import classes_of, regressions_of
from interlingua.protocols.wire import Buffer, GrpcAnswer, GrpcRequest
from interlingua.schemas import (
    InferRequest,
    InferResponse,
    Operation,
    Signature,
    Tensor,
    invalid_tensor,
    offload,
    unsupported,
)

_RPC_OF = {"Classify": CLASSIFY_METHOD, "Regress": REGRESS_METHOD}
_MESSAGES = {"Classify": "Classification", "Regress": "Regression", "MultiInference": "MultiInference"}


_INPUT = 2
"""The field with the examples, in each of these messages."""


@dataclass(frozen=True, slots=True)
class ExampleForm:
    """The form of an answer: to ``count`` examples, for a model with ``signature``, with the results of
    ``methods``."""

    count: int
    signature: Signature
    methods: tuple[str, ...]


def open_examples(rpc: str, request: GrpcRequest) -> Opened[GrpcAnswer]:
    """Read the model of a request with examples. Raises MALFORMED, INVALID_TENSOR, UNSUPPORTED."""
    kind = message_of(f"{_MESSAGES[rpc]}Request")
    rest, given = split_off(kind, request.message, _INPUT)
    message = parse_bounded(kind, rest)
    if rpc == "MultiInference":
        model, version, methods = _tasks(message)
    else:
        model, version, name = model_of(message)
        check_signature_name(name, _RPC_OF[rpc])
        methods = (_RPC_OF[rpc],)
    # the parts of one message
    return Opened(_ACTIONS[rpc], model, version, (b"".join(given), methods))


def _tasks(message: Any) -> tuple[str, str, tuple[str, ...]]:
    """The model, its version, and the methods of a ``MultiInferenceRequest``."""
    if not message.tasks:
        raise invalid_tensor("Inference request must contain at least one task")
    models = set()
    methods = []
    for task in message.tasks:
        model, version, name = model_of(task)
        if task.method_name not in (CLASSIFY_METHOD, REGRESS_METHOD):
            raise unsupported(f"Unsupported signature method_name: {task.method_name}")
        check_signature_name(name, task.method_name)
        models.add((model, version))
        methods.append(task.method_name)
    if len(models) > 1:
        raise invalid_tensor("All ModelSpecs in a MultiInferenceRequest must access the same model name.")
    return (*models.pop(), tuple(methods))


def _decode(opened: Opened[GrpcAnswer], signature: Signature) -> tuple[InferRequest, ExampleForm]:
    given, methods = opened.message
    read = partial(offload.call, _read_long) if len(given) > SHORT_BYTES else _read
    inputs, count = read(given, signature)
    request = InferRequest(opened.model, inputs, None, opened.version)
    return request, ExampleForm(count, signature, methods)


def _read_long(given: Buffer, signature: Signature) -> tuple[tuple[Tensor, ...], int]:
    examples.check_size(given)
    return _read(given, signature)


def _read(given: Buffer, signature: Signature) -> tuple[tuple[Tensor, ...], int]:
    found = examples.of_message(given)
    return found.inputs(signature), found.count


def _result(form: ExampleForm, method: str, response: InferResponse) -> dict[str, Any]:
    if method == REGRESS_METHOD:
        return {"regressions": [{"value": value} for value in regressions_of(response, form.count)]}
    return {
        "classifications": [
            {"classes": [{"label": each.label, "score": each.score} for each in row]}
            for row in classes_of(response, form.signature, form.count)
        ]
    }


def _encode_one(rpc: str, form: ExampleForm, response: InferResponse) -> GrpcAnswer:
    spec = spec_of(response.model, response.version, DEFAULT_SIGNATURE)
    result = _result(form, form.methods[0], response)
    return GrpcAnswer(serialize(message_of(f"{_MESSAGES[rpc]}Response"), model_spec=spec, result=result))


def _encode_several(form: ExampleForm, response: InferResponse) -> GrpcAnswer:
    spec = spec_of(response.model, response.version, DEFAULT_SIGNATURE)
    fields = {CLASSIFY_METHOD: "classification_result", REGRESS_METHOD: "regression_result"}
    results = [
        {"model_spec": spec, fields[method]: _result(form, method, response)} for method in form.methods
    ]
    return GrpcAnswer(serialize(message_of("MultiInferenceResponse"), results=results))


def _encoder(rpc: str) -> Any:
    return lambda form, response: _encode_one(rpc, form, response)


_ACTIONS: dict[str, Action[GrpcAnswer]] = {
    "Classify": Action(Operation.INFER, _encoder("Classify"), _decode),
    "Regress": Action(Operation.INFER, _encoder("Regress"), _decode),
    "MultiInference": Action(Operation.INFER, _encode_several, _decode),
}
