"""The control inputs of a sequence: start, end, ready, and the correlation id.

Contract: one row for each request, of shape [1, 1] if shapes begin with a batch, else [1].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from interlingua.runtime.scheduling.sequence_policy import END, READY, START, Control
from interlingua.schemas import Datatype, Tensor, invalid_tensor
from interlingua.schemas import Sequence as Place

_FLAGS: dict[str, Callable[[Place], bool]] = {
    START: lambda place: place.start,
    END: lambda place: place.end,
    READY: lambda place: True,
}


def zeros(name: str, datatype: Datatype, shape: tuple[int, ...]) -> Tensor:
    """Zeros, false or empty texts."""
    if datatype is Datatype.BYTES:
        return Tensor.from_numpy(name, np.full(shape, b"", object), datatype)
    return Tensor.from_numpy(name, np.zeros(shape, datatype.dtype), datatype)


class Controls:
    def __init__(self, model: str, controls: Sequence[Control], batched: bool) -> None:
        self._model = model
        self._controls = controls
        self._shape = (1, 1) if batched else (1,)
        self._flags = {
            control.name: tuple(self._constant(control, value) for value in control.values)
            for control in controls
            if control.kind in _FLAGS
        }
        self.has_ready = any(control.kind == READY for control in controls)
        self.padding = tuple(
            self._flags[control.name][0]
            if control.kind in _FLAGS
            else zeros(control.name, control.datatype, self._shape)
            for control in controls
        )
        """For a padding row."""

    def of(self, place: Place) -> tuple[Tensor, ...]:
        """For the request at ``place``. Raises INVALID_TENSOR for an id that the input cannot hold."""
        return tuple(
            self._flags[control.name][_FLAGS[control.kind](place)]
            if control.kind in _FLAGS
            else self._correlation_id(control, place.id)
            for control in self._controls
        )

    def _constant(self, control: Control, value: float) -> Tensor:
        array = np.full(self._shape, value, control.datatype.dtype)
        return Tensor.from_numpy(control.name, array, control.datatype)

    def _correlation_id(self, control: Control, value: int | str) -> Tensor:
        if control.datatype is Datatype.BYTES:
            text = np.full(self._shape, str(value).encode(), object)
            return Tensor.from_numpy(control.name, text, Datatype.BYTES)
        try:
            # NumPy would read a number from a text
            if isinstance(value, str):
                raise ValueError("a text")
            number = np.full(self._shape, value, control.datatype.dtype)
        except (ValueError, OverflowError) as error:
            raise invalid_tensor(
                f"correlation ID '{value}' is none that model '{self._model}' takes: its input "
                f"'{control.name}' is {control.datatype.value}"
            ) from error
        return Tensor.from_numpy(control.name, number, control.datatype)
