"""Reads GraphPipe messages with the code that flatc generates from the contract, as an independent
opinion on what our writer wrote.

The generated package is called ``graphpipe``, as is the published client; it is put in that one's place
only while it reads. ``strict`` checks in addition what a verifying reader would: alignment, and the NUL
behind every string.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "oracle" / "graphpipe_fbs"
STRING = 12

_generated: dict[str, Any] = {}


@dataclass
class Read:
    """A tensor as the oracle sees it; ``data`` is None where that vector is absent."""

    type: int
    shape: list[int]
    data: bytes | None
    strings: list[bytes]


@contextmanager
def generated() -> Iterator[Any]:
    """The generated modules, by ``generated()("Request")``."""

    def take() -> dict[str, Any]:
        names = [name for name in sys.modules if name.partition(".")[0] == "graphpipe"]
        return {name: sys.modules.pop(name) for name in names}

    published = take()
    sys.modules.update(_generated)
    sys.path.insert(0, str(FOLDER))
    try:
        yield lambda name: getattr(import_module(f"graphpipe.{name}"), name)
    finally:
        sys.path.remove(str(FOLDER))
        _generated.update(take())
        sys.modules.update(published)


def read_request(body: bytes, strict: bool = True) -> dict[str, Any] | None:
    """The fields of an ``InferRequest``, None for a ``MetadataRequest``."""
    with generated() as load:
        request = load("Request").GetRootAs(body)
        if request.ReqType() == load("Req").MetadataRequest:
            return None
        assert request.ReqType() == load("Req").InferRequest
        infer = load("InferRequest")()
        infer.Init(request.Req().Bytes, request.Req().Pos)
        if strict:
            for field in (4, 8, 10):
                assert infer._tab.Offset(field), "a client may rely on the vector"
        return {
            "config": infer.Config() or b"",
            "input_names": [infer.InputNames(i) for i in range(infer.InputNamesLength())],
            "output_names": [infer.OutputNames(i) for i in range(infer.OutputNamesLength())],
            "inputs": [_tensor(infer.InputTensors(i), strict) for i in range(infer.InputTensorsLength())],
        }


def read_response(body: bytes, strict: bool = True) -> tuple[list[Read], list[tuple[int, bytes]]]:
    """The tensors and errors of an ``InferResponse``."""
    with generated() as load:
        response = load("InferResponse").GetRootAs(body)
        if strict:
            assert not response.OutputTensorsIsNone(), "a C++ client dereferences it unchecked"
        tensors = [_tensor(response.OutputTensors(i), strict) for i in range(response.OutputTensorsLength())]
        errors = [response.Errors(i) for i in range(response.ErrorsLength())]
        return tensors, [(error.Code(), error.Message()) for error in errors]


def read_metadata(body: bytes) -> dict[str, Any]:
    """The fields of a ``MetadataResponse``."""
    with generated() as load:
        told = load("MetadataResponse").GetRootAs(body)

        def port(one: Any) -> dict[str, Any]:
            assert not one.ShapeIsNone(), "the published client needs it"
            return {
                "name": one.Name(),
                "description": one.Description(),
                "shape": [one.Shape(i) for i in range(one.ShapeLength())],
                "type": one.Type(),
            }

        return {
            "name": told.Name(),
            "version": told.Version(),
            "server": told.Server(),
            "description": told.Description(),
            "inputs": [port(told.Inputs(i)) for i in range(told.InputsLength())],
            "outputs": [port(told.Outputs(i)) for i in range(told.OutputsLength())],
        }


def _tensor(tensor: Any, strict: bool) -> Read:
    if strict:
        _verify(tensor)
    absent = tensor.DataIsNone()
    return Read(
        tensor.Type(),
        [tensor.Shape(i) for i in range(tensor.ShapeLength())],
        None if absent else bytes(tensor.DataAsNumpy()) if tensor.DataLength() else b"",
        [tensor.StringVal(i) for i in range(tensor.StringValLength())],
    )


def _verify(tensor: Any) -> None:
    table, body = tensor._tab, tensor._tab.Bytes
    assert table.Pos % 4 == 0
    assert not tensor.ShapeIsNone(), "the published client fails without a shape"
    assert table.Vector(table.Offset(6)) % 8 == 0
    if tensor.Type() != STRING:
        assert not tensor.DataIsNone(), "the published client fails without data"
        assert table.Vector(table.Offset(8)) % 16 == 0
        return
    assert tensor.DataIsNone()
    for index in range(tensor.StringValLength()):
        start = table.Indirect(table.Vector(table.Offset(10)) + 4 * index)
        assert start % 4 == 0
        length = int.from_bytes(body[start : start + 4], "little")
        assert body[start + 4 + length] == 0
