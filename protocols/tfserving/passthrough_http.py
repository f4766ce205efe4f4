"""Passthrough from REST to REST: the text of numbers goes to the upstream, and back, as it came.

Data in JSON must be read to be checked, so what this saves is to write them again. Text passes that every
reader understands alike: no strings, no key twice, no fractions if the model has integers. Everything else,
and long documents, go through ``codec_http``, as do renamed tensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from interlingua.protocols.dialect import Opened, Passthrough, PassthroughNames
from interlingua.protocols.json_document import LONG_BYTES, is_long
from interlingua.protocols.tfserving import client_http
from interlingua.protocols.tfserving.client_http import checked, path_of
from interlingua.protocols.tfserving.codec import DEFAULT_SIGNATURE
from interlingua.protocols.tfserving.codec_http import (
    INPUTS,
    INSTANCES,
    JSON_HEADERS,
    OUTPUTS,
    PREDICTIONS,
    PredictForm,
    read_answer,
    read_request,
)
from interlingua.protocols.wire import Buffer, HttpAnswer, HttpCall, HttpReply, HttpRequest
from interlingua.schemas import (
    Datatype,
    InferenceError,
    InferHeads,
    InferRequest,
    InferResponse,
    Signature,
    Tensor,
    TensorHead,
)

_MEMBERS = frozenset({INSTANCES, INPUTS, "signature_name"})
_HEADERS: Mapping[str, str] = {"Content-Type": "application/json"}

_FRACTION = re.compile(rb"[0-9][.eE]")
"""A number that some readers take for a float."""


def _heads(opened: Opened[HttpAnswer], signature: Signature) -> InferHeads | None:
    message: HttpRequest = opened.message
    body = message.body
    if message.rest is not None or "content-encoding" in message.headers or _is_long(body):
        return None
    try:
        inputs, form, document = read_request(body, signature)
    except InferenceError:
        return None
    request = InferRequest(opened.model, inputs, None, opened.version, context=message.context)
    opened.argument = signature, request, form
    stated = document.get("signature_name", DEFAULT_SIGNATURE)
    if stated != DEFAULT_SIGNATURE or not document.keys() <= _MEMBERS:
        return None
    value = document.get(INPUTS)
    texts = len(document) + ("signature_name" in document) + (len(value) if type(value) is dict else 0)
    if not _is_plain(body, inputs, texts):
        return None
    return InferHeads(tuple([TensorHead(each.name, each.datatype, each.shape) for each in inputs]), ())


def _is_long(body: Buffer) -> bool:
    return len(body) > LONG_BYTES and is_long(body)


def _is_plain(body: Buffer, tensors: Iterable[Tensor], texts: int) -> bool:
    """Whether every reader understands ``body`` alike, which has ``tensors`` and so many ``texts``."""
    plain = bytes(body)
    kinds = {each.datatype.dtype.kind for each in tensors if each.datatype is not Datatype.BYTES}
    if any(each.datatype is Datatype.BYTES for each in tensors) or plain.count(b'"') != 2 * texts:
        return False
    # an escape in a name, a byte order mark
    if b"\\" in plain or plain[:1] == b"\xef":
        return False
    return not (kinds & {"i", "u"} and _FRACTION.search(plain))


def _call(opened: Opened[HttpAnswer], names: PassthroughNames) -> HttpCall | None:
    if names.inputs or names.outputs:
        return None
    try:
        path = path_of(names.remote, names.version)
    except InferenceError:
        return None  # decoding refuses it with the name of the upstream
    return HttpCall("POST", f"{path}:predict", headers=_HEADERS, parts=[opened.message.body])


def _answer(
    opened: Opened[HttpAnswer], names: PassthroughNames, reply: HttpReply
) -> tuple[HttpAnswer, str] | InferResponse:
    form: PredictForm = opened.argument[2]
    if reply.status != 200 or _is_long(reply.body):
        response: InferResponse = client_http.PREDICT_CALL.decode((names.remote, names.signature), reply)
        return response
    outputs, key, named = checked(reply, read_answer, reply.body, names.signature)
    texts = 1 + (len(outputs) if named else 0)
    usual = (
        key == (PREDICTIONS if form.by_row else OUTPUTS)
        and named == form.named
        and not (named and form.by_row)
        and tuple([each.name for each in outputs]) == names.order
        and _is_plain(reply.body, outputs, texts)
    )
    if usual and _fits_form(form, outputs):
        return HttpAnswer(200, JSON_HEADERS, [reply.body]), ""
    return InferResponse(names.remote, outputs)


def _fits_form(form: PredictForm, outputs: tuple[Tensor, ...]) -> bool:
    """Whether the codec writes ``outputs`` like this: no scalar by row."""
    return not form.by_row or all(each.shape for each in outputs)


PASSTHROUGH: Passthrough[HttpCall, HttpAnswer, HttpReply] = Passthrough(_heads, _call, _answer)

PREDICT_CALL: Any = replace(client_http.PREDICT_CALL, passthrough=PASSTHROUGH)
