"""How many requests were answered without a task: the only place that knows what plans are made of."""

from __future__ import annotations

from typing import Any

import pytest

from interlingua.translator.serving.plans.cache import PlanCache


def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Has an element for each request from now on that a plan has taken."""
    found: list[bool] = []
    execute = PlanCache.execute

    def spied(cache: Any, *arguments: Any) -> Any:
        result = execute(cache, *arguments)
        if result is not None:
            found.append(True)
        return result

    monkeypatch.setattr(PlanCache, "execute", spied)
    return found
