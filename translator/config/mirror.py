"""The schema of a route's mirror: the requests to copy, their target, the tolerance of the comparison."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from interlingua.protocols.section import Bytes, Seconds, Section, Text
from interlingua.translator.config.references import KnownModel
from interlingua.translator.config.tap import RedactOptions


def _with_point(value: Any) -> Any:
    """Refuse `1e-5`, which YAML reads as text, with a hint."""
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            return value
        raise ValueError(f"'{value}' is text in YAML, write {number:.1e}")
    return value


Tolerance = Annotated[float, Field(ge=0), BeforeValidator(_with_point)]
Count = Annotated[int, Field(ge=0)]


class KeepOptions(Section):
    """A recording of requests with both answers, for replay."""

    path: Text
    """The file, truncated at every start. A relative path starts at the working directory of the process."""
    different: Count = 20
    """The number of requests with different answers to keep, half of them the first ones."""
    equal: Count = 3
    """The number of requests with equal answers to keep, half of them the first ones."""
    max_bytes: Bytes = 67108864
    """The maximum size of the file."""
    redact: RedactOptions = Field(default_factory=RedactOptions)
    """The parts to redact, in the report too."""


class MirrorOptions(Section):
    """Copies of requests. Their answers are compared with the callers' answers."""

    to: KnownModel
    """The target of the copies, a local or an upstream model in any dialect. Copies name no version."""
    percent: Annotated[float, Field(gt=0, le=100)] = 100.0
    """The share of requests to copy; of a sequence all or none."""
    rtol: Tolerance = 1.0e-5
    """The relative tolerance: floats may differ by `atol` + `rtol` times the caller's value. Everything
    else must be equal."""
    atol: Tolerance = 1.0e-8
    """The absolute tolerance of floats."""
    max_concurrency: Annotated[int, Field(ge=1)] = 4
    """The maximum number of concurrent copies."""
    max_queue_requests: Annotated[int, Field(ge=1)] = 1000
    """The maximum number of waiting and running copies; further copies are dropped and counted."""
    max_queue_bytes: Bytes = 67108864
    """The maximum size of inputs and callers' outputs held for copies; further copies are dropped and
    counted."""
    request_timeout_secs: Seconds = 10.0
    """The time limit of one copy; a caller's own limit applies too."""
    finish_secs: Annotated[float, Field(ge=0)] = 5.0
    """The time for waiting copies to end when the server stops, before they are dropped and counted."""
    redact: RedactOptions = Field(default_factory=RedactOptions)
    """The parts to redact in the report, and in the recording in addition to those of `keep`."""
    keep: KeepOptions | None = None
    """The recording to keep. The default is none."""

    @property
    def redacted(self) -> RedactOptions:
        """What neither the report nor the recording shows."""
        if self.keep is None:
            return self.redact
        kept = self.keep.redact
        return RedactOptions(
            tensors=self.redact.tensors + kept.tensors, parameters=self.redact.parameters + kept.parameters
        )
