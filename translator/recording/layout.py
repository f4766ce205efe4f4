"""The layout of a record: a JSON header, then the tensors' data.

The header lists each tensor's name, datatype, shape and size; the data follow in the same order, row-major
and little-endian, BYTES packed. A redacted tensor has a digest in the header and no data. Readers ignore
members that they do not know."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson

from interlingua.protocols.wire import Buffer
from interlingua.schemas import (
    Context,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    RequestedOutput,
    SharedMemoryRef,
    Tensor,
)
from interlingua.schemas import Sequence as TensorSequence
from interlingua.schemas.datatypes import DATATYPES
from interlingua.translator.recording.record import ANSWER, MIRRORED, QUESTION, Place, Record, RecordedAnswer

Header = dict[str, Any]

_NONFINITE = "float"
"""The key for NaN and infinities, which JSON lacks."""

_BYTES = "hex"
"""The key for bytes that are not text."""


class DamagedError(ValueError):
    """The bytes are not a record; the message says why."""


def pack(record: Record) -> tuple[bytes, list[Buffer]]:
    """The header of a record, and the data of its tensors. Raises ``ValueError`` for invalid UTF-8."""
    data: list[Buffer] = []

    def describe(part: str, number: int, tensors: Iterable[Tensor]) -> list[Header]:
        described = []
        for position, tensor in enumerate(tensors):
            digest = record.redacted.get((part, number, position))
            entry: Header = {"name": tensor.name, "datatype": tensor.datatype.value, "shape": tensor.shape}
            if digest is None:
                entry["bytes"] = tensor.nbytes
                data.append(tensor.view)
            else:
                entry["redacted"] = digest
            described.append(entry)
        return described

    header = {
        "began_unix_ns": record.began_unix_ns,
        "dialect": record.dialect,
        "listener": record.listener,
        "headers": dict(record.headers),
        "left_out": record.dropped_parameters,
        "streamed": record.streamed,
        "max_batch_size": record.max_batch_size,
        QUESTION: _request(record.request, describe),
        ANSWER: _answer(record.answer, ANSWER, describe),
    }
    if record.mirrored is not None:
        header[MIRRORED] = _answer(record.mirrored, MIRRORED, describe)
    try:
        return orjson.dumps(header, default=str, option=orjson.OPT_APPEND_NEWLINE), data
    except TypeError as error:
        raise ValueError(f"request not recordable: {error}") from error


def unpack(header: bytes, data: memoryview) -> Record:
    """The record of a header and its data; the tensors are views over ``data``. Raises ``DamagedError``."""
    reader = _Reader(data)
    try:
        stated = orjson.loads(header)
        question, mirrored = stated[QUESTION], stated.get(MIRRORED)
        record = Record(
            stated["began_unix_ns"],
            _read_request(question, reader.tensors(QUESTION, 0, question["inputs"])),
            stated["dialect"],
            stated["listener"],
            _read_answer(stated[ANSWER], ANSWER, reader),
            _read_answer(mirrored, MIRRORED, reader) if mirrored is not None else None,
            stated["headers"],
            reader.redacted,
            tuple(stated["left_out"]),
            stated["streamed"],
            # absent in older files
            stated.get("max_batch_size"),
        )
    except InferenceError as error:
        raise DamagedError(error.message) from error
    except KeyError as error:
        raise DamagedError(f"its header lacks {error}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise DamagedError(f"its header is invalid: {error}") from error
    if reader.at != len(data):
        raise DamagedError(f"it has {len(data)} bytes of tensors, its header lists {reader.at}")
    return record


class _Reader:
    """Reads the data after a header, in order."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.at = 0
        self.redacted: dict[Place, str] = {}

    def tensors(self, part: str, number: int, described: Iterable[Header]) -> tuple[Tensor, ...]:
        return tuple(
            self._tensor((part, number, position), entry) for position, entry in enumerate(described)
        )

    def _tensor(self, place: Place, entry: Header) -> Tensor:
        name, datatype, shape = entry["name"], DATATYPES[entry["datatype"]], tuple(entry["shape"])
        if "redacted" in entry:
            self.redacted[place] = entry["redacted"]
            return Tensor(name, datatype, shape, memoryview(b""))
        start, self.at = self.at, self.at + entry["bytes"]
        return Tensor.checked(name, datatype, shape, self._data[start : self.at])


