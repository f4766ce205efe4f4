"""One request or one answer in the form of another dialect, and what became of each part.

The verdicts are observed: the written message is read again as the other side would read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from interlingua.protocols.dialect import Binding
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    SharedMemoryRef,
    Signature,
    Tensor,
    TensorSpec,
    pack_bytes,
)
from interlingua.translator.conversion import raw
from interlingua.translator.conversion.codec import (
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
    received,
    sent,
)
from interlingua.translator.diff import Tolerance, compare_tensors
from interlingua.translator.fidelity.verdict import Outcome, Verdict
from interlingua.translator.recording.unknown import shown_signature

_UNKNOWN = Tensor.from_numpy("input", np.zeros(1, np.float32))
"""The input of an unknown request."""


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    verdict: Verdict

    def __str__(self) -> str:
        return f"{self.what}: {self.verdict}"


@dataclass(frozen=True, slots=True)
class Conversion:
    """The message in the other dialect, or the ``error`` if that cannot carry it."""

    message: raw.Call | raw.Answer | None
    findings: tuple[Finding, ...]
    error: InferenceError | None = None

    @property
    def outcome(self) -> Outcome:
        if self.message is None:
            return Outcome.REFUSED
        outcomes = {finding.verdict.outcome for finding in self.findings}
        worst = (Outcome.UNKNOWN, Outcome.DROPPED, Outcome.WIDENED)
        return next((each for each in worst if each in outcomes), Outcome.EXACT)


def read_request(
    source: Binding,
    data: bytes,
    signature: Signature | None = None,
    *,
    model: str = "",
    headers: Mapping[str, str] | None = None,
    path: str = "",
) -> InferRequest:
    """The request in ``data``, as a server of ``source`` reads it. ``model`` is the name of a model that the
    message does not name, or names together with the version. Raises ``InferenceError``."""
    like = encode_request(source, _guess(model, signature), signature)[0]
    form = raw.FORMS[source.transport]
    decoded = decode_request(source, form.read_request(data, like, headers or {}, path), signature)
    request = decoded.request
    request.version = request.version or decoded.opened.version
    if model and request.model.startswith(f"{model}-") and source.capability.joined_versions:
        request.version = request.model.removeprefix(f"{model}-")
        request.model = model
    request.model = request.model or model
    return request


def read_answer(
    source: Binding,
    data: bytes,
    request: InferRequest | None = None,
    signature: Signature | None = None,
    *,
    model: str = "",
    headers: Mapping[str, str] | None = None,
) -> InferResponse | InferenceError:
    """The answer in ``data``, as a client of ``source`` reads it after ``request``, or the error in it.
    Raises BAD_UPSTREAM for an invalid answer."""
    _, form = encode_request(source, request or _guess(model, signature), signature)
    reply = raw.FORMS[source.transport].read_answer(data, headers or {})
    try:
        return decode_answer(source, form, reply)
    except InferenceError as error:
        if error.code is ErrorCode.BAD_UPSTREAM:
            raise
        return error


def convert_request(
    request: InferRequest, to: Binding, signature: Signature | None = None, *, batch_known: bool = True
) -> Conversion:
    """``request`` as a client of ``to`` sends it. ``signature`` is the model's, if known; ``batch_known``
    whether its batch size is known."""
    known = signature or _shown(request)
    try:
        call, _ = encode_request(to, request, known)
        after = decode_request(to, sent(to, call), known)
    except InferenceError as error:
        alone = replace(request, outputs=None, parameters={}, sequence=None, version="", id="")
        findings = [
            Finding(f"input '{tensor.name}'", _alone(alone, tensor, to, known)) for tensor in request.inputs
        ]
        return Conversion(None, (*findings, *_of_all(findings, error, "request")), error)
    joined = after.request.model == f"{request.model}-{request.version}"
    if joined:
        after.request.model, after.request.version = request.model, request.version
    else:
        after.request.version = after.request.version or after.opened.version
    findings = [
        *_tensors("input", request.inputs, after.request.inputs, to),
        *_fields(request, after.request, ("model", "version", "id", "sequence", "priority", "timeout_us")),
        *_parameters("parameter", request.parameters, after.request.parameters),
        *_outputs(request, after.request),
        *_batch(request.inputs, to, batch_known and signature is not None),
    ]
    return Conversion(call, tuple(findings))


def convert_answer(
    response: InferResponse | InferenceError,
    to: Binding,
    request: InferRequest | None = None,
    signature: Signature | None = None,
    *,
    batch_known: bool = True,
) -> Conversion:
    """``response`` as a server of ``to`` answers ``request``, or a request for all outputs. For the others
    see :func:`convert_request`."""
    outputs = response.outputs if isinstance(response, InferResponse) else ()
    request = request or _guess("" if isinstance(response, InferenceError) else response.model, signature)
    known = signature or shown_signature(request.inputs, outputs)
    try:
        call, form = encode_request(to, request, known)
        question = decode_request(to, sent(to, call), known)
        answer = encode_answer(to, question, response)
        if isinstance(response, InferenceError):
            return Conversion(answer, (_error(response, to, form, answer),))
        after = decode_answer(to, form, received(to, answer))
    except InferenceError as error:
        findings = [Finding(f"output '{tensor.name}'", _declared(tensor, to)) for tensor in outputs]
        return Conversion(None, (*findings, *_of_all(findings, error, "answer")), error)
    findings = [
        *_tensors("output", response.outputs, after.outputs, to),
        *_fields(response, after, ("version", "id")),
        *_parameters("parameter", response.parameters, after.parameters),
        *_batch(response.outputs, to, batch_known and signature is not None),
    ]
    return Conversion(answer, tuple(findings))


def _batch(tensors: Sequence[Tensor], to: Binding, known: bool) -> Iterator[Finding]:
    """The doubt about the first dimension, if ``to`` carries batches outside of shapes."""
    if to.capability.folds_batch and not known and tensors and all(tensor.shape for tensor in tensors):
        note = "written without a batch; a model with max_batch_size refuses that"
        yield Finding("the batch", Verdict(Outcome.UNKNOWN, by=to.name, note=note))


def _guess(model: str, signature: Signature | None) -> InferRequest:
    inputs = [_blank(spec.name, spec.datatype, spec.shape) for spec in signature.inputs] if signature else []
    return InferRequest(model or "model", tuple(inputs) or (_UNKNOWN,))


def _shown(request: InferRequest) -> Signature:
    """The part of the model's signature that ``request`` shows; only the names of outputs."""
    names = [output.name for output in request.outputs or ()]
    outputs = tuple(TensorSpec(name, Datatype.FP32, (-1,)) for name in names)
    return replace(shown_signature(request.inputs), outputs=outputs)


