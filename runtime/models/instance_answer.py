"""One response of an instance of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from interlingua.runtime.models.statistics import Execution
from interlingua.schemas import InferenceError, Parameter, Tensor


@dataclass(slots=True)
class InstanceAnswer:
    """An ``error`` fails this response; others may follow unless it is ``final``. ``started`` and ``ended``
    are the ``time.monotonic_ns()`` at which the request left the queue and the response was complete.
    Gathering its batch took ``gathering`` ns of that; ``execution`` is the run that it shares with other
    requests."""

    outputs: tuple[Tensor, ...]
    parameters: Mapping[str, Parameter]
    error: InferenceError | None
    final: bool
    started: int
    ended: int
    gathering: int = 0
    execution: Execution | None = None
