"""Tensors in an HTTP body: in JSON, as binary data after it, or in shared memory.

Readers check every tensor against its shape and return views over binary data; writers collect the buffers to
send after the JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite, prod
from typing import Any, NoReturn

from interlingua.protocols.json_document import LazyArray
from interlingua.protocols.numeric_json import json_values, pack_values
from interlingua.protocols.oip.codec import (
    input_tensor,
    own_parameters,
    shared_memory_parameters,
    shared_memory_ref,
)
from interlingua.protocols.oip.content_type import decode_base64, encode_base64
from interlingua.protocols.oip.json_members import mapping, members, tensor_head
from interlingua.protocols.wire import Buffer
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    Parameter,
    SharedMemoryRef,
    Signature,
    Tensor,
    element_count,
    invalid_tensor,
    pack_bytes,
    unrepresentable,
)

BINARY_ONLY = frozenset({Datatype.FP16, Datatype.BF16})
"""Datatypes that the dialect has no JSON form for."""

OF_TYPE: Mapping[str, str] = {
    "b": "Unable to parse 'data': attempt to access JSON non-boolean as boolean: ",
    "i": "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer: ",
    "u": "Unable to parse 'data': attempt to access JSON non-unsigned-integer as unsigned-integer: ",
    "f": "Unable to parse 'data': attempt to access JSON non-number as double: ",
    "O": "Unable to parse JSON bytes array: attempt to access JSON non-string as string: ",
}
"""Triton's words for an element of a wrong JSON type, by the kind of its datatype."""

FromJson = Callable[[str, Datatype, tuple[int, ...], Any, Mapping[str, Any]], Tensor]
"""Makes an input from its name, datatype, shape, ``data`` and parameters."""

_EMPTY = memoryview(b"")


class Tail:
    """The binary part of a body, cut from the front."""

    __slots__ = ("_position", "_view", "header_length")

    def __init__(self, body: Buffer, header_length: int | None) -> None:
        self._view = memoryview(body)
        self.header_length = self._position = len(body) if header_length is None else header_length

    def take(self, size: int) -> memoryview | None:
        """The next ``size`` bytes, None if there are fewer."""
        start, self._position = self._position, self._position + size
        return self._view[start : self._position] if self.missing <= 0 else None

    @property
    def missing(self) -> int:
        """The number of bytes taken beyond the end; negative: of those left."""
        return self._position - len(self._view)

    def account(self, entries: Sequence[Mapping[str, Any]]) -> str:
        """The contradicting sizes, in words."""
        sizes = (mapping(entry, "parameters").get("binary_data_size", 0) for entry in entries)
        return (
            f"the JSON header takes {self.header_length} bytes, the body has {len(self._view)}, and the "
            f"binary_data_size values add up to {sum(size for size in sizes if type(size) is int)}"
        )


def read_inputs(
    document: Mapping[str, Any], model: str, tail: Tail, from_json: FromJson | None = None
) -> tuple[Tensor, ...]:
    """The inputs of a request for ``model``; ``from_json`` reads those in JSON if their parameters matter.

    Raises MALFORMED, and INVALID_TENSOR for a tensor without exactly one source of data, data that
    contradicts its shape, and missing or surplus binary data.
    """
    entries = members(document, "inputs")
    inputs: list[Tensor] = []
    for index, entry in enumerate(entries):
        name, datatype, shape = tensor_head(entry, "inputs", index)
        parameters = mapping(entry, "parameters")
        data, size = entry.get("data"), parameters.get("binary_data_size")
        place = shared_memory_ref(f"input '{name}'", parameters) if parameters else None
        if (data is None) + (size is None) + (place is None) != 2:
            _refuse_sources(name, data, size, place)
        if size is not None:
            view = tail.take(_size(name, size))
            if view is None:
                raise invalid_tensor(
                    f"unexpected size for input '{name}', expecting {tail.missing} additional bytes for "
                    f"model '{model}': {tail.account(entries)}"
                )
            inputs.append(input_tensor(model, name, datatype, shape, view))
        elif place is not None:
            inputs.append(Tensor(name, datatype, shape, place))
        else:
            if datatype in BINARY_ONLY:
                raise invalid_tensor(not_as_json("receiving", "input", name, datatype))
            read = from_json or _from_json
            inputs.append(read(name, datatype, shape, data, parameters))
            continue
        inputs[-1].parameters = own_parameters(parameters)
    if tail.missing:
        raise invalid_tensor(
            f"unexpected additional input data for model '{model}', {-tail.missing} bytes: "
            f"{tail.account(entries)}"
        )
    return tuple(inputs)


def read_answers(
    document: Mapping[str, Any], tail: Tail, placements: Mapping[str, SharedMemoryRef]
) -> Iterator[Tensor]:
    """The outputs of an answer of any server; ``placements`` as for ``codec_http.decode_response``. Raises
    MALFORMED and INVALID_TENSOR."""
    entries = members(document, "outputs")
    for index, entry in enumerate(entries):
        name, datatype, shape = tensor_head(entry, "outputs", index)
        parameters = mapping(entry, "parameters")
        data, size = entry.get("data"), parameters.get("binary_data_size")
        if data is None and size is not None:
            view = tail.take(_size(name, size))
            if view is None:
                raise invalid_tensor(
                    f"output '{name}' is {tail.missing} bytes short: {tail.account(entries)}"
                )
            tensor = Tensor.checked(name, datatype, shape, view)
        elif data is None and name in placements:
            tensor = Tensor(name, datatype, shape, placements[name])
        else:
            # MLServer writes a single element without an array
            bare = isinstance(data, (bool, int, float, str))
            tensor = plain_tensor(name, datatype, shape, [data] if bare else data)
        tensor.parameters = own_parameters(parameters)
        yield decode_base64(tensor)
    if tail.missing:
        raise invalid_tensor(f"{-tail.missing} bytes belong to no output: {tail.account(entries)}")


