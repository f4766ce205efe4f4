"""Checks an ONNX file without an engine: whether it is one, whether all its outputs are tensors, and whether
the shapes of its inputs bound the duration of a run.

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

_NODE, _OPERATOR, _DOMAIN = 1, 4, 7
_FUNCTION, _FUNCTION_NODE = 25, 7

_DOMAINS = frozenset((b"", b"ai.onnx", b"ai.onnx.ml"))
_UNBOUNDED = frozenset(
    # control flow, and sizes that are values of tensors
    b"If Loop Scan SequenceMap AffineGrid BlackmanWindow CenterCropPad Col2Im ConstantOfShape DFT Expand "
    b"HammingWindow HannWindow ImageDecoder MaxUnpool MelWeightMatrix OneHot Pad Range Resize STFT Tile "
    b"Upsample".split()
)
"""Operators whose duration depends on the values of tensors, not only on shapes."""

_MOST_NODES = 1000
"""Of a graph that is read for :func:`is_bounded`; a larger one takes long anyway."""


def examine(path: Path, config: ModelConfig) -> None:
    """Raise ``LoadError`` if the file at ``path`` is not an ONNX model, or has outputs that cannot be
    served."""
    if not path.stat().st_size:
        raise LoadError(f"{path}: is empty")
    data = _read(path)
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


def is_bounded(path: Path) -> bool:
    """Whether the shapes of the inputs bound the duration of a run of the model at ``path``: no operator
    branches on values of tensors, or computes the size of its output from them. False for operators of other
    domains, large graphs, and ONNX Runtime's own format."""
    try:
        return all(domain in _DOMAINS and name not in _UNBOUNDED for domain, name in _operators(_read(path)))
    except (DecodeError, OverflowError):
        return False


def _read(path: Path) -> memoryview:
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _operators(model: memoryview) -> Iterator[tuple[bytes, bytes]]:
    """Domain and name of every operator outside of subgraphs, which belong to control flow. Raises
    ``DecodeError``, and ``OverflowError`` for more than ``_MOST_NODES``."""
    if model[4:8] == _ORT:
        raise DecodeError("not ONNX")
    graphs = [(_NODE, graph) for graph in _inside(model, _GRAPH)]
    graphs += [(_FUNCTION_NODE, function) for function in _inside(model, _FUNCTION)]
    count = 0
    for number, graph in graphs:
        for node in _inside(graph, number):
            count += 1
            if count > _MOST_NODES:
                raise OverflowError
            found = {each: bytes(value) for each, _, value in fields(node) if each in (_OPERATOR, _DOMAIN)}
            yield found.get(_DOMAIN, b""), found.get(_OPERATOR, b"")


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