def _blank(name: str, datatype: Datatype, shape: Sequence[int]) -> Tensor:
    sides = tuple(max(side, 1) if side else 0 for side in shape)
    count = int(np.prod(sides, dtype=np.int64))
    data = pack_bytes([b""] * count) if datatype is Datatype.BYTES else bytes(count * datatype.itemsize)
    return Tensor.checked(name, datatype, sides, data)


def _alone(request: InferRequest, tensor: Tensor, to: Binding, known: Signature) -> Verdict:
    """What becomes of one input alone, after the whole was refused."""
    spec = tuple(each for each in known.inputs if each.name == tensor.name)
    one = replace(known, inputs=spec)
    try:
        call, _ = encode_request(to, replace(request, inputs=(tensor,)), one)
        after = decode_request(to, sent(to, call), one).request
    except InferenceError as error:
        return _refused(error, to)
    return _verdict(tensor, after.inputs[0] if after.inputs else None, to)


def _of_all(findings: Sequence[Finding], error: InferenceError, what: str) -> Iterator[Finding]:
    """A finding for the refused whole, unless a tensor has one."""
    if not any(finding.verdict.outcome is Outcome.REFUSED for finding in findings):
        yield Finding(f"the {what}", Verdict(Outcome.REFUSED, code=error.code, note=error.message))


def _declared(tensor: Tensor, to: Binding) -> Verdict:
    capability = to.capability
    if not capability.carries(tensor.datatype):
        note = f"there is no {tensor.datatype.value}"
        return Verdict(Outcome.REFUSED, code=ErrorCode.UNREPRESENTABLE, by=to.name, note=note)
    wider = capability.widened.get(tensor.datatype)
    return Verdict(Outcome.WIDENED, wider, by=to.name) if wider else Verdict(Outcome.EXACT)


