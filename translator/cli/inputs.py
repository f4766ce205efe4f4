"""Input tensors of ``interlingua infer`` from the command line, from files and from standard input.

The content decides how a file is read, then its name: .npy and .npz, images, JSON, CSV, text.
"""

from __future__ import annotations

import csv
import io
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from interlingua.schemas import Datatype, Signature, Tensor, TensorSpec
from interlingua.translator.cli import images
from interlingua.translator.cli.arguments import Pixels, RefusedError
from interlingua.translator.cli.values import from_array, from_json, read_npy
from interlingua.translator.config.wording import unknown

STDIN = "-"

_NPY, _ZIP = b"\x93NUMPY", b"PK\x03\x04"
"""The magic bytes of NumPy files with one array and with several."""


def read_inputs(given: Sequence[str], signature: Signature | None, pixels: Pixels) -> Iterator[Tensor]:
    """The tensors of ``NAME=VALUE``, or of a file of several inputs, ``@FILE``; with a ``signature`` in its
    datatypes. Raises ``RefusedError``."""
    position = 0
    if (times := [text.partition("=")[2] or text for text in given].count(f"@{STDIN}")) > 1:
        raise RefusedError(f"standard input has one value: @{STDIN} is there {times} times")
    for text in given:
        name, separator, value = text.partition("=")
        if text.startswith("@"):
            entries = _several(text[1:])
        elif separator:
            entries = {_name(name, text, position, signature): value}
        else:
            raise RefusedError(f"--input {text}: write NAME=@file.npy or NAME=JSON, or @FILE with all inputs")
        for each, content in entries.items():
            position += 1
            yield read_input(each, content, _spec(each, signature), pixels)


def _name(name: str, text: str, position: int, signature: Signature | None) -> str:
    """The name of an input; an empty one is that of the model's input at that position."""
    if name or signature is None:
        return name
    if position >= len(signature.inputs):
        raise RefusedError(f"--input {text}: the model has only {len(signature.inputs)} inputs")
    return signature.inputs[position].name


def _spec(name: str, signature: Signature | None) -> TensorSpec | None:
    if signature is None:
        return None
    if name not in signature.input_names:
        raise RefusedError(unknown("input", name, signature.input_names))
    return signature.input_names[name]


def _several(path: str) -> Mapping[str, Any]:
    """The arrays or values of a file with several inputs, by name."""
    content = _content(path, "inputs")
    if content.startswith(_ZIP):
        return _arrays(content, path, "inputs")
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise RefusedError(f"inputs: '{path}' is neither .npz nor JSON: {error}") from error
    if not isinstance(found, dict):
        raise RefusedError(f"inputs: '{path}' is no object of JSON with a value for each input")
    return {name: orjson.dumps(value).decode() for name, value in found.items()}


def read_input(name: str, content: Any, spec: TensorSpec | None, pixels: Pixels) -> Tensor:
    """The tensor of an array or of text: ``@FILE``, JSON nested as the shape, or the only element of a BYTES
    tensor. ``spec`` is the model's, if known. Raises ``RefusedError``."""
    datatype = None if spec is None else spec.datatype
    if isinstance(content, np.ndarray):
        return from_array(name, content, datatype)
    if not content.startswith("@"):
        return _from_text(name, content, spec)
    path = content[1:]
    data = _content(path, f"input '{name}'")
    if data.startswith(_NPY):
        return from_array(name, read_npy(name, path, data), datatype)
    if data.startswith(_ZIP):
        found = _arrays(data, path, f"input '{name}'")
        if name not in found:
            raise RefusedError(f"input '{name}': '{path}': {unknown('array', name, found)}")
        return from_array(name, found[name], datatype)
    if images.is_image(data):
        if datatype is Datatype.BYTES:
            return _single(name, data, spec)
        return images.read_image(name, path, data, spec, pixels)
    suffix = Path(path).suffix.lower()
    if suffix in _READERS or path == STDIN:
        try:
            return _READERS.get(suffix, _from_text)(name, data.decode("utf-8-sig").rstrip("\r\n"), spec)
        except UnicodeDecodeError as error:
            raise RefusedError(f"input '{name}': '{path}' is not UTF-8: {error}") from error
    others = ", ".join(_READERS)
    advice = f"write it with numpy.save, or give an image or {others}"
    raise RefusedError(f"input '{name}': '{path}' is not an .npy file; {advice}")


