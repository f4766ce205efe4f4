"""Requests that belong together: which sequences a model has under way, and what it is told of them.

A sequence begins with a request that has the start flag and ends with one that has the end flag, or when
no request has come for a while. Its requests run in the order in which they came, on one instance, so a
model may keep what it remembers of a sequence under its id. What a model wants to be told as inputs (start,
end, ready, id) stands in its configuration. The texts are Triton's.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from schemas import Datatype, ErrorCode, InferenceError, InferRequest, Tensor
from schemas import Sequence as Place

DEFAULT_IDLE_US = 1_000_000
"""After so many microseconds without a request a sequence is over, where nothing is stated."""

_FLAGS: dict[str, Callable[[Place], bool]] = {
    "CONTROL_SEQUENCE_START": lambda place: place.start,
    "CONTROL_SEQUENCE_END": lambda place: place.end,
    # of a request that runs; Triton also fills batches with requests that do not
    "CONTROL_SEQUENCE_READY": lambda place: True,
}
CORRELATION_ID = "CONTROL_SEQUENCE_CORRID"
CONTROL_KINDS = frozenset({*_FLAGS, CORRELATION_ID})


@dataclass(frozen=True, slots=True)
class Control:
    """An input that tells the model of the sequence: ``name``, what it tells by the name in the
    configuration, its datatype, and the values for false and true."""

    name: str
    kind: str
    datatype: Datatype
    values: tuple[float, float] = (0, 1)


@dataclass(frozen=True, slots=True)
class SequenceBatching:
    """What a configuration says of sequences."""

    idle_us: int = DEFAULT_IDLE_US
    controls: tuple[Control, ...] = ()


class Sequences:
    """The sequences of one version of model ``model``. ``batched``: shapes begin with a batch."""

    def __init__(self, model: str, batching: SequenceBatching, batched: bool) -> None:
        self._model = model
        self._controls = batching.controls
        self._idle_secs = batching.idle_us / 1e6
        self._batched = batched
        self._shape = (1, 1) if batched else (1,)
        # by the time of the last request, the oldest first
        self._last: OrderedDict[int | str, float] = OrderedDict()

    def admit(self, request: InferRequest) -> tuple[Tensor, ...]:
        """Enter ``request`` into its sequence; the inputs that tell the model of it.

        Raises INVALID_TENSOR for a batch of more than one, for a request without a sequence, and for the
        first of one without the start flag.
        """
        if self._batched and any(tensor.shape[:1] != (1,) for tensor in request.inputs):
            raise InferenceError(
                ErrorCode.INVALID_TENSOR,
                f"inference request to model '{self._model}' must specify batch-size 1 due to requirements "
                "of sequence batcher",
            )
        place = request.sequence
        if place is None:
            raise InferenceError(
                ErrorCode.INVALID_TENSOR,
                f"inference request to model '{self._model}' must specify a non-zero or non-empty "
                "correlation ID",
            )
        now = time.monotonic()
        while self._last and now - next(iter(self._last.values())) > self._idle_secs:
            self._last.popitem(last=False)
        if not place.start and place.id not in self._last:
            raise InferenceError(
                ErrorCode.INVALID_TENSOR,
                f"inference request for sequence {place.id} to model '{self._model}' must specify the "
                "START flag on the first request of the sequence",
            )
        self._last[place.id] = now
        self._last.move_to_end(place.id)
        controls = tuple(self._tensor(control, place) for control in self._controls)
        if place.end:
            del self._last[place.id]
        return controls

    def _tensor(self, control: Control, place: Place) -> Tensor:
        if control.kind != CORRELATION_ID:
            value = control.values[_FLAGS[control.kind](place)]
            return Tensor.from_numpy(
                control.name, np.full(self._shape, value, control.datatype.dtype), control.datatype
            )
        if control.datatype is Datatype.BYTES:
            text = np.full(self._shape, str(place.id).encode(), object)
            return Tensor.from_numpy(control.name, text, Datatype.BYTES)
        try:
            number = np.full(self._shape, place.id, control.datatype.dtype)
        except (ValueError, OverflowError) as error:
            raise InferenceError(
                ErrorCode.INVALID_TENSOR,
                f"correlation ID '{place.id}' is none that model '{self._model}' takes: its input "
                f"'{control.name}' is {control.datatype.value}",
            ) from error
        return Tensor.from_numpy(control.name, number, control.datatype)
