"""Checks an ONNX file without an engine: whether it is one, and whether all its outputs are tensors.

Reads the outline of the message, never the weights. Numbers of fields are those of onnx.proto.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.message import DecodeError

from interlingua.protocols.protobuf_wire import LENGTH_DELIMITED, fields, read_fields
from interlingua.runtime.model_config.config import LoadError, ModelConfig

MAP_ADVICE = (
    "a classifier of skl2onnx gives its probabilities that way unless it is converted with "
    "options={'zipmap': False}"
)
"""The common cause of an output that is a sequence of maps."""

_GRAPH, _OUTPUT, _NAME, _TYPE = 7, 12, 1, 2
_KINDS = {4: "a sequence", 5: "a map", 9: "an optional value"}
"""Kinds of outputs that are not tensors, by their field in TypeProto."""

_ORT = b"ORTM"
"""The magic of ONNX Runtime's own format, after its first four bytes."""


def examine(path: Path, config: ModelConfig) -> None:
    """Raise ``LoadError`` if the file at ``path`` is not an ONNX model, or has outputs that cannot be
    served."""
    if not path.stat().st_size:
        raise LoadError(f"{path}: is empty")
    with path.open("rb") as file:
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    if data[4:8] == _ORT:
        return
    try:
        graphs = list(_inside(data, _GRAPH))
    except DecodeError as error:
        raise LoadError(f"{path}: is no ONNX model, or damaged: {error}") from error
    if not graphs:
        raise LoadError(f"{path}: is no ONNX model: there is no graph in it")
    for name, kind in _other_outputs(graphs[-1]):
        raise LoadError(f"{path}: output '{name}' is {kind}, which cannot be served; {MAP_ADVICE}")


def _other_outputs(graph: memoryview) -> Iterator[tuple[str, str]]:
    """The outputs that are not tensors, with their kind. Errors are left to the engine."""
    try:
        for output in _inside(graph, _OUTPUT):
            output_fields = read_fields(output)
            name, declared = output_fields.get(_NAME), output_fields.get(_TYPE)
            if isinstance(name, memoryview) and isinstance(declared, memoryview):
                for kind in _KINDS.keys() & read_fields(declared).keys():
                    yield bytes(name).decode(errors="replace"), _KINDS[kind]
    except DecodeError:
        return


def _inside(message: memoryview, number: int) -> Iterator[memoryview]:
    """The contents of every field ``number`` of ``message``. Raises ``DecodeError``."""
    for found, kind, value in fields(message):
        if found == number and kind == LENGTH_DELIMITED and isinstance(value, memoryview):
            yield value
