"""Records some requests with both of their answers, for inspection and replay."""

from __future__ import annotations

import logging
from pathlib import Path

from interlingua.translator.config.mirror import KeepOptions
from interlingua.translator.mirror.kept import KeptCounts
from interlingua.translator.recording.files import RecordingWriter
from interlingua.translator.recording.record import Record
from interlingua.translator.recording.redaction import Redaction
from interlingua.translator.recording.shared_file import writer as recording_writer

_log = logging.getLogger(__name__)

_OVERHEAD_BYTES = 2048
"""The approximate size of a record without its tensors."""


def _permitted(limit: int, came: int) -> int:
    """How many of ``came`` candidates to take, of an unknown number, up to ``limit``: the first half at once,
    then one at each doubling of the count, so that late ones are included."""
    at_once = (limit + 1) // 2
    if came <= at_once:
        return at_once
    return min(limit, at_once + (came // at_once).bit_length() - 1) if at_once else 0


class Pairs:
    """Records pairs as ``options`` say, without what ``redaction`` covers, in a file that is ``shared`` with
    other processes or not, which have ``counts`` together. Call :meth:`takes` on one thread and :meth:`write`
    on one."""

    def __init__(
        self,
        options: KeepOptions,
        redaction: Redaction,
        shared: bool = False,
        counts: KeptCounts | None = None,
    ) -> None:
        self._shared = shared
        self._counts = KeptCounts.alone() if counts is None else counts
        self._path = Path(options.path)
        self._redaction = redaction
        self._most_bytes = options.max_bytes
        self._limits = {False: options.different, True: options.equal}
        self._writer: RecordingWriter | None = None
        self._failed = False

    def takes(self, equal: bool, nbytes: int) -> bool:
        """Whether to record a pair of ``nbytes`` whose answers are ``equal`` or not."""
        if self._failed:
            return False
        nbytes += _OVERHEAD_BYTES
        bytes_taken = self._counts.nbytes
        if bytes_taken.add(nbytes) <= self._most_bytes and self._claim(equal):
            return True
        bytes_taken.add(-nbytes)
        return False

    def _claim(self, equal: bool) -> bool:
        """Count a candidate; whether it is taken."""
        came, taken = self._counts.came[equal], self._counts.taken[equal]
        permitted = _permitted(self._limits[equal], came.add(1))
        if taken.add(1) <= permitted:
            return True
        taken.add(-1)
        return False

    def write(self, record: Record) -> bool:
        """Write ``record``. On failure log once, return False, and write no more."""
        try:
            if self._writer is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._writer = recording_writer(self._path, None, 2, self._shared)
            return self._writer.write(self._redaction.apply(record))
        except (OSError, ValueError) as error:
            self._failed = True
            facts = {"path": str(self._path), "reason": str(error)}
            _log.error("mirror pairs not written", extra={"facts": facts})
            return False

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