def raw_tensor(model: str, body: Buffer, signature: Signature) -> Tensor:
    """The input of a request without JSON: the whole body is the data of the model's only input, with a batch
    of one if the model batches. Raises INVALID_TENSOR for a model with other inputs, and for an unknown
    shape."""
    if len(signature.inputs) != 1:
        raise invalid_tensor(
            f"Raw request must only have 1 input (found 1) to be deduced but got {len(signature.inputs)} "
            f"inputs in '{model}' model configuration"
        )
    spec = signature.inputs[0]
    stated = (1, *spec.shape[1:]) if signature.max_batch_size else spec.shape
    if spec.datatype is Datatype.BYTES:
        if -1 in stated or prod(stated) != 1:
            raise invalid_tensor(
                f"For BYTE datatype raw input '{spec.name}', the model must have input shape [1]"
            )
        return Tensor(spec.name, spec.datatype, stated, memoryview(pack_bytes([bytes(body)])))
    if stated.count(-1) > 1:
        raise invalid_tensor(
            f"The shape of the raw input '{spec.name}' can not be deduced because there are more than one "
            "variable-sized dimension"
        )
    unit = prod(side for side in stated if side != -1) * spec.datatype.itemsize
    free = len(body) // unit if unit else 0
    shape = tuple(free if side == -1 else side for side in stated)
    return input_tensor(model, spec.name, spec.datatype, shape, body)


def write_tensor(tensor: Tensor, buffers: list[Buffer] | None) -> dict[str, Any]:
    """An input in JSON, its data in ``buffers`` if there are any. Raises UNREPRESENTABLE naming the tensor
    for data that JSON cannot carry."""
    entry = describe_tensor(tensor)
    if isinstance(tensor.data, SharedMemoryRef):
        entry.setdefault("parameters", {}).update(shared_memory_parameters(tensor.data))
    elif buffers is None:
        entry["data"] = json_values(tensor)
    else:
        _append(entry, tensor.data, buffers)
    return entry


def write_answer(tensor: Tensor, buffers: list[Buffer] | None, nonfinite: bool) -> dict[str, Any]:
    """The same for an output; ``nonfinite`` as for ``json_values``. Raises INVALID_TENSOR for NaN and
    infinity: the caller requested a form without them."""
    tensor = encode_base64(tensor)
    entry = describe_tensor(tensor)
    if buffers is None:
        entry["data"] = json_values(tensor, tokens=nonfinite, refusal=ErrorCode.INVALID_TENSOR)
    else:
        _append(entry, tensor.view, buffers)
    return entry


def _append(entry: dict[str, Any], data: memoryview, buffers: list[Buffer]) -> None:
    entry.setdefault("parameters", {})["binary_data_size"] = len(data)
    buffers.append(data)


def describe_tensor(tensor: Tensor) -> dict[str, Any]:
    """A tensor in JSON, without its data. Raises UNREPRESENTABLE for a parameter that JSON cannot carry."""
    entry = {"name": tensor.name, "datatype": tensor.datatype.value, "shape": tensor.shape}
    return {**entry, "parameters": finite(tensor.parameters)} if tensor.parameters else entry


def finite(parameters: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """A copy of ``parameters``. Raises UNREPRESENTABLE for NaN and infinity."""
    for key, value in parameters.items():
        if type(value) is float and not isfinite(value):
            raise unrepresentable(f"parameter '{key}' is {value}, which JSON cannot carry")
    return dict(parameters)


def not_as_json(verb: str, kind: str, name: str, datatype: Datatype) -> str:
    """Triton's message for the datatypes in :data:`BINARY_ONLY`."""
    return (
        f"{verb} {datatype.value} data via JSON is not supported. "
        f"Please use the binary data format for {kind} {name}"
    )


def plain_tensor(name: str, datatype: Datatype, shape: tuple[int, ...], data: Any) -> Tensor:
    """The tensor with the elements in ``data``, which may be anything if there are none, as on Triton."""
    count = element_count(shape, name)
    if count == 0:
        return Tensor(name, datatype, shape, _EMPTY)
    if not isinstance(data, (list, LazyArray)):
        raise invalid_tensor(f"'data' of tensor '{name}' must be an array")
    return Tensor(name, datatype, shape, pack_values(name, datatype, count, data, OF_TYPE))


def _from_json(
    name: str, datatype: Datatype, shape: tuple[int, ...], data: Any, parameters: Mapping[str, Any]
) -> Tensor:
    tensor = plain_tensor(name, datatype, shape, data)
    tensor.parameters = own_parameters(parameters)
    return tensor


def _size(name: str, size: Any) -> int:
    if type(size) is not int or size < 0:
        raise invalid_tensor(f"'binary_data_size' of tensor '{name}' must be an unsigned integer")
    return size


def _refuse_sources(name: str, data: Any, size: Any, place: Any) -> NoReturn:
    given = {"'data'": data, "'binary_data_size'": size, "'shared_memory_region'": place}
    found = " ".join(key for key, value in given.items() if value is not None)
    raise invalid_tensor(
        "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
        f"'shared_memory_region' in 'parameters'. But {f'set {found}' if found else 'no field is set'} "
        f"for input '{name}'"
    )
