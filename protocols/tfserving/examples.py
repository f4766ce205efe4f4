"""Examples (features by name, one for each entry of a batch) to the inputs of a model.

A feature is the input of its name, stacked over all examples. A model whose one input has strings, and
another name than every feature, gets whole examples, serialized: models of the original server are of this
kind, and parse them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from interlingua.protocols.numeric_json import pack_values
from interlingua.protocols.protobuf_message import count_fields, parse, unparsable
from interlingua.protocols.tfserving.json_tensors import is_base64, read_string
from interlingua.protocols.wire import Buffer
from interlingua.schemas import (
    Datatype,
    Signature,
    Tensor,
    TensorSpec,
    invalid_tensor,
    malformed,
    offload,
    pack_bytes,
)
from interlingua.schemas.tfserving import MESSAGES

Features = Mapping[str, list[Any]]
"""The values of an example by feature: numbers, or bytes."""

_INPUT: Any = MESSAGES["tensorflow.serving.Input"]
_MESSAGE_WEIGHT = offload.KEY_WEIGHT // 4
"""How many elements a message inside of an example counts for: a feature has three."""

_EXAMPLE: Any = MESSAGES["tensorflow.Example"]
_LISTS = {bytes: "bytes_list", float: "float_list", int: "int64_list"}


@dataclass(frozen=True, slots=True)
class Examples:
    """The examples of a request, each with what all of them share."""

    features: Sequence[Features]

    @property
    def count(self) -> int:
        return len(self.features)

    def inputs(self, signature: Signature) -> tuple[Tensor, ...]:
        """The inputs of a model. Raises INVALID_TENSOR naming the feature: unknown, missing in some examples,
        of another length or kind."""
        names = dict.fromkeys(chain.from_iterable(self.features))
        specs = signature.input_names
        if len(specs) == 1 and not names.keys() & specs.keys():
            (spec,) = specs.values()
            if spec.datatype is Datatype.BYTES:
                return (self._serialized(spec),)
        return tuple([self._input(name, specs.get(name)) for name in names])

    def _input(self, name: str, spec: TensorSpec | None) -> Tensor:
        if spec is None:
            raise invalid_tensor(f"feature '{name}' is not an input of the model")
        columns = [features.get(name) for features in self.features]
        for index, column in enumerate(columns):
            if column is None:
                raise invalid_tensor(f"Feature: {name} (data type: {spec.datatype.value}) is required but "
                                     f"could not be found in example {index}")  # fmt: skip
            if len(column) != len(columns[0] or ()):
                raise invalid_tensor(f"feature '{name}' has another number of values in example {index}")
        values = list(chain.from_iterable(column or () for column in columns))
        shape = (self.count, *_inner(name, spec, len(columns[0] or ())))
        return Tensor(name, spec.datatype, shape, _packed(name, spec.datatype, values))

    def _serialized(self, spec: TensorSpec) -> Tensor:
        shape = (self.count, *_inner(spec.name, spec, 1))
        data = pack_bytes(map(_serialize, self.features))
        return Tensor(spec.name, spec.datatype, shape, memoryview(data))


def _inner(name: str, spec: TensorSpec, count: int) -> tuple[int, ...]:
    """The dimensions of one entry of the batch with ``count`` values. Raises INVALID_TENSOR."""
    inner = spec.shape[1:]
    if not spec.shape or inner.count(-1) > 1:
        raise invalid_tensor(f"feature '{name}' cannot fill the shape {list(spec.shape)} of the input")
    if -1 in inner:
        unit = prod(side for side in inner if side != -1)
        free = count // unit if unit else 0
        inner = tuple(free if side == -1 else side for side in inner)
    if prod(inner) != count:
        raise invalid_tensor(
            f"feature '{name}' has {count} values in each example, the shape {list(spec.shape)} of the input "
            f"needs {prod(inner)}"
        )
    return inner


def _packed(name: str, datatype: Datatype, values: list[Any]) -> memoryview:
    if datatype is Datatype.BYTES:
        if not all(type(value) is bytes for value in values):
            raise invalid_tensor(f"feature '{name}' has numbers, the input has strings")
        return memoryview(pack_bytes(values))
    if any(type(value) is bytes for value in values):
        raise invalid_tensor(f"feature '{name}' has strings, the input has numbers")
    if datatype is Datatype.BOOL and all(value in (0, 1) for value in values):
        values = list(map(bool, values))
    packed = pack_values(name, datatype, len(values), values)
    if datatype.dtype.kind == "f":
        for value, exact in zip(values, np.frombuffer(packed, datatype.dtype).tolist(), strict=True):
            if type(value) is int and value != exact:
                raise invalid_tensor(f"feature '{name}': {value} is not exact in {datatype.value}")
    return packed


def _serialize(features: Features) -> bytes:
    example = _EXAMPLE()
    for name, values in features.items():
        kind = float if float in set(map(type, values)) else type(values[0]) if values else float
        getattr(example.features.feature[name], _LISTS[kind]).value.extend(values)
    # the same examples give the same bytes
    return bytes(example.SerializeToString(deterministic=True))


# --- reading


def check_size(message: Buffer) -> None:
    """Raise TOO_LARGE for an ``Input`` message that becomes more objects than the limits allow, MALFORMED."""
    limits = offload.limits()
    try:
        count = count_fields(_INPUT, message, limits.max_elements, _MESSAGE_WEIGHT)
    except DecodeError as error:
        raise unparsable(_INPUT, error) from error
    limits.check_elements(count, "the examples")


def of_message(message: Buffer) -> Examples:
    """The examples of an ``Input`` message. Raises MALFORMED, INVALID_TENSOR for none."""
    given = parse(_INPUT, message)
    kind = given.WhichOneof("kind")
    if kind is None or not getattr(given, kind).examples:
        raise invalid_tensor("Input is empty.")
    found = getattr(given, kind)
    context = dict(_features(found.context)) if kind == "example_list_with_context" else {}
    examples = Examples([{**context, **dict(_features(example))} for example in found.examples])
    elements = sum(len(values) for features in examples.features for values in features.values())
    keys = sum(map(len, examples.features))
    offload.limits().check_elements(elements + offload.KEY_WEIGHT * keys, "the examples")
    return examples


def _features(example: Any) -> Iterator[tuple[str, list[Any]]]:
    for name, feature in example.features.feature.items():
        kind = feature.WhichOneof("kind")
        yield name, list(getattr(feature, kind).value) if kind else []


def of_document(document: Mapping[str, Any]) -> Examples:
    """The examples of a JSON request. Raises MALFORMED, INVALID_TENSOR naming the feature."""
    found = document.get("examples")
    if type(found) is not list:
        raise malformed("Expecting 'examples' value to be an list/array")
    if not found:
        raise malformed("'examples' value is an empty array")
    context = dict(_described(document.get("context", {})))
    return Examples([{**context, **dict(_described(example))} for example in found])


def _described(example: Any) -> Iterable[tuple[str, list[Any]]]:
    if type(example) is not dict:
        raise malformed("Example must be JSON object but got another JSON value")
    for name, value in example.items():
        yield name, [_value(name, each) for each in (value if type(value) is list else [value])]


def _value(name: str, value: Any) -> Any:
    if type(value) is str or is_base64(value):
        return read_string(f"feature '{name}'", value)
    if type(value) not in (bool, int, float):
        raise invalid_tensor(f"Feature: {name} has element with unexpected JSON type")
    return int(value) if type(value) is bool else value
