"""Records some requests with both of their answers, for inspection and replay."""

from __future__ import annotations

import logging
from pathlib import Path

from interlingua.translator.config.mirror import KeepOptions
from interlingua.translator.recording.files import RecordingWriter
from interlingua.translator.recording.record import Record
from interlingua.translator.recording.redaction import Redaction
from interlingua.translator.recording.shared_file import writer as recording_writer

_log = logging.getLogger(__name__)

_OVERHEAD_BYTES = 2048
"""The approximate size of a record without its tensors."""


class _Sample:
    """Chooses up to ``limit`` of an unknown number: the first half immediately, then one at each doubling of
    the count, so that late ones are included."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._at_once = (limit + 1) // 2
        self._came = 0
        self._next = 0

    def takes(self) -> bool:
        """Count one candidate; whether it is chosen."""
        self._came += 1
        if not self._left or (self._came > self._at_once and self._came < self._next):
            return False
        self._left -= 1
        self._next = 2 * self._came
        return True


class Pairs:
    """Records pairs as ``options`` say, in a file that is ``shared`` with other processes or not. Call
    :meth:`takes` on one thread and :meth:`write` on one."""

    def __init__(self, options: KeepOptions, shared: bool = False) -> None:
        self._shared = shared
        self._path = Path(options.path)
        self.redaction = Redaction(options.redact.tensors, options.redact.parameters)
        self._free_bytes = options.max_bytes
        self._samples = {False: _Sample(options.different), True: _Sample(options.equal)}
        self._writer: RecordingWriter | None = None
        self._failed = False

    def takes(self, equal: bool, nbytes: int) -> bool:
        """Whether to record a pair of ``nbytes`` whose answers are ``equal`` or not."""
        nbytes += _OVERHEAD_BYTES
        if self._failed or nbytes > self._free_bytes or not self._samples[equal].takes():
            return False
        self._free_bytes -= nbytes
        return True

    def write(self, record: Record) -> bool:
        """Write ``record``. On failure log once, return False, and write no more."""
        try:
            if self._writer is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._writer = recording_writer(self._path, None, 2, self._shared)
            return self._writer.write(self.redaction.apply(record))
        except (OSError, ValueError) as error:
            self._failed = True
            facts = {"path": str(self._path), "reason": str(error)}
            _log.error("mirror pairs not written", extra={"facts": facts})
            return False

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
