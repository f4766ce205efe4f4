"""Checks a request against the signature of its model.

The texts are Triton's, since its users match on them, after Triton's request id prefix. The decoder has
checked the bytes of a tensor against its own shape. This is the hot path: names, datatypes and shapes of
inputs that have passed are remembered.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from interlingua.runtime.models.shapes import fits
from interlingua.schemas import (
    NO_LEEWAY,
    InferenceError,
    InferHeads,
    InferRequest,
    Leeway,
    Signature,
    Tensor,
    TensorHead,
    TensorSpec,
    invalid_tensor,
    not_text,
)

Inputs = Sequence[Tensor | TensorHead]

_MOST_PASSED = 1024
"""Remembered inputs; beyond these all are forgotten, so that clients cannot grow the table without end."""

_MOST_LENGTH = 256
"""Of the names and shapes of one request that are remembered."""


class RequestCheck:
    """The checks for one version of ``model``, with ``leeway`` for requests. A request that names no output
    gets ``default_outputs``, or all without any."""

    def __init__(
        self,
        model: str,
        signature: Signature,
        leeway: Leeway = NO_LEEWAY,
        default_outputs: tuple[str, ...] = (),
    ) -> None:
        self._model = model
        self._inputs = signature.input_names
        self._required = frozenset(
            spec.name for spec in signature.inputs if not (spec.optional or leeway.missing)
        )
        self._any_input = signature.inputs[0] if leeway.names and len(signature.inputs) == 1 else None
        self._outputs = tuple(signature.output_names)
        self._default_outputs = default_outputs or self._outputs
        self._max_batch_size = signature.max_batch_size
        self.leeway = leeway
        self._passed: dict[Hashable, object] = {}

    def check(self, request: InferRequest) -> tuple[str, ...]:
        """The names of the outputs to compute, in the model's order. Raises INVALID_TENSOR naming the input
        or output at fault, UNREPRESENTABLE naming a parameter of bytes. Placement and classification of
        outputs are not the model's concern."""
        if request.parameters and not self.leeway.parameters:
            for name, value in request.parameters.items():
                if isinstance(value, bytes):
                    raise not_text(name, f"model '{self._model}'")
        if not self.leeway.inputs:
            self._check_inputs(request.inputs)
        if request.outputs is None or self.leeway.outputs:
            return self._default_outputs
        return self._requested([output.name for output in request.outputs])

    def passes(self, request: InferHeads) -> bool:
        try:
            if not self.leeway.inputs:
                self._check_inputs(request.inputs)
            if request.outputs and not self.leeway.outputs:
                self._requested(request.outputs)
        except InferenceError:
            return False
        return True

    def _check_inputs(self, inputs: Inputs) -> None:
        datatypes: object
        if len(inputs) == 1:
            tensor = inputs[0]
            key: Hashable = (tensor.name, tensor.shape)
            datatypes = tensor.datatype
        else:
            key = tuple([(tensor.name, tensor.shape) for tensor in inputs])
            datatypes = [tensor.datatype for tensor in inputs]
        # an enumeration takes long to hash
        if self._passed.get(key) == datatypes:
            return
        self._check_new(inputs)
        if sum([len(tensor.name) + len(tensor.shape) for tensor in inputs]) <= _MOST_LENGTH:
            if len(self._passed) >= _MOST_PASSED:
                self._passed.clear()
            self._passed[key] = datatypes

    def _check_new(self, inputs: Inputs) -> None:
        names = {tensor.name for tensor in inputs}
        if len(names) != len(inputs):
            raise invalid_tensor(
                f"input '{_repeated([tensor.name for tensor in inputs])}' already exists in request"
            )
        if len(inputs) > len(self._inputs) or len(inputs) < len(self._required):
            raise self._wrong_count(inputs, names)
        for tensor in inputs:
            spec = self._inputs.get(tensor.name, self._any_input)
            if spec is None:
                raise invalid_tensor(f"unexpected inference input '{tensor.name}' for model '{self._model}'")
            if tensor.datatype is not spec.datatype and not self._may_be(tensor, spec):
                raise invalid_tensor(
                    f"inference input '{tensor.name}' data-type is '{tensor.datatype.value}', "
                    f"but model '{self._model}' expects '{spec.datatype.value}'"
                )
            if (
                tensor.shape != spec.shape
                and not fits(tensor.shape, spec.shape)
                and not self._may_have_shape(tensor, spec)
            ):
                raise self._wrong_shape(tensor, spec)
        if not self._required <= names and self._any_input is None:
            raise self._wrong_count(inputs, names)
        if self._max_batch_size and inputs:
            self._check_batch(inputs)

    def _may_be(self, tensor: Tensor | TensorHead, spec: TensorSpec) -> bool:
        """Whether the model may take the other datatype of ``tensor``."""
        return self.leeway.datatypes or self.leeway.carried.get(tensor.datatype) is spec.datatype

    def _may_have_shape(self, tensor: Tensor | TensorHead, spec: TensorSpec) -> bool:
        """Whether the model may take the shape of ``tensor``, which is not that of ``spec``."""
        if tensor.name in self.leeway.shapes:
            return True
        return self.leeway.batches and bool(tensor.shape) and fits(tensor.shape, (-1, *spec.shape[1:]))

    def _check_batch(self, inputs: Inputs) -> None:
        if self.leeway.shapes:
            inputs = [tensor for tensor in inputs if tensor.name not in self.leeway.shapes]
            if not inputs:
                return
        size = inputs[0].shape[0]
        for tensor in inputs:
            if tensor.shape[0] != size:
                raise invalid_tensor(
                    f"input '{tensor.name}' batch size does not match other inputs for '{self._model}'"
                )
        if not 0 < size <= self._max_batch_size:
            limit = f"<= {self._max_batch_size}" if size else ">= 1"
            raise invalid_tensor(f"inference request batch-size must be {limit} for '{self._model}'")

    def _requested(self, outputs: Sequence[str]) -> tuple[str, ...]:
        if len(outputs) == 1 and outputs[0] in self._outputs:
            return (outputs[0],)
        names = set(outputs)
        if len(names) != len(outputs):
            raise invalid_tensor(f"output '{_repeated(outputs)}' already requested")
        for name in outputs:
            if name not in self._outputs:
                raise invalid_tensor(f"unexpected inference output '{name}' for model '{self._model}'")
        return tuple(name for name in self._outputs if name in names)

    def _wrong_count(self, inputs: Inputs, names: set[str]) -> InferenceError:
        least, most = len(self._required), len(self._inputs)
        expected = f"{most} inputs" if least == most else f"number of inputs between {least} and {most}"
        missing = [name for name in self._inputs if name in self._required and name not in names]
        return invalid_tensor(
            f"expected {expected} but got {len(inputs)} inputs for model '{self._model}'. "
            f"Got input(s) {_listed(tensor.name for tensor in inputs)}, but missing required input(s) "
            f"{_listed(missing)}. Please provide all required input(s)."
        )

    def _wrong_shape(self, tensor: Tensor | TensorHead, spec: TensorSpec) -> InferenceError:
        # the blank at the end is Triton's too
        text = (
            f"unexpected shape for input '{tensor.name}' for model '{self._model}'. "
            f"Expected {_dims(spec.shape)}, got {_dims(tensor.shape)}. "
        )
        if self._max_batch_size:
            text += "The first dimension is the batch."
        return invalid_tensor(text)


def _repeated(names: Sequence[str]) -> str:
    """The name that comes again before any other does."""
    first = {name: place for place, name in reversed(list(enumerate(names)))}
    return next(name for place, name in enumerate(names) if first[name] < place)


def _listed(names: Iterable[str]) -> str:
    return "[" + ",".join(f"'{name}'" for name in names) + "]"


def _dims(shape: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"
