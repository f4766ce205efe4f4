"""The configuration of a model's queue and batches, in the words of ``config.pbtxt``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from interlingua.runtime.scheduling.sequence_policy import SequenceBatching

MOST_PRIORITY_LEVELS = 1000


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """The queue of one priority. A request that has waited ``timeout_us`` (0: no limit) is rejected, or with
    ``delays`` runs after all others; with ``allow_override`` a request may shorten the timeout. ``max_size``
    limits the queue, 0 for no limit."""

    delays: bool = False
    timeout_us: int = 0
    allow_override: bool = False
    max_size: int = 0

    def timeout_of(self, requested_us: int) -> int:
        """The timeout of a request that states ``requested_us``; 0 for no limit."""
        if self.allow_override and requested_us and (not self.timeout_us or requested_us < self.timeout_us):
            return requested_us
        return self.timeout_us


@dataclass(frozen=True, slots=True)
class DynamicBatching:
    """``dynamic_batching``. A batch waits ``max_delay_us`` for more, 0 for not at all; one of
    ``preferred_sizes``, by default the largest, does not wait. Priorities go from 1, the first to run, to
    ``priority_levels``; 0 levels are one."""

    preferred_sizes: tuple[int, ...] = ()
    max_delay_us: int = 0
    preserve_ordering: bool = False
    priority_levels: int = 0
    default_priority_level: int = 0
    default_policy: QueuePolicy = QueuePolicy()
    policies: Mapping[int, QueuePolicy] = field(default_factory=dict)

    def level_of(self, priority: int) -> int:
        """The level of a request with ``priority``: the default for 0 and for an unknown one."""
        return priority if 0 < priority <= self.priority_levels else self.default_priority_level


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a model: ``queue_requests`` and ``queue_bytes`` waiting, ``concurrent`` requests waiting
    or running, 0 for no limit. Runs of up to ``inline_run_us`` may be on the event loop, 0 for none. A
    configuration states at most ``instances``; one that a client provides at most ``override_instances``, for
    all its versions together."""

    queue_requests: int = 10_000
    queue_bytes: int = 1 << 30
    concurrent: int = 0
    inline_run_us: int = 200
    instances: int = 64
    override_instances: int = 16


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Scheduling:
    """Without ``batching`` requests run one by one; ``ragged``: some input allows requests of different
    shapes in a batch, so none are joined here. A model with ``sequences`` runs by those instead of
    ``batching``."""

    batching: DynamicBatching | None = None
    limits: Limits = DEFAULT_LIMITS
    ragged: bool = False
    sequences: SequenceBatching | None = None
