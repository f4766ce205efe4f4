"""Passthrough from GraphPipe to GraphPipe over the same transport: the data of tensors go on as they came.

A request is written again around its data, because most clients name neither inputs nor outputs and servers
may have another order: it has all of both by name, in the order of the signature, as every request to an
upstream does. An answer goes on as it
came if the caller requested all outputs in the order of the signature. Strings and BOOL, whose contents have
to be checked, and requests with a ``config`` go through ``codec``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from interlingua.protocols.dialect import Calls, Opened, Passthrough, PassthroughNames
from interlingua.protocols.graphpipe import client, codec
from interlingua.protocols.wire import Buffer, FramedAnswer, FramedReply, HttpAnswer, HttpReply
from interlingua.schemas import (
    Datatype,
    InferenceError,
    InferHeads,
    InferRequest,
    InferResponse,
    Operation,
    RequestedOutput,
    Signature,
    Tensor,
    TensorHead,
)

BINARY = (("content-type", "application/octet-stream"),)

_CHECKED = frozenset({Datatype.BYTES, Datatype.BOOL})
_PREFIX_BYTES = 4


def _heads(opened: Opened[Any], signature: Signature) -> InferHeads | None:
    message: codec.Message = opened.message
    try:
        request, names = codec.decode_request(message, signature)
    except InferenceError:
        return None
    if request.parameters or any(tensor.datatype in _CHECKED for tensor in request.inputs):
        return None
    message.read = request.inputs, names
    heads = [TensorHead(tensor.name, tensor.datatype, tensor.shape) for tensor in request.inputs]
    return InferHeads(tuple(heads), tuple(dict.fromkeys(names or ())))


@dataclass(frozen=True, slots=True)
class _Over:
    """``calls`` of a transport; ``whole`` is an answer with the message of a reply."""

    calls: Calls
    whole: Callable[[Any], Any]

    def call(self, opened: Opened[Any], names: PassthroughNames) -> Any:
        inputs, _ = opened.message.read
        given, order = {tensor.name: tensor for tensor in inputs}, names.signature.input_names
        if not names.order or given.keys() != order.keys():
            return None  # decoding judges whether an input may be omitted
        inputs = tuple([given[name] for name in order])
        outputs = tuple([RequestedOutput(names.outputs.get(name, name)) for name in names.order])
        request = InferRequest(names.remote, _renamed(inputs, names.inputs), outputs, names.version)
        try:
            return self.calls[Operation.INFER].encode(request, None)[0]
        except InferenceError:
            return None  # decoding refuses it with the name of the upstream

    def answer(
        self, opened: Opened[Any], names: PassthroughNames, reply: Any
    ) -> tuple[Any, str] | InferResponse:
        _, requested = opened.message.read
        remote = _remote(names)
        pending = client.Pending(names.remote, names.version, tuple(remote.output_names), remote)
        response: InferResponse = self.calls[Operation.INFER].decode(pending, reply)
        if requested not in (None, names.order) or any(
            each.datatype in _CHECKED for each in response.outputs
        ):
            return response
        return self.whole(reply), names.version


def _renamed(inputs: tuple[Tensor, ...], names: Mapping[str, str]) -> tuple[Tensor, ...]:
    return tuple([each.renamed(names.get(each.name, each.name)) for each in inputs]) if names else inputs


def _remote(names: PassthroughNames) -> Signature:
    """The signature with outputs in the upstream's names."""
    local, renamed = names.signature, names.outputs
    if not renamed:
        return local
    outputs = tuple([replace(spec, name=renamed.get(spec.name, spec.name)) for spec in local.outputs])
    return replace(local, outputs=outputs)


def _body(reply: HttpReply) -> HttpAnswer:
    return HttpAnswer(200, BINARY, [reply.body])


def _frame(reply: FramedReply) -> FramedAnswer:
    message: Buffer = reply.message
    return FramedAnswer([len(message).to_bytes(_PREFIX_BYTES, "little"), message])


def _passing(over: _Over) -> tuple[Passthrough[Any, Any, Any], Calls]:
    """The passthrough, and the calls with it."""
    passthrough: Passthrough[Any, Any, Any] = Passthrough(_heads, over.call, over.answer)
    infer = replace(over.calls[Operation.INFER], passthrough=passthrough)
    return passthrough, {**over.calls, Operation.INFER: infer}


HTTP_PASSTHROUGH, HTTP_CALLS = _passing(_Over(client.HTTP_CALLS, _body))
TCP_PASSTHROUGH, TCP_CALLS = _passing(_Over(client.TCP_CALLS, _frame))
