"""Redaction of recordings: the data of some tensors, the values of some parameters, most headers."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import orjson

from interlingua.protocols.registry import DIALECTS
from interlingua.schemas import Datatype, Parameter, Tensor, pack_bytes
from interlingua.translator.recording.record import ANSWER, MIRRORED, QUESTION, Place, Record, RecordedAnswer

_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Redaction:
    """Globs of tensors and parameters to redact, and of headers to keep (in lower case)."""

    tensors: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()

    def covers(self, tensor: str) -> bool:
        """Whether the data of a tensor of that name is redacted."""
        return _any(tensor, self.tensors)

    def apply(self, record: Record) -> Record:
        """``record`` redacted: digests of tensors and names of parameters stay."""
        headers = record.request.context.headers
        kept = {
            name.lower(): headers[name]
            for name in headers
            if self.headers and _any(name.lower(), self.headers)
        }
        record = self._of_a_whole_request(replace(record, headers=kept))
        if self.tensors:
            record = replace(record, redacted=dict(self._digests(record)))
        return self._without_parameters(record) if self.parameters else record

    def _of_a_whole_request(self, record: Record) -> Record:
        """Redact headers in inputs, too: some models get the HTTP request as it came."""
        dialect = DIALECTS.get(record.dialect)
        names = dialect.manifest.header_inputs if dialect is not None else ()
        if not any(each.name in names for each in record.request.inputs):
            return record
        inputs = tuple([self._shown(each) if each.name in names else each for each in record.request.inputs])
        return replace(record, request=replace(record.request, inputs=inputs))

    def _shown(self, tensor: Tensor) -> Tensor:
        if tensor.datatype is not Datatype.BYTES or math.prod(tensor.shape) != 1:
            return tensor
        try:
            stated = orjson.loads(tensor.elements()[0])
        except ValueError:
            return tensor
        if not isinstance(stated, dict):
            return tensor
        shown = {name: value for name, value in stated.items() if _any(name.lower(), self.headers)}
        return Tensor.checked(tensor.name, Datatype.BYTES, tensor.shape, pack_bytes([orjson.dumps(shown)]))

    def _digests(self, record: Record) -> Iterator[tuple[Place, str]]:
        for part, number, tensors in _messages(record):
            for position, tensor in enumerate(tensors):
                if _any(tensor.name, self.tensors):
                    yield (part, number, position), digest(tensor)

    def _without_parameters(self, record: Record) -> Record:
        names: dict[str, None] = {}

        def remaining(parameters: Mapping[str, Parameter]) -> Mapping[str, Parameter]:
            hidden = [name for name in parameters if _any(name, self.parameters)]
            names.update(dict.fromkeys(hidden))
            return {name: value for name, value in parameters.items() if name not in hidden}

        def without(message: Any) -> Any:
            return replace(message, parameters=remaining(message.parameters))

        def of_answer(answer: RecordedAnswer) -> RecordedAnswer:
            return replace(answer, responses=tuple(map(without, answer.responses)))

        request = without(record.request)
        request.outputs = request.outputs and tuple(map(without, request.outputs))
        record = replace(
            record,
            request=request,
            answer=of_answer(record.answer),
            mirrored=record.mirrored and of_answer(record.mirrored),
        )
        return replace(record, dropped_parameters=tuple(names))


def digest(tensor: Tensor) -> str:
    """A hash of the data of ``tensor``, in hexadecimal. Few or short values can be guessed from it."""
    return hashlib.blake2b(tensor.view, digest_size=_DIGEST_BYTES).hexdigest()


def _messages(record: Record) -> Iterator[tuple[str, int, tuple[Tensor, ...]]]:
    yield QUESTION, 0, record.request.inputs
    for part, answer in ((ANSWER, record.answer), (MIRRORED, record.mirrored)):
        for number, response in enumerate(answer.responses if answer else ()):
            yield part, number, response.outputs


def _any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
