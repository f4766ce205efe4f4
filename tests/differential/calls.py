"""What callers send, in every dialect over every transport."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.wire import HttpCall
from interlingua.schemas import (
    Datatype,
    InferenceError,
    InferRequest,
    Operation,
    RequestedOutput,
    Signature,
    Tensor,
    TensorSpec,
)

BINDINGS = [
    f"{name}/{transport}" for name, dialect in DIALECTS.items() for transport in sorted(dialect.bindings)
]
"""Every dialect over every transport that it has."""

SPECS = (TensorSpec("a", Datatype.FP32, (-1, -1)), TensorSpec("b", Datatype.INT32, (-1,)))
"""The inputs of the models, which are their outputs."""


@dataclass(frozen=True)
class Call:
    """A request as it is sent. ``place`` is its path and query, its method, or nothing over a bare connection;
    ``secs`` is its deadline, ``attachment`` that of a call over bRPC."""

    place: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    verb: str = "POST"
    minor: int = 1
    secs: float | None = None
    attachment: bytes = b""
    model: str = "m"

    def having(self, *headers: tuple[str, str]) -> Call:
        return replace(self, headers=(*self.headers, *headers))

    def containing(self, body: bytes) -> Call:
        return replace(self, body=body)


def tensor(name: str, datatype: Datatype, shape: Sequence[int], data: bytes) -> Tensor:
    return Tensor(name, datatype, tuple(shape), memoryview(data))


def tensors(number: int = 0, width: int = 2) -> tuple[Tensor, ...]:
    """One for each input, whose contents differ by ``number``."""
    first = np.arange(number, number + width, dtype=np.float32) / 2
    second = np.arange(width, dtype=np.int32) + 16 * number
    return (
        tensor("a", Datatype.FP32, (1, width), first.tobytes()),
        tensor("b", Datatype.INT32, (width,), second.tobytes()),
    )


@dataclass(frozen=True)
class Kit:
    """Makes the calls of a dialect over a transport."""

    dialect: str
    transport: str

    @classmethod
    def of(cls, binding: str) -> Kit:
        return cls(*binding.split("/"))

    def call(
        self,
        inputs: int | Sequence[Tensor] = 0,
        *,
        id: str = "",
        model: str = "m",
        version: str = "",
        outputs: Sequence[str] | None = ("a", "b"),
    ) -> Call:
        """A request with ``inputs``, or those of a number. Raises ``InferenceError`` for what the dialect
        cannot express."""
        given = tensors(inputs) if isinstance(inputs, int) else tuple(inputs)
        wanted = (
            None if self.dialect == "graphpipe" or outputs is None else tuple(map(RequestedOutput, outputs))
        )
        nameless = (self.dialect, self.transport) == ("graphpipe", "tcp")
        request = InferRequest("" if nameless else model, given, wanted, version, id)
        specs = tuple(TensorSpec(each.name, each.datatype, (-1,) * len(each.shape)) for each in given)
        encode = DIALECTS[self.dialect].bindings[self.transport].calls[Operation.INFER].encode
        made: Any = encode(request, Signature(specs, SPECS))[0]
        if isinstance(made, HttpCall):
            path = f"{made.path}?{made.query}" if made.query else made.path
            return Call(path, tuple(made.headers.items()), b"".join(made.parts), model=model)
        if self.transport == "tcp":
            return Call("", (), b"".join(made.parts)[4:], model=model)
        if self.transport == "brpc":
            return Call(made.method, (), bytes(made.message), model=model)
        return Call(made.method, (), bytes(made.whole), model=model)

    def calls(self, *variants: dict[str, Any]) -> list[Call]:
        """A call for each of ``variants`` that the dialect can express."""
        found = []
        for each in variants:
            try:
                found.append(self.call(**each))
            except (InferenceError, ValueError):
                continue
        return found
