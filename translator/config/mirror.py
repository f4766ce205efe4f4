"""The schema of a route's mirror: which requests are copied, whom the copies go to, what counts as equal.

The sentence under an option is its documentation, as in ``options``.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from interlingua.protocols.section import Bytes, Seconds, Section, Text
from interlingua.translator.config.references import KnownModel
from interlingua.translator.config.tap import RedactOptions


def _with_point(value: Any) -> Any:
    """Refuses `1e-5`, which YAML takes for text, in words that help."""
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
    """Requests with both answers, written down to be replayed."""

    path: Text
    """The file to write them to, anew at every start. A relative path starts at the working directory of the
    process."""
    different: Count = 20
    """How many of those whose answers differ, half of them the first ones."""
    equal: Count = 3
    """How many of those whose answers are equal, half of them the first ones."""
    max_bytes: Bytes = 67108864
    """How large the file may become."""
    redact: RedactOptions = Field(default_factory=RedactOptions)
    """What to leave out."""


class MirrorOptions(Section):
    """Copies of requests, whose answers are compared with those that callers got."""

    to: KnownModel
    """The model that the copies go to, here or behind an upstream in any dialect. The versions are its own:
    a copy names none."""
    percent: Annotated[float, Field(gt=0, le=100)] = 100.0
    """The share of requests to copy; those of one sequence all or none."""
    rtol: Tolerance = 1.0e-5
    """By how much floats may differ: `atol` + `rtol` times the value that the caller got. Everything else is
    to be the same."""
    atol: Tolerance = 1.0e-8
    """By how much floats may differ, whatever their size."""
    max_concurrency: Annotated[int, Field(ge=1)] = 4
    """How many copies may be under way at once."""
    max_queue_requests: Annotated[int, Field(ge=1)] = 1000
    """How many copies may wait or be under way; those above are dropped and counted."""
    max_queue_bytes: Bytes = 67108864
    """How many bytes of inputs and of outputs that callers got may be held for them; what is above is dropped
    and counted."""
    request_timeout_secs: Seconds = 10.0
    """How long one copy may take; a caller's own limit goes with it."""
    finish_secs: Annotated[float, Field(ge=0)] = 5.0
    """When the server stops: how long copies that wait may take to end before they are dropped and
    counted."""
    keep: KeepOptions | None = None
    """What to write down. The default is nothing."""
