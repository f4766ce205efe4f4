"""What a configuration says of requests that belong together, as plain values.

The words are those of ``sequence_batching`` in ``config.pbtxt``. Reading them belongs to
``runtime.model_config.pbtxt``, keeping to them to the other modules of this package.
"""

from __future__ import annotations

from dataclasses import dataclass

from interlingua.schemas import Datatype, Tensor

DEFAULT_IDLE_US = 1_000_000
"""After so many microseconds without a request a sequence is over, where nothing is stated."""

START, END, READY, CORRELATION_ID = (
    f"CONTROL_SEQUENCE_{kind}" for kind in ("START", "END", "READY", "CORRID")
)
CONTROL_KINDS = frozenset({START, END, READY, CORRELATION_ID})


@dataclass(frozen=True, slots=True)
class Control:
    """An input that tells the model of the sequence: ``name``, what it tells by the name in the
    configuration, its datatype, and the values for false and true."""

    name: str
    kind: str
    datatype: Datatype
    values: tuple[float, float] = (0, 1)


@dataclass(frozen=True, slots=True)
class State:
    """What the model remembers of a sequence: its output ``output_name`` is its input ``input_name`` in the
    next request. In the first one that is ``initial``, of a full shape with a batch of 1. ``shape`` is full
    too, -1 for a free dimension."""

    input_name: str
    output_name: str
    datatype: Datatype
    shape: tuple[int, ...]
    initial: Tensor


@dataclass(frozen=True, slots=True)
class Direct:
    """A sequence keeps its row of the batch. A batch runs at once where ``minimum_utilization`` of the rows
    are ready, else after ``max_delay_us``."""

    max_delay_us: int = 0
    minimum_utilization: float = 0.0


@dataclass(frozen=True, slots=True)
class Oldest:
    """Each instance has ``max_candidates`` sequences (0: as many as a batch has rows), whose next requests
    meet in batches, the oldest first. The others are as in ``DynamicBatching``."""

    max_candidates: int = 0
    preferred_sizes: tuple[int, ...] = ()
    max_delay_us: int = 0
    preserve_ordering: bool = False


@dataclass(frozen=True, slots=True)
class SequenceBatching:
    """All that a configuration says of sequences. ``iterative``: each request is a sequence of its own, which
    runs until the model lets it go."""

    idle_us: int = DEFAULT_IDLE_US
    controls: tuple[Control, ...] = ()
    states: tuple[State, ...] = ()
    strategy: Direct | Oldest = Direct()
    iterative: bool = False

    def slots(self, max_batch_size: int) -> int:
        """How many sequences one instance has at a time."""
        rows = max(max_batch_size, 1)
        return self.strategy.max_candidates or rows if isinstance(self.strategy, Oldest) else rows