def _content(path: str, what: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if path == STDIN else Path(path).read_bytes()
    except OSError as error:
        kind = Path(path).suffix or "a file"
        raise RefusedError(f"{what}: '{path}' cannot be read as {kind}: {error.strerror}") from error


def _arrays(data: bytes, path: str, what: str) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {
                name.removesuffix(".npy"): read_npy(name, path, archive.read(name))
                for name in archive.namelist()
            }
    except RefusedError:
        raise
    # zipfile and its decompressors raise whatever a damaged archive leads them to
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise RefusedError(f"{what}: '{path}' cannot be read as .npz: {reason}") from error


def _from_text(name: str, text: str, spec: TensorSpec | None) -> Tensor:
    """JSON, or for a BYTES tensor any other text as its only element."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if spec is not None and spec.datatype is Datatype.BYTES:
            return _single(name, text.encode(), spec)
        raise RefusedError(f"input '{name}' is neither @file.npy nor JSON: {error}") from error
    return from_json(name, value, None if spec is None else spec.datatype)


def _from_json(name: str, text: str, spec: TensorSpec | None) -> Tensor:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise RefusedError(f"input '{name}' is not JSON: {error}") from error
    return from_json(name, value, None if spec is None else spec.datatype)


def _from_lines(name: str, text: str, spec: TensorSpec | None) -> Tensor:
    """Text as the only element of a BYTES tensor, else numbers between spaces, a row for each line."""
    if spec is None or spec.datatype is Datatype.BYTES:
        return _single(name, text.encode(), spec)
    return _from_rows(name, [line.split() for line in text.splitlines()], spec)


def _from_csv(name: str, text: str, spec: TensorSpec | None) -> Tensor:
    """A row for each record (RFC 4180), without a header of names above numbers."""
    return _from_rows(name, list(csv.reader(io.StringIO(text))), spec)


def _from_rows(name: str, rows: list[list[str]], spec: TensorSpec | None) -> Tensor:
    rows = [row for row in rows if row]
    if spec is not None and spec.datatype is Datatype.BYTES:
        return _shaped(from_json(name, rows, Datatype.BYTES), spec)
    if rows and not any(map(_is_number, rows[0])):
        rows = rows[1:]
    for row in rows:
        for cell in row:
            if not _is_number(cell):
                raise RefusedError(f"input '{name}': '{cell}' is not a number")
    if len({len(row) for row in rows}) > 1:
        raise RefusedError(f"input '{name}': rows differ in length")
    if spec is not None and spec.datatype.dtype.kind in "iub":
        # no detour through floats, which are exact up to 2**53 only
        values = [[_whole(cell) for cell in row] for row in rows]
        if spec.datatype is Datatype.BOOL:
            return _shaped(
                from_json(name, [[_truth(name, cell) for cell in row] for row in values], spec.datatype), spec
            )
        return _shaped(from_json(name, values, spec.datatype), spec)
    numbers = [[float(cell) for cell in row] for row in rows]
    return _shaped(from_json(name, numbers, Datatype.FP64 if spec is None else spec.datatype), spec)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _whole(cell: str) -> float:
    """An ``int`` if the cell is one; the reader of JSON refuses any other number."""
    try:
        return int(cell)
    except ValueError:
        return float(cell)


def _truth(name: str, cell: float) -> bool:
    if cell not in (0, 1):
        raise RefusedError(f"input '{name}': {cell} is neither 0 nor 1")
    return bool(cell)


def _shaped(tensor: Tensor, spec: TensorSpec | None) -> Tensor:
    """A single column as a vector, if the model takes one."""
    if spec is None or len(spec.shape) != 1 or len(tensor.shape) != 2 or tensor.shape[1] != 1:
        return tensor
    return Tensor.from_numpy(tensor.name, tensor.numpy().reshape(-1), tensor.datatype)


def _single(name: str, element: bytes, spec: TensorSpec | None) -> Tensor:
    """A BYTES tensor of one element."""
    array = np.empty((1,) * (1 if spec is None else len(spec.shape)), dtype=object)
    array.flat[:] = [element]
    return Tensor.from_numpy(name, array, Datatype.BYTES)


_READERS = {".json": _from_json, ".csv": _from_csv, ".txt": _from_lines}
"""How files of text are read, by suffix."""
