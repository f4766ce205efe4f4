"""Records what methods return while a test runs."""

from __future__ import annotations

from typing import Any

import pytest


def results_of(monkeypatch: pytest.MonkeyPatch, of: type, method: str) -> list[Any]:
    """The results of ``method`` of all instances ``of`` a class, one for each call from now on."""
    found: list[Any] = []
    original = getattr(of, method)

    def recorded(*arguments: Any) -> Any:
        found.append(original(*arguments))
        return found[-1]

    monkeypatch.setattr(of, method, recorded)
    return found
