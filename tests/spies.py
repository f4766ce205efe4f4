"""Replacements of methods while a test runs: one records results, one fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

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


def failing(error: Exception) -> Callable[..., NoReturn]:
    """A function that raises ``error``."""

    def fails(*_: object) -> NoReturn:
        raise error

    return fails
