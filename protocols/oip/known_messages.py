"""Caches of what gRPC messages have besides their tensors' bytes: names, datatypes, shapes.

Requests of a model repeat it, and so do its answers. An entry depends on that data alone; number and size are
bounded. Messages with an id, parameters, shared memory or typed contents are not cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from interlingua.protocols.oip.grpc_messages import unwritable
from interlingua.protocols.protobuf_wire import interleaved, leads
from interlingua.protocols.repeated import LONGEST, MOST, Described, repeated_form, repeated_outputs
from interlingua.protocols.repeated_messages import RepeatedMessages
from interlingua.protocols.wire import Buffer
from interlingua.schemas import Datatype, InferRequest, InferResponse, Tensor
from interlingua.schemas.datatypes import DATATYPES
from interlingua.schemas.oip import MESSAGES

_REQUEST: Any = MESSAGES["inference.ModelInferRequest"]
_RESPONSE: Any = MESSAGES["inference.ModelInferResponse"]


def request_pieces(request: InferRequest) -> list[Buffer] | None:
    """The message of ``request`` in pieces, large ones uncopied; None for a request of another form. Raises
    UNREPRESENTABLE, TOO_LARGE."""
    form = repeated_form(request)
    if form is None:
        return None
    inputs, outputs, contents = form
    return interleaved(_request_leads(request.model, request.version, inputs, outputs), contents)


@lru_cache(MOST)
def _request_leads(
    model: str, version: str, inputs: tuple[Described, ...], outputs: tuple[str, ...] | None
) -> Sequence[bytes]:
    try:
        head = _REQUEST(model_name=model, model_version=version)
        for name, datatype, shape, _ in inputs:
            head.inputs.add(name=name, datatype=datatype.value, shape=shape)
        for name in outputs or ():
            head.outputs.add(name=name)
        rest = head.SerializeToString()
    except ValueError as error:
        raise unwritable(error) from error
    return leads(rest, _REQUEST.RAW_INPUT_CONTENTS_FIELD_NUMBER, [size for *_, size in inputs])


def answer_pieces(response: InferResponse) -> list[Buffer] | None:
    """The message of ``response`` without an id, as :func:`request_pieces`. Raises as that."""
    form = repeated_outputs(response)
    if form is None:
        return None
    outputs, contents = form
    return interleaved(_answer_leads(response.model, response.version, outputs), contents)


@lru_cache(MOST)
def _answer_leads(model: str, version: str, outputs: tuple[Described, ...]) -> Sequence[bytes]:
    try:
        head = _RESPONSE(model_name=model, model_version=version)
        for name, datatype, shape, _ in outputs:
            head.outputs.add(name=name, datatype=datatype.value, shape=shape)
        rest = head.SerializeToString()
    except ValueError as error:
        raise unwritable(error) from error
    return leads(rest, _RESPONSE.RAW_OUTPUT_CONTENTS_FIELD_NUMBER, [size for *_, size in outputs])


class _Output(NamedTuple):
    name: str
    datatype: Datatype
    shape: tuple[int, ...]


class _Answer(NamedTuple):
    model: str
    version: str
    outputs: tuple[_Output, ...]


class KnownAnswers:
    """Recent answers with raw contents, by their bytes without these, and with the places of these contents
    once they have repeated. Not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[bytes, _Answer] = {}
        self._repeated: RepeatedMessages[_Answer] = RepeatedMessages()

    def repeated(self, message: Buffer) -> InferResponse | None:
        """The response in ``message`` if it repeats another one."""
        found = self._repeated.find(message)
        if found is None:
            return None
        known = found.facts
        # of the sizes that have been checked
        outputs = [
            Tensor(name, datatype, shape, raw)
            for (name, datatype, shape), raw in zip(known.outputs, found.contents(message), strict=True)
        ]
        return InferResponse(known.model, tuple(outputs), known.version)

    def response(self, message: Buffer, rest: bytes, raws: Sequence[memoryview]) -> InferResponse | None:
        """The response with the contents ``raws`` if the ``rest`` of the message is known. Raises
        INVALID_TENSOR."""
        known = self._known.get(rest)
        if known is None or len(known.outputs) != len(raws):
            return None
        outputs = [
            Tensor.checked(name, datatype, shape, raw)
            for (name, datatype, shape), raw in zip(known.outputs, raws, strict=True)
        ]
        if all(output.datatype is not Datatype.BYTES for output in outputs):
            self._repeated.remember(message, raws, known)
        return InferResponse(known.model, tuple(outputs), known.version)

    def remember(self, rest: bytes, head: Any) -> None:
        """Cache ``head``, the message parsed from ``rest``, unless it is unique."""
        if head.id or head.parameters or len(rest) > LONGEST:
            return
        outputs = []
        for tensor in head.outputs:
            datatype = DATATYPES.get(tensor.datatype)
            if datatype is None or tensor.parameters:
                return
            outputs.append(_Output(tensor.name, datatype, tuple(tensor.shape)))
        if len(self._known) >= MOST:
            del self._known[next(iter(self._known))]
        self._known[rest] = _Answer(head.model_name, head.model_version, tuple(outputs))
