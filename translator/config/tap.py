"""The schema of the tap, which records requests and their answers in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from interlingua.protocols.section import Bytes, Section, Text


class RedactOptions(Section):
    """The parts of messages that are not recorded."""

    tensors: tuple[Text, ...] = ()
    """Inputs and outputs, by the callers' name or glob (`*`, `?`, `[ab]`). A digest replaces their data;
    names, datatypes and shapes are recorded."""
    parameters: tuple[Text, ...] = ()
    """Parameters of requests, of requested outputs and of answers, by name or glob: only their names are
    recorded."""


class TapOptions(Section):
    """A recording of requests and their answers, for replay and conversion."""

    path: Text
    """The file; its folder is created if necessary. A file that exists at start is rotated as if it were
    full. A relative path starts at the working directory of the process."""
    models: Annotated[tuple[Text, ...], Field(min_length=1)] = ("*",)
    """The models whose requests to record, by the name that clients use, or glob."""
    percent: Annotated[float, Field(gt=0, le=100)] = 100.0
    """The share of requests to record; of a sequence all or none."""
    max_bytes: Bytes = 268435456
    """The maximum size of a file. A full one is renamed to `path.1`, the previous one to `path.2`, and so
    on. A request that is larger with its answer is dropped and counted."""
    max_files: Annotated[int, Field(ge=1)] = 4
    """The maximum number of files; the oldest is deleted."""
    max_queue_bytes: Bytes = 67108864
    """The maximum size of the queue to the file; further requests are dropped and counted. Callers never
    wait."""
    headers: tuple[Text, ...] = ()
    """Headers and metadata of requests to record, by name or glob, in lower case. The default is none,
    since they hold secrets."""
    redact: RedactOptions = Field(default_factory=RedactOptions)
    """The parts to redact."""

    @field_validator("path")
    @classmethod
    def _a_file(cls, path: str) -> str:
        if Path(path).is_dir():
            raise ValueError(f"'{path}' is a folder; name a file in it")
        return path
