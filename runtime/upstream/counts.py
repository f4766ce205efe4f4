"""The requests to an upstream's model, by version, and how they ended.

The upstream reports which version answered: clients may send any text as a version, so a version has counters
only after it has answered. Requests without an answer, not even for metadata, count as well; copies for
mirrors do not.
"""

from __future__ import annotations

import time

from interlingua.runtime.models.statistics import Course, count_failure, count_refusal, count_success
from interlingua.schemas import Context, VersionStatistics
from interlingua.schemas.status import UNNAMED_VERSION


class UpstreamCounts:
    """The counters of one model. ``answered`` is the version that answered last."""

    def __init__(self) -> None:
        self.by_version: dict[str, VersionStatistics] = {}
        self.answered = UNNAMED_VERSION

    def of(self, version: str) -> VersionStatistics:
        found = self.by_version.get(version)
        if found is None:
            found = self.by_version[version] = VersionStatistics()
        return found

    def success(self, version: str, size: int, course: Course, context: Context) -> None:
        """Count a request of ``size`` batch elements, with ``context``, that ``version`` answered (empty:
        unknown)."""
        self.answered = version or self.answered
        if not context.copied:
            count_success(self.by_version.get(self.answered) or self.of(self.answered), size, course)

    def streamed(self, size: int, began: int, context: Context) -> None:
        """Count a request that a stream answered."""
        now = time.monotonic_ns()
        context.timings["upstream"], context.ended["upstream"] = now - began, now
        self.success("", size, (began, began, began, now, now, 0), context)

    def failure(self, version: str, size: int, began: int, end: BaseException, context: Context) -> None:
        """Count a request for ``version`` that ended without an answer: by an error or a disconnected
        caller."""
        if not context.copied:
            count_failure(self._of_version(version), size, began, end)

    def refused(self, version: str, context: Context) -> None:
        """Count a request that does not fit the signature, which is not a failure of the model."""
        if not context.copied:
            count_refusal(self._of_version(version))

    def _of_version(self, version: str) -> VersionStatistics:
        return self.of(version if version in self.by_version else self.answered)
