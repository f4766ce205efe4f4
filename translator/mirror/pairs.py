"""Writes some requests down, each with both of its answers, to be looked at and replayed."""

from __future__ import annotations

import logging
from pathlib import Path

from interlingua.translator.config.mirror import KeepOptions
from interlingua.translator.recording.files import RecordingWriter
from interlingua.translator.recording.record import Record
from interlingua.translator.recording.redaction import Redaction

_log = logging.getLogger(__name__)

_OVERHEAD_BYTES = 2048
"""What a record takes beside its tensors, about."""


class _Sample:
    """Chooses up to ``limit`` of any number: half of them at once, then one whenever twice as many have come,
    so that late ones are among them."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._at_once = (limit + 1) // 2
        self._came = 0
        self._next = 0

    def takes(self) -> bool:
        """Whether the one that comes now is chosen."""
        self._came += 1
        if not self._left or (self._came > self._at_once and self._came < self._next):
            return False
        self._left -= 1
        self._next = 2 * self._came
        return True


class Pairs:
    """A recording of what ``options`` want of it. Ask :meth:`takes` on one thread, and write on one."""

    def __init__(self, options: KeepOptions) -> None:
        self._path = Path(options.path)
        self._redaction = Redaction(options.redact.tensors, options.redact.parameters)
        self._room = options.max_bytes
        self._samples = {False: _Sample(options.different), True: _Sample(options.equal)}
        self._writer: RecordingWriter | None = None
        self._failed = False

    def takes(self, equal: bool, nbytes: int) -> bool:
        """Whether a pair of so many bytes is to be written, of answers that are ``equal`` or are not."""
        nbytes += _OVERHEAD_BYTES
        if self._failed or nbytes > self._room or not self._samples[equal].takes():
            return False
        self._room -= nbytes
        return True

    def write(self, record: Record) -> bool:
        """Write ``record``; False where that failed, which is logged once and ends the writing."""
        try:
            if self._writer is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._writer = RecordingWriter(self._path)
            return self._writer.write(self._redaction.apply(record))
        except (OSError, ValueError) as error:
            self._failed = True
            facts = {"path": str(self._path), "reason": str(error)}
            _log.error("mirror pairs not written", extra={"facts": facts})
            return False

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
