"""The schema of the tap: which requests are written to a file, with their answers, and what is left out.

The sentence under an option is its documentation, as in ``options``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from interlingua.protocols.section import Bytes, Section, Text


class RedactOptions(Section):
    """What a recording must not hold."""

    tensors: tuple[Text, ...] = ()
    """Inputs and outputs, by the callers' name or glob (`*`, `?`, `[ab]`): their names, datatypes and shapes
    are written, and a digest in place of their data."""
    parameters: tuple[Text, ...] = ()
    """Parameters of requests, of requested outputs and of answers, by name or glob: only their names are
    written."""


class TapOptions(Section):
    """A recording of requests and their answers, to be replayed and converted."""

    path: Text
    """The file; its folder is made where there is none. A file that is there when the server starts is set
    aside as if it were full. A relative path starts at the working directory of the process."""
    models: Annotated[tuple[Text, ...], Field(min_length=1)] = ("*",)
    """Whose requests, by the name that clients use, or glob."""
    percent: Annotated[float, Field(gt=0, le=100)] = 100.0
    """The share of them to write; those of one sequence all or none."""
    max_bytes: Bytes = 268435456
    """How large a file may become. A full one is renamed to `path.1`, the one before to `path.2`, and so on.
    A request that is larger with its answer is left out and counted."""
    max_files: Annotated[int, Field(ge=1)] = 4
    """How many files there may be; the oldest goes."""
    max_queue_bytes: Bytes = 67108864
    """How much may wait to be written; what is above is left out and counted. Callers never wait."""
    headers: tuple[Text, ...] = ()
    """Headers and metadata of requests to write, by name or glob, in lower case. None by default, since they
    hold secrets."""
    redact: RedactOptions = Field(default_factory=RedactOptions)
    """What to leave out."""

    @field_validator("path")
    @classmethod
    def _a_file(cls, path: str) -> str:
        if Path(path).is_dir():
            raise ValueError(f"'{path}' is a folder; name a file in it")
        return path
