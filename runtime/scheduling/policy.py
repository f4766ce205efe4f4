"""What a configuration says of the queue of a model and of its batches, as plain values.

The words are those of ``config.pbtxt``. Reading them belongs to ``runtime.model_config.pbtxt``, keeping to
them to the other modules of this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from interlingua.runtime.scheduling.sequence_policy import SequenceBatching

MOST_PRIORITY_LEVELS = 1000


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """How requests of one priority wait. A request that has waited ``timeout_us`` (0: no limit) is
    rejected, or with ``delays`` runs after those that have not; with ``allow_override`` a request may ask
    for less. ``max_size`` is how many may wait, 0 for no limit."""

    delays: bool = False
    timeout_us: int = 0
    allow_override: bool = False
    max_size: int = 0

    def timeout_of(self, requested_us: int) -> int:
        """The microseconds that a request may wait which asks for ``requested_us``; 0 for no limit."""
        if self.allow_override and requested_us and (not self.timeout_us or requested_us < self.timeout_us):
            return requested_us
        return self.timeout_us


@dataclass(frozen=True, slots=True)
class DynamicBatching:
    """What ``dynamic_batching`` says. A batch waits ``max_delay_us`` for more, 0 for not at all; one of
    ``preferred_sizes`` does not wait, and the largest batch is the one preferred where none is stated.
    Priorities go from 1, the first to run, to ``priority_levels``; 0 levels are one."""

    preferred_sizes: tuple[int, ...] = ()
    max_delay_us: int = 0
    preserve_ordering: bool = False
    priority_levels: int = 0
    default_priority_level: int = 0
    default_policy: QueuePolicy = QueuePolicy()
    policies: Mapping[int, QueuePolicy] = field(default_factory=dict)

    def level_of(self, priority: int) -> int:
        """The level of a request that asks for ``priority``: the default for 0 and for one that there
        is not."""
        return priority if 0 < priority <= self.priority_levels else self.default_priority_level


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may be inside a model: ``queue_requests`` and their ``queue_bytes`` waiting, ``concurrent``
    requests waiting or running, 0 for no limit."""

    queue_requests: int = 10_000
    queue_bytes: int = 1 << 30
    concurrent: int = 0


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Scheduling:
    """All of it for one model. Without ``batching`` requests run one by one as they came; ``ragged``: some
    input allows requests of different shapes in a batch, so none are joined here. ``sequences`` are there for
    a model whose requests belong together, which then run by that and not by ``batching``."""

    batching: DynamicBatching | None = None
    limits: Limits = DEFAULT_LIMITS
    ragged: bool = False
    sequences: SequenceBatching | None = None
