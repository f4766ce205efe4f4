"""Headers of a request as its parameters, like Triton's ``--http-header-forward-pattern`` and
``--grpc-header-forward-pattern``: text, under the names that the client wrote. Names that the Open Inference
Protocol reserves for its own parameters, such as ``priority``, stay headers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_CASE_MATTERS = "(?-i)"
"""The start of a case-sensitive RE2 pattern; Python has no such flag."""

_RESERVED = re.compile(
    "sequence_id|sequence_start|sequence_end|priority|timeout|headers|triton_.*|binary_data_output",
    re.IGNORECASE,
)


class HeaderParameters:
    """Chooses headers in whose name ``pattern`` is found, in any case unless it begins with ``(?-i)``.
    Raises ``re.error`` for an invalid pattern."""

    def __init__(self, pattern: str) -> None:
        if pattern.startswith(_CASE_MATTERS):
            self._pattern = re.compile(pattern.removeprefix(_CASE_MATTERS))
        else:
            self._pattern = re.compile(pattern, re.IGNORECASE)

    def of(self, headers: Mapping[str, str]) -> dict[str, str]:
        as_sent: Mapping[str, str] = getattr(headers, "as_sent", {})
        found = {as_sent.get(name, name): value for name, value in headers.items()}
        return {
            name: value
            for name, value in found.items()
            if self._pattern.search(name) and not _RESERVED.fullmatch(name)
        }