Describe = Callable[[str, int, Sequence[Tensor]], list[Header]]

# members of the header with the values of attributes of the same name
_REQUEST = ("model", "version", "id", "priority", "timeout_us")
_SEQUENCE = ("id", "start", "end")
_PLACEMENT = ("region", "offset", "size")
_RESPONSE = ("model", "version", "id", "final")
_ERROR = ("message", "origin", "retryable")


def _members(value: object, names: Iterable[str]) -> Header:
    return {name: getattr(value, name) for name in names}


def _request(request: InferRequest, describe: Describe) -> Header:
    context, sequence = request.context, request.sequence
    return {
        **_members(request, _REQUEST),
        "parameters": _parameters(request.parameters),
        "sequence": sequence and _members(sequence, _SEQUENCE),
        "inputs": describe(QUESTION, 0, request.inputs),
        "outputs": None if request.outputs is None else [_requested(output) for output in request.outputs],
        "traceparent": context.traceparent,
        "tracestate": context.tracestate,
        "timings_ns": context.timings,
    }


def _read_request(stated: Header, inputs: tuple[Tensor, ...]) -> InferRequest:
    outputs, sequence = stated["outputs"], stated["sequence"]
    return InferRequest(
        **{name: stated[name] for name in _REQUEST},
        inputs=inputs,
        outputs=None if outputs is None else tuple(_read_requested(output) for output in outputs),
        parameters=_read_parameters(stated["parameters"]),
        sequence=TensorSequence(*(sequence[name] for name in _SEQUENCE)) if sequence else None,
        context=Context(
            traceparent=stated["traceparent"], tracestate=stated["tracestate"], timings=stated["timings_ns"]
        ),
    )


def _requested(output: RequestedOutput) -> Header:
    stated: Header = {
        "name": output.name,
        "classification": output.classification,
        "parameters": _parameters(output.parameters),
    }
    if (placement := output.placement) is not None:
        stated["placement"] = _members(placement, _PLACEMENT)
    return stated


def _read_requested(stated: Header) -> RequestedOutput:
    return RequestedOutput(
        stated["name"],
        stated["classification"],
        SharedMemoryRef(**stated["placement"]) if "placement" in stated else None,
        _read_parameters(stated["parameters"]),
    )


def _answer(answer: RecordedAnswer, part: str, describe: Describe) -> Header:
    return {
        "answered_by": answer.answered_by,
        "elapsed_ns": answer.elapsed_ns,
        "cut": answer.cut,
        "responses": [
            {
                **_members(response, _RESPONSE),
                "parameters": _parameters(response.parameters),
                "error": _error(response.error),
                "outputs": describe(part, number, response.outputs),
            }
            for number, response in enumerate(answer.responses)
        ],
        "error": _error(answer.error),
    }


def _read_answer(stated: Header, part: str, reader: _Reader) -> RecordedAnswer:
    responses = tuple(
        InferResponse(
            **{name: response[name] for name in _RESPONSE},
            outputs=reader.tensors(part, number, response["outputs"]),
            parameters=_read_parameters(response["parameters"]),
            error=_read_error(response["error"]),
        )
        for number, response in enumerate(stated["responses"])
    )
    # absent in older files
    cut = stated.get("cut", False)
    return RecordedAnswer(
        stated["answered_by"], responses, _read_error(stated["error"]), stated["elapsed_ns"], cut
    )


def _error(error: InferenceError | None) -> Header | None:
    if error is None:
        return None
    return {
        "code": error.code.name,
        **_members(error, _ERROR),
        "details": {key: str(value) for key, value in error.details.items()},
    }


def _read_error(stated: Header | None) -> InferenceError | None:
    if stated is None:
        return None
    members = {name: stated[name] for name in (*_ERROR, "details")}
    return InferenceError(ErrorCode[stated["code"]], **members)


def _parameters(parameters: Mapping[str, Any]) -> Header:
    return {key: _parameter(value) for key, value in parameters.items()}


def _parameter(value: Any) -> Any:
    if isinstance(value, bytes):
        return {_BYTES: value.hex()}
    return {_NONFINITE: repr(value)} if isinstance(value, float) and not math.isfinite(value) else value


def _read_parameters(stated: Header) -> Header:
    return {key: _read_parameter(value) for key, value in stated.items()}


def _read_parameter(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return bytes.fromhex(value[_BYTES]) if _BYTES in value else float(value[_NONFINITE])
