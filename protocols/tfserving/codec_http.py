"""Predict over REST: JSON to and from the IR, as a server and as a client.

A request has its inputs by row (``instances``: for each entry of the batch a value, or an object by name) or
by column (``inputs``: a value, or an object by name); its answer has ``predictions`` or ``outputs`` in the
same form. An answer has no names if the model has exactly one output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from interlingua.protocols.json_document import (
    LONG_BYTES,
    MOST_DEPTH,
    LazyArray,
    check_elements,
    is_long,
    parse_json,
    write_json,
)
from interlingua.protocols.tfserving.codec import DIALECT_NAME, check_names, check_signature_name
from interlingua.protocols.tfserving.json_tensors import (
    inferred,
    is_base64,
    read_value,
    rows,
    shape_of,
    write_value,
)
from interlingua.protocols.wire import Buffer, Headers
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Signature,
    Tensor,
    TensorSpec,
    invalid_tensor,
    malformed,
    not_carried,
    offload,
)

JSON_HEADERS: Headers = (("Content-Type", "application/json"),)

INSTANCES, INPUTS, PREDICTIONS, OUTPUTS = "instances", "inputs", "predictions", "outputs"

_MISSING = object()


@dataclass(frozen=True, slots=True)
class PredictForm:
    """The form of an answer: by row or by column; ``named``: with the name of its output even if it has one,
    because the model has several."""

    by_row: bool
    named: bool = False


BY_ROW, BY_COLUMN = (
    (PredictForm(True), PredictForm(True, True)),
    (PredictForm(False), PredictForm(False, True)),
)
"""By whether the model has several outputs."""


# --- as a server


def decode_request(
    body: Buffer, model: str, version: str, signature: Signature
) -> tuple[InferRequest, PredictForm]:
    """The request in ``body``, and the form of its answer. Raises MALFORMED for a body that is not a request,
    INVALID_TENSOR naming the tensor."""
    if len(body) > LONG_BYTES and is_long(body):
        inputs, form = offload.call(_read_long, body, signature)
    else:
        inputs, form, _ = read_request(body, signature)
    return InferRequest(model, inputs, None, version), form


def _read_long(body: Buffer, signature: Signature) -> tuple[tuple[Tensor, ...], PredictForm]:
    check_elements(body)
    return read_request(body, signature)[:2]


def read_request(
    body: Buffer, signature: Signature
) -> tuple[tuple[Tensor, ...], PredictForm, Mapping[str, Any]]:
    """The inputs in ``body``, the form of the answer, and the whole document. Raises as
    :func:`decode_request`."""
    document = parse_object(body, {INSTANCES, INPUTS, *signature.input_names})
    if "signature_name" in document:
        check_signature_name(signature_name(document))
    if not signature.inputs:
        raise invalid_tensor("Failed to get input map for signature: DEFAULT")
    instances, inputs = document.get(INSTANCES, _MISSING), document.get(INPUTS, _MISSING)
    if instances is not _MISSING and inputs is not _MISSING:
        raise malformed("Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist")
    if instances is not _MISSING:
        return _by_row(instances, signature.input_names), BY_ROW[len(signature.outputs) > 1], document
    if inputs is not _MISSING:
        return _by_column(inputs, signature.input_names), BY_COLUMN[len(signature.outputs) > 1], document
    raise malformed("Missing 'inputs' or 'instances' key")


def parse_object(body: Buffer, lazy: set[str] | None = None) -> dict[str, Any]:
    """The JSON object in ``body``. Raises MALFORMED."""
    if not len(body):
        raise malformed("JSON Parse error: The document is empty")
    try:
        document = parse_json(body, lazy or (), max_depth=MOST_DEPTH)
    except InferenceError as error:
        if error.code is not ErrorCode.MALFORMED:
            raise
        raise malformed(f"JSON Parse error: {error.message}") from None
    if type(document) is not dict:
        raise malformed("JSON Value: Is not object")
    return document


def signature_name(document: Mapping[str, Any]) -> str:
    """The name of the signature that a request has. Raises MALFORMED."""
    name = document.get("signature_name", "")
    if type(name) is not str:
        raise malformed("'signature_name' key must be a string value.")
    return name


def _by_row(instances: Any, specs: Mapping[str, TensorSpec]) -> tuple[Tensor, ...]:
    if not isinstance(instances, (list, LazyArray)):
        raise malformed("Excepting 'instances' to be an list/array")
    if isinstance(instances, LazyArray) and len(instances.shape) > 1:
        return (_only(instances, specs, INSTANCES),)
    found = instances.tolist() if isinstance(instances, LazyArray) else instances
    if not found:
        raise malformed("No values in 'instances' array")
    first = found[0]
    if type(first) is not dict or (is_base64(first) and len(specs) == 1):
        return (_only(found, specs, INSTANCES),)
    for place, row in enumerate(found):
        if type(row) is not dict or row.keys() != first.keys():
            raise invalid_tensor(
                f"Failed to process element: {place} of 'instances' list. JSON object: keys must be equal "
                f"to: {','.join(sorted(first))}"
            )
    return tuple(_columns({name: [row[name] for row in found] for name in first}, specs))


def _by_column(inputs: Any, specs: Mapping[str, TensorSpec]) -> tuple[Tensor, ...]:
    if type(inputs) is not dict or (is_base64(inputs) and len(specs) == 1):
        return (_only(inputs, specs, INPUTS),)
    return tuple(_columns(inputs, specs))


def _columns(found: Mapping[str, Any], specs: Mapping[str, TensorSpec]) -> Iterator[Tensor]:
    for name, value in found.items():
        spec = specs.get(name)
        if spec is None:
            raise invalid_tensor(f"JSON object: does not have named input: {name}")
        yield read_value(name, spec, value)


def _only(value: Any, specs: Mapping[str, TensorSpec], key: str) -> Tensor:
    """The tensor of a model with one input, whose name clients omit."""
    if len(specs) != 1:
        kind = "a plain list, but expecting list of objects" if key == INSTANCES else (
            "a plain value/list, but expecting an object"
        )  # fmt: skip
        raise invalid_tensor(f"{key} is {kind} as multiple input tensors required as per tensorinfo_map")
    ((name, spec),) = specs.items()
    return read_value(name, spec, value)


def encode_response(form: PredictForm, response: InferResponse) -> bytes:
    """The answer in ``form``. Raises INVALID_TENSOR for outputs without a common batch in an answer by row,
    UNREPRESENTABLE for an output that JSON cannot carry."""
    outputs = response.outputs
    if not outputs:
        raise invalid_tensor("Cannot convert empty tensor map to JSON")
    if len(outputs) == 1 and not form.named and (outputs[0].shape or not form.by_row):
        return write_json({PREDICTIONS if form.by_row else OUTPUTS: write_value(outputs[0])})
    if form.by_row:
        return write_json({PREDICTIONS: rows(outputs, _batch_of(outputs), named=form.named)})
    return write_json({OUTPUTS: {tensor.name: write_value(tensor) for tensor in outputs}})


def _batch_of(tensors: Sequence[Tensor]) -> int:
    batch = -1
    for tensor in tensors:
        if not tensor.shape:
            raise invalid_tensor(f"Tensor name: {tensor.name} has no shape information ")
        if batch not in (-1, tensor.shape[0]):
            raise invalid_tensor(
                f"Tensor name: {tensor.name} has inconsistent batch size: {tensor.shape[0]} "
                f"expecting: {batch}"
            )
        batch = tensor.shape[0]
    return batch


# --- as a client


def encode_request(request: InferRequest, signature: Signature | None, *, by_row: bool) -> bytes:
    """A request by column, which has a form for every shape, or by row. The dialect has no choice of outputs:
    a request for some gets all. Raises UNREPRESENTABLE naming the tensor."""
    inputs = request.inputs
    check_names(inputs)
    for tensor in inputs:
        _check_shape(tensor, signature)
    if by_row:
        return write_json({INSTANCES: rows(inputs, _common_batch(inputs))})
    # an object with this single name would be an element in base64
    if len(inputs) == 1 and inputs[0].name == "b64":
        return write_json({INPUTS: write_value(inputs[0])})
    return write_json({INPUTS: {tensor.name: write_value(tensor) for tensor in inputs}})


def _common_batch(inputs: Sequence[Tensor]) -> int:
    try:
        batch = _batch_of(inputs)
    except InferenceError as error:
        raise not_carried(DIALECT_NAME, f"this by row: {error.message}") from None
    if not batch:
        raise not_carried(DIALECT_NAME, f"a batch without entries of tensor '{inputs[0].name}' by row")
    return batch


def _check_shape(tensor: Tensor, signature: Signature | None) -> None:
    """Raise UNREPRESENTABLE for dimensions behind one that is 0, unless the signature states them."""
    shape = tensor.shape
    if 0 not in shape:
        return
    rest = shape[shape.index(0) + 1 :]
    spec = signature.input_names.get(tensor.name) if signature else None
    if rest and (spec is None or spec.shape[len(shape) - len(rest) :] != rest):
        raise not_carried(DIALECT_NAME, f"the shape {list(shape)} of tensor '{tensor.name}' in JSON")


def decode_response(model: str, signature: Signature | None, body: Buffer) -> InferResponse:
    """The answer of any server. Outputs have the datatypes of ``signature``, or those of their elements if it
    has none. Raises MALFORMED or INVALID_TENSOR."""
    if len(body) > LONG_BYTES and is_long(body):
        outputs = offload.call(_read_long_answer, body, signature)
    else:
        outputs, _, _ = read_answer(body, signature)
    return InferResponse(model, outputs)


def _read_long_answer(body: Buffer, signature: Signature | None) -> tuple[Tensor, ...]:
    check_elements(body)
    return read_answer(body, signature)[0]


def read_answer(body: Buffer, signature: Signature | None) -> tuple[tuple[Tensor, ...], str, bool]:
    """The outputs in ``body``, the key that they have, and whether they have names. Raises as
    :func:`decode_response`."""
    specs: Mapping[str, TensorSpec] = signature.output_names if signature else {}
    document = parse_object(body, {PREDICTIONS, OUTPUTS, *specs})
    key = OUTPUTS if OUTPUTS in document else PREDICTIONS
    found = document.get(key, _MISSING)
    if found is _MISSING:
        raise malformed("the answer has neither 'predictions' nor 'outputs'")
    named = _named(key, found, specs)
    if named is None:
        spec = _only_fit(key, found, specs) if specs else replace(inferred(key, found), name=key)
        return (read_value(spec.name, spec, found),), key, False
    # in the order of the signature
    order = [name for name in specs if name in named] + [name for name in named if name not in specs]
    return tuple([_output(name, specs, named[name]) for name in order]), key, True


def _only_fit(key: str, value: Any, specs: Mapping[str, TensorSpec]) -> TensorSpec:
    """The output that a ``value`` without a name is. Of several outputs, KServe's servers answer with the one
    that they choose, since no request over REST names outputs. Raises MALFORMED naming the outputs unless the
    value has the shape of exactly one."""
    if len(specs) == 1:
        return next(iter(specs.values()))
    shape = shape_of(value)
    fitting = [spec for spec in specs.values() if _fits(shape, spec.shape)]
    if len(fitting) != 1:
        names = ", ".join(f"'{name}' {list(spec.shape)}" for name, spec in specs.items())
        which = f"any of {len(fitting)}" if fitting else "none"
        raise malformed(
            f"'{key}' has one value without a name, of shape {list(shape)}, which fits {which} of the "
            f"model's {len(specs)} outputs: {names}"
        )
    return fitting[0]


def _fits(shape: tuple[int, ...], stated: tuple[int, ...]) -> bool:
    return len(shape) == len(stated) and all(
        side in (-1, found) for side, found in zip(stated, shape, strict=True)
    )


def _output(name: str, specs: Mapping[str, TensorSpec], value: Any) -> Tensor:
    spec = specs.get(name) or inferred(name, value)
    return read_value(name, spec, value)


def _named(key: str, found: Any, specs: Mapping[str, TensorSpec]) -> Mapping[str, Any] | None:
    """Values by name, of an object or of rows; None if they have no names."""
    if type(found) is dict:
        return None if is_base64(found) and len(specs) < 2 else found
    first = None if key == OUTPUTS else _first(found)
    if type(first) is not dict or (is_base64(first) and len(specs) < 2):
        return None
    values: list[Any] = found.tolist() if isinstance(found, LazyArray) else found
    if not all(type(row) is dict and row.keys() == first.keys() for row in values):
        raise malformed("the objects in 'predictions' differ in their keys")
    return {name: [row[name] for row in values] for name in first}


def _first(found: Any) -> Any:
    if isinstance(found, LazyArray):
        return None if len(found.shape) > 1 else next(iter(found.tolist()), None)
    return found[0] if type(found) is list and found else None
