"""The configuration of a model's sequences, in the words of ``sequence_batching`` in ``config.pbtxt``."""

from __future__ import annotations

from dataclasses import dataclass

from interlingua.schemas import Datatype, Tensor

DEFAULT_IDLE_US = 1_000_000
"""The default time without a request, in microseconds, after which a sequence is over."""

START, END, READY, CORRELATION_ID = (
    f"CONTROL_SEQUENCE_{kind}" for kind in ("START", "END", "READY", "CORRID")
)
CONTROL_KINDS = frozenset({START, END, READY, CORRELATION_ID})


@dataclass(frozen=True, slots=True)
class Control:
    """A control input: its ``name``, its ``kind`` as in the configuration, its datatype, and the values for
    false and true."""

    name: str
    kind: str
    datatype: Datatype
    values: tuple[float, float] = (0, 1)


@dataclass(frozen=True, slots=True)
class State:
    """A state: the output ``output_name`` is the input ``input_name`` in the next request; in the first one
    that is ``initial``, of a full shape with a batch of 1. ``shape`` is full too, -1 for a free dimension."""

    input_name: str
    output_name: str
    datatype: Datatype
    shape: tuple[int, ...]
    initial: Tensor


@dataclass(frozen=True, slots=True)
class Direct:
    """A sequence keeps its row of the batch. A batch runs at once if ``minimum_utilization`` of the rows are
    ready, else after ``max_delay_us``."""

    max_delay_us: int = 0
    minimum_utilization: float = 0.0


@dataclass(frozen=True, slots=True)
class Oldest:
    """Each instance has ``max_candidates`` sequences (0: as many as a batch has rows), whose next requests
    share batches, the oldest first. The other fields are as in ``DynamicBatching``."""

    max_candidates: int = 0
    preferred_sizes: tuple[int, ...] = ()
    max_delay_us: int = 0
    preserve_ordering: bool = False


@dataclass(frozen=True, slots=True)
class SequenceBatching:
    """``iterative``: each request is a sequence of its own, which runs until the model releases it."""

    idle_us: int = DEFAULT_IDLE_US
    controls: tuple[Control, ...] = ()
    states: tuple[State, ...] = ()
    strategy: Direct | Oldest = Direct()
    iterative: bool = False

    def slots(self, max_batch_size: int) -> int:
        """How many sequences one instance has at a time."""
        rows = max(max_batch_size, 1)
        return self.strategy.max_candidates or rows if isinstance(self.strategy, Oldest) else rows