def _refused(error: InferenceError, to: Binding) -> Verdict:
    return Verdict(Outcome.REFUSED, code=error.code, by=to.name, note=error.message)


def _tensors(kind: str, before: Sequence[Tensor], after: Sequence[Tensor], to: Binding) -> Iterator[Finding]:
    named = {tensor.name: tensor for tensor in after}
    for place, tensor in enumerate(before):
        # a dialect without names keeps the order
        found = named.get(tensor.name, after[place] if place < len(after) else None)
        yield Finding(f"{kind} '{tensor.name}' {tensor.datatype.value}", _verdict(tensor, found, to))


def _verdict(tensor: Tensor, after: Tensor | None, to: Binding) -> Verdict:
    if after is None:
        return Verdict(Outcome.DROPPED, by=to.name)
    if isinstance(tensor.data, SharedMemoryRef):
        # a reference, without the bytes
        return Verdict(Outcome.CARRIED if after.data == tensor.data else Outcome.DROPPED, by=to.name)
    wider = to.capability.widened.get(tensor.datatype)
    same = after.datatype is tensor.datatype
    if same and after.shape == tensor.shape and bytes(after.view) == bytes(tensor.view):
        return Verdict(Outcome.WIDENED, wider, by=to.name) if wider else Verdict(Outcome.EXACT)
    if after.datatype is wider:
        return Verdict(Outcome.WIDENED, wider, by=to.name)
    difference = compare_tensors(tensor, after, Tolerance())
    if difference.fault is None:
        return Verdict(Outcome.DROPPED, by=to.name, note="the values are the same, which NaN it was is lost")
    note = f"{difference.fault.value}: {difference.actual} for {difference.expected}"
    return Verdict(Outcome.DROPPED, by=to.name, note=note)


def _fields(before: Any, after: Any, names: Sequence[str]) -> Iterator[Finding]:
    for name in names:
        value = getattr(before, name)
        if value:
            kept = getattr(after, name) == value
            what = f"{name} {value!r}" if isinstance(value, str | int) else f"{name} {value.id!r}"
            yield Finding(what, Verdict(Outcome.CARRIED if kept else Outcome.DROPPED))


def _parameters(what: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Finding]:
    for name, value in before.items():
        kept = name in after and after[name] == value and type(after[name]) is type(value)
        yield Finding(f"{what} '{name}'", Verdict(Outcome.CARRIED if kept else Outcome.DROPPED))


def _outputs(before: InferRequest, after: InferRequest) -> Iterator[Finding]:
    if before.outputs is None:
        if after.outputs == ():
            # the dialect names every output, and none is known
            yield Finding("all outputs", Verdict(Outcome.DROPPED, note="the signature has to name them"))
        return
    requested = {output.name: output for output in after.outputs or ()}
    for output in before.outputs:
        found = requested.get(output.name)
        verdict = Verdict(Outcome.CARRIED if found else Outcome.DROPPED)
        yield Finding(f"requested output '{output.name}'", verdict)
        if output.classification:
            # an upstream sends the raw output, which is ranked here
            kept = found is not None and found.classification == output.classification
            verdict = Verdict(Outcome.CARRIED if kept else Outcome.DROPPED)
            yield Finding(f"classification of '{output.name}'", verdict)
        if output.placement is not None:
            kept = found is not None and found.placement == output.placement
            verdict = Verdict(Outcome.CARRIED if kept else Outcome.DROPPED)
            yield Finding(f"'{output.name}' in shared memory", verdict)
        yield from _parameters(
            f"parameter of output '{output.name}'", output.parameters, found.parameters if found else {}
        )


def _error(error: InferenceError, to: Binding, form: Any, answer: raw.Answer) -> Finding:
    what = f"error {error.code.name}"
    try:
        decode_answer(to, form, received(to, answer))
    except InferenceError as after:
        if after.code is error.code:
            return Finding(what, Verdict(Outcome.CARRIED))
        return Finding(what, Verdict(Outcome.DROPPED, code=after.code, by=to.name))
    return Finding(what, Verdict(Outcome.DROPPED, by=to.name, note="it is read as an answer"))
