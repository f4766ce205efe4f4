"""Targets for both ends of every dialect: requests as a listener reads them, replies as an upstream's client
reads them.

What a codec decodes it must encode again, and decode to the same; only a refusal by name
(``InferenceError``) may prevent it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from interlingua.protocols.dialect import Binding
from interlingua.protocols.path_table import PathTable
from interlingua.protocols.reflection import Reflection
from interlingua.protocols.registry import bindings
from interlingua.protocols.wire import HttpReply
from interlingua.schemas import (
    Context,
    Datatype,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelRef,
    Operation,
    Signature,
    Tensor,
    TensorSpec,
    pack_bytes,
)
from interlingua.schemas.status import UNNAMED_VERSION
from interlingua.translator.conversion import codec
from tests.fuzz.forms import FORMS, NoMessageError
from tests.fuzz.recordings import exchanges
from tests.fuzz.target import Target

SPECS = (
    TensorSpec("INPUT0", Datatype.FP32, (-1, 2)),
    TensorSpec("INPUT1", Datatype.INT32, (-1,)),
    TensorSpec("TEXT", Datatype.BYTES, (-1,), labels=("cat", "dog")),
)
SIGNATURE = Signature(SPECS, SPECS)
BATCHED = Signature(
    (TensorSpec("DATA", Datatype.FP32, (-1, 4)),), (TensorSpec("PROB", Datatype.FP32, (-1, 4)),), 8
)
SIGNATURES = (SIGNATURE, BATCHED, codec.NOTHING)

SAMPLE = InferRequest(
    "model",
    (
        Tensor("INPUT0", Datatype.FP32, (1, 2), memoryview(bytes(range(8)))),
        Tensor("INPUT1", Datatype.INT32, (2,), memoryview(bytes(8))),
        Tensor("TEXT", Datatype.BYTES, (2,), memoryview(pack_bytes((b"cat", b"")))),
    ),
)
ECHO = InferResponse("model", SAMPLE.inputs, "1")
_INFERENCE = (Operation.INFER, Operation.INFER_STREAM)
_OF_SERVERS = (
    Operation.LIVE,
    Operation.READY,
    Operation.SERVER_METADATA,
    Operation.REPOSITORY_INDEX,
    Operation.SET_ONLINE,
    Operation.SET_OFFLINE,
)


# --- requests, as a listener reads them


def _endpoint(binding: Binding, request: Any) -> Any:
    """The endpoint for ``request``, as the pipeline finds it."""
    if binding.transport == "http":
        methods, request.params = _paths(binding).find(request.path)
        request.endpoint = methods.get(request.method) or methods.get("*")
        return request.endpoint
    if binding.transport == "tcp":
        return binding.endpoints[0]
    return next((each for each in binding.endpoints if each.method == request.method), None)


@functools.cache
def _paths(binding: Binding) -> PathTable:
    return PathTable(each for each in binding.endpoints if each.path != "*")


def _requests(binding: Binding, read: Callable[[bytes], Any]) -> Callable[[bytes], None]:
    served = [binding, *(each for each in binding.flavors.values() if each.endpoints != binding.endpoints)]

    def run(data: bytes) -> None:
        for flavored in served:
            for signature in SIGNATURES:
                try:
                    request = read(data)
                except NoMessageError:
                    return
                endpoint = _endpoint(flavored, request)
                if endpoint is None:
                    continue
                decoded = _served(endpoint, request, signature)
                if decoded is not None and flavored is binding:
                    _round_trip(binding, decoded, signature)

    return run


def _served(endpoint: Any, request: Any, signature: Signature) -> InferRequest | None:
    """Decode ``request`` and answer it with its own tensors. Returns the request if it is inference."""
    request.context = Context(server_id="inference:0", request_number=1)
    opened = None
    try:
        opened = endpoint.open(request)
        if opened.action.operation not in _INFERENCE:
            return None
        decoded, form = opened.action.decode(opened, signature)
        decoded.model = decoded.model or "model"
        opened.action.encode(form, InferResponse(decoded.model, _echoed(decoded), "1"))
    except InferenceError as error:
        endpoint.fail(request, opened, error)
        return None
    return decoded if opened.action.operation is Operation.INFER else None  # type: ignore[no-any-return]


def _echoed(request: InferRequest) -> tuple[Tensor, ...]:
    """The first input as every output that ``request`` names, or all inputs: a model answers what is requested."""
    if request.outputs is None or not request.inputs:
        return request.inputs
    return tuple(replace(request.inputs[0], name=output.name) for output in request.outputs)


def _round_trip(binding: Binding, decoded: InferRequest, signature: Signature) -> None:
    """``decode(encode(decoded)) == decoded``, where our client can send it."""
    if not decoded.inputs:  # only some endpoints of grps accept such a message
        return
    try:
        call, _ = codec.encode_request(binding, decoded, signature)
    except InferenceError:
        return
    again = codec.decode_request(binding, codec.sent(binding, call), signature).request
    assert again == replace(decoded, model=again.model), f"{decoded}\nbecomes\n{again}"


# --- replies, as the client of an upstream reads them


def _calls(binding: Binding) -> dict[str, Callable[[], tuple[Any, Any]]]:
    """By name: a call, and the form that its ``decode`` needs; of each operation and each flavor."""
    found: dict[str, Callable[[], tuple[Any, Any]]] = {}
    for flavor, calls in {"": binding.calls, **binding.call_flavors}.items():
        for operation, call in calls.items():
            argument = _argument(operation, binding.capability.many_models)

            def made(call: Any = call, argument: Any = argument) -> tuple[Any, Any]:
                try:
                    return call, call.encode(argument, SIGNATURE)[1]
                except InferenceError:
                    # by row, all inputs have the same first dimension
                    one = replace(argument, inputs=argument.inputs[:1])
                    return call, call.encode(one, SIGNATURE)[1]

            found[f"{operation.value} {flavor}".strip()] = made
    return found


def _argument(operation: Operation, many_models: bool) -> Any:
    if operation in _INFERENCE:
        return SAMPLE if many_models else replace(SAMPLE, model="")
    if operation in _OF_SERVERS:
        return None
    return ModelRef("model", "1") if many_models else ModelRef("")


def _replies(binding: Binding) -> Callable[[bytes], None]:
    calls = _calls(binding)
    read = FORMS[binding.transport].read_reply

    def run(data: bytes) -> None:
        name, newline, message = data.partition(b"\n")
        made = calls.get(name.decode("latin-1"))
        if made is None or not newline:
            return
        try:
            reply = read(message)
        except NoMessageError:
            return
        call, form = made()
        try:
            if call.shared is not None:
                form(call.shared.read(reply))
            elif name.startswith(Operation.INFER_STREAM.value.encode()):
                for piece in _pieces(reply):
                    list(call.decode(form, piece))
            else:
                decoded = call.decode(form, reply)
                if name == Operation.INFER.value.encode():
                    _response_round_trip(binding, decoded)
        except InferenceError:
            pass

    return run


def _pieces(reply: Any) -> list[Any]:
    """A streamed body in two pieces and its end; other transports deliver whole messages."""
    if not isinstance(reply, HttpReply):
        return [reply]
    middle = len(reply.body) // 2
    return [replace(reply, body=part) for part in (reply.body[:middle], reply.body[middle:], b"")]


def _response_round_trip(binding: Binding, response: InferResponse) -> None:
    """``decode(encode(response)) == response``, where our server can send it."""
    call, form = codec.encode_request(binding, replace(SAMPLE, id=response.id), SIGNATURE)
    request = codec.decode_request(binding, codec.sent(binding, call), SIGNATURE)
    try:
        answer = codec.encode_answer(binding, request, response)
    except InferenceError:
        return
    again = codec.decode_answer(binding, form, codec.received(binding, answer))
    if not response.version and again.version == UNNAMED_VERSION:  # TRTIS states one in each answer
        response = replace(response, version=UNNAMED_VERSION)
    # the server writes the outputs in the order of the request
    assert _by_name(again) == _by_name(response), f"{response}\nbecomes\n{again}"


def _by_name(response: InferResponse) -> InferResponse:
    return replace(response, outputs=tuple(sorted(response.outputs, key=lambda output: output.name)))


# --- seeds


def _request_seeds(binding: Binding) -> Iterator[bytes]:
    form = FORMS[binding.transport]
    yield form.write_request(codec.sent(binding, codec.encode_request(binding, SAMPLE, SIGNATURE)[0]))
    for request, _ in exchanges(binding.name):
        yield form.write_request(request)


def _reply_seeds(binding: Binding) -> Iterator[bytes]:
    form, names = FORMS[binding.transport], _calls(binding)
    request = codec.decode_request(
        binding, codec.sent(binding, codec.encode_request(binding, SAMPLE, SIGNATURE)[0]), SIGNATURE
    )
    echo = codec.received(binding, codec.encode_answer(binding, request, ECHO))
    yield b"\n".join((Operation.INFER.value.encode(), form.write_reply(echo)))
    for asked, reply in exchanges(binding.name):
        operation = _operation(binding, asked)
        for name in names:
            if reply is not None and name.split(" ")[0] == operation:
                yield b"\n".join((name.encode(), form.write_reply(reply)))


def _operation(binding: Binding, request: Any) -> str:
    """The operation of a recorded request, as a client calls it."""
    endpoint = _endpoint(binding, request)
    try:
        operation = endpoint.open(request).action.operation if endpoint is not None else Operation.INFER
    except InferenceError:
        operation = Operation.INFER
    return _AS_CALLED.get(operation, operation).value  # type: ignore[no-any-return]


_AS_CALLED = {Operation.STATUS: Operation.SERVER_METADATA, Operation.DEPLOYMENT: Operation.MODEL_METADATA}
"""Operations of listeners that clients call by another one."""


def _targets(binding: Binding) -> Iterator[Target]:
    requests = _requests(binding, FORMS[binding.transport].read_request)
    name = binding.name.replace("/", "-")
    yield Target(f"{name}-request", requests, lambda: _request_seeds(binding))
    yield Target(f"{name}-reply", _replies(binding), lambda: _reply_seeds(binding))


# --- reflection, which a gRPC listener answers for every dialect

_REFLECTION = Reflection(contract for binding in bindings().values() for contract in binding.contracts)


def _reflection_seeds() -> Iterator[bytes]:
    # list_services, file_by_filename, file_containing_symbol and all_extension_numbers_of_type
    yield from (b"\x3a\0", b"\x1a\6grpc.p", b"\x22\x20inference.GRPCInferenceService/Ready", b"\x32\1x")


TARGETS = (
    *(target for binding in bindings().values() for target in _targets(binding)),
    Target("grpc-reflection", _REFLECTION.answer, _reflection_seeds),
)
