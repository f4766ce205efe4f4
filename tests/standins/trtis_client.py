"""Questions and answers of a version 1 client, by the facts of the original one; the clients themselves are
in ``trtis_http_client`` and ``trtis_grpc_client``.

It demands of an answer what the original demands, and fails where that one failed, hung or died; where
the original silently read garbage it fails too. Arrays are whole batches: of a model with batches the
first dimension is the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.standins.trtis_contract import code_name, datatype_name, enum, from_line, message, pack, unpack


class TrtisError(Exception):
    """What the server said; the original shows ``[server_id request_id] msg``."""

    def __init__(self, status: Any) -> None:
        super().__init__(f"[{status.server_id} {status.request_id}] {status.msg}")
        self.code = code_name(status)
        self.message = status.msg
        self.server_id = status.server_id
        self.request_id = status.request_id


class ClientFailure(Exception):
    """An answer that the original client could not read."""


@dataclass(frozen=True)
class Top:
    """Ask for the top classes of an output in place of its values."""

    count: int


@dataclass(frozen=True)
class Shared:
    """A tensor in a shared memory region; for an input, ``dims`` are its dimensions without the batch."""

    region: str
    byte_size: int
    offset: int = 0
    dims: tuple[int, ...] = ()

    def fill(self, place: Any) -> None:
        place.name, place.offset, place.byte_size = self.region, self.offset, self.byte_size


@dataclass
class Answer:
    """An answer. ``outputs`` holds whole batches as arrays, lists of (index, value, label) per batch entry
    for classifications, and the dimensions of outputs in shared memory."""

    outputs: dict[str, Any]
    model_name: str
    model_version: int
    batch_size: int
    id: int
    server_id: str
    request_id: int


def question(
    config: Any,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any] | Iterable[str],
    *,
    batch_size: int | None = None,
    change: Callable[[Any], object] | None = None,
    **fields: Any,
) -> tuple[Any, list[bytes]]:
    """The header of a request and the bytes of each input that is not in shared memory.

    As Python's original client writes it: ``dims`` always, ``batch_byte_size`` for strings alone, inputs in
    the configuration's order. ``fields`` are further fields of the header; ``change`` may spoil it.
    """
    batched = config.max_batch_size > 0
    header = message("InferRequestHeader", **fields)
    order = [spec.name for spec in config.input if spec.name in inputs]
    bodies: list[bytes] = []
    size = 1
    for name in [*order, *(name for name in inputs if name not in order)]:
        entry, given = header.input.add(name=name), inputs[name]
        if isinstance(given, Shared):
            entry.dims.extend(given.dims)
            given.fill(entry.shared_memory)
            size = batch_size or size
            continue
        array = np.asarray(given)
        entry.dims.extend(array.shape[1:] if batched else array.shape)
        size = array.shape[0] if batched else 1
        bodies.append(pack(array))
        if array.dtype.kind in "OSU":
            entry.batch_byte_size = len(bodies[-1])
    header.batch_size = size if batch_size is None else batch_size
    asked = outputs if isinstance(outputs, Mapping) else dict.fromkeys(outputs)
    for name, how in asked.items():
        wanted = header.output.add(name=name)
        if isinstance(how, Top):
            wanted.cls.count = how.count
        elif isinstance(how, Shared):
            how.fill(wanted.shared_memory)
    if change is not None:
        change(header)
    return header, bodies


def placed(asked: tuple[Any, ...]) -> set[str]:
    """The outputs that a question wants in shared memory: they have no bytes in the answer."""
    outputs = asked[1]
    return {name for name in outputs if isinstance(outputs, Mapping) and isinstance(outputs[name], Shared)}


def read_output(config: Any, output: Any, batch_size: int, data: bytes, elsewhere: bool) -> Any:
    """What one output of an answer holds, from its entry in the header and its bytes; of one that is
    ``elsewhere``, in shared memory, its dimensions and the size of its batch."""
    if output.batch_classes:
        assert not data, "bytes for a classification"
        return [[(c.idx, c.value, c.label) for c in entry.cls] for entry in output.batch_classes]
    dims = list(output.raw.dims)
    if elsewhere:
        assert not data, "bytes for an output in shared memory"
        return dims, output.raw.batch_byte_size
    datatype = output_datatype(config, output.name)
    if datatype != "TYPE_STRING":
        assert output.raw.batch_byte_size == len(data), "raw.batch_byte_size is not the size of the data"
    return unpack(data, datatype, [batch_size, *dims] if config.max_batch_size > 0 else dims)


def output_datatype(config: Any, name: str) -> str:
    for spec in config.output:
        if spec.name == name:
            return datatype_name(spec.data_type)
    raise ClientFailure("infer request did not return response header")


def checked_header(text: str | None) -> Any:
    """The header of an answer, with what the original cannot do without."""
    if text is None:
        raise ClientFailure("infer request did not return response header")
    header = from_line("InferResponseHeader", text)
    if not header.model_name:
        raise ClientFailure("infer request did not return response header")
    if not header.batch_size:
        raise ClientFailure("SIGFPE: no batch_size in the answer")
    return header


def answer_of(header: Any, outputs: dict[str, Any], status: Any) -> Answer:
    return Answer(
        outputs, header.model_name, header.model_version, header.batch_size, header.id,
        status.server_id, status.request_id,
    )  # fmt: skip


def succeed(status: Any) -> None:
    """Raise what a status tells unless it tells of success; an empty one is an error without words."""
    if status.code != enum("RequestStatusCode").values_by_name["SUCCESS"].number:
        raise TrtisError(status)
