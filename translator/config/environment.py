"""Environment variables in values of the file: ``${NAME}``, ``${NAME:-default}``, and ``$$`` for a dollar.

A default also replaces an empty variable (POSIX.1-2017, 2.6.2). Any other dollar is plain text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_DOLLAR = re.compile(
    r"\$(?:(?P<escaped>\$)|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<or>:-(?P<default>[^}]*))?\}|(?P<open>\{))"
)


def substituted(text: str, variables: Mapping[str, str]) -> str:
    """``text`` with the values of its variables. Raises ``ValueError`` that names one that is not set."""

    def value(found: re.Match[str]) -> str:
        if found["escaped"]:
            return "$"
        if found["open"]:
            raise ValueError("'${' without the name of a variable and '}'; '$$' is a dollar sign")
        known = variables.get(found["name"])
        if found["or"]:
            return known or found["default"]
        if known is None:
            raise ValueError(f"environment variable '{found['name']}' is not set")
        return known

    return _DOLLAR.sub(value, text)
