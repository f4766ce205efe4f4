"""Replaces what plans do with requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from interlingua.translator.serving.plans.cache import PlanCache
from interlingua.translator.serving.plans.forward import ForwardPlan
from interlingua.translator.serving.plans.local import LocalPlan

FORWARD = ForwardPlan
LOCAL = LocalPlan
"""The kinds of plans."""


def off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the pipeline serve every request."""
    monkeypatch.setattr(PlanCache, "execute", lambda *_: None)


def replace(monkeypatch: pytest.MonkeyPatch, kind: Any, spied: Callable[..., Any]) -> None:
    """Have requests call ``spied`` with the plan and the arguments, in place of its method."""
    monkeypatch.setattr(kind, "execute", spied)


def record(monkeypatch: pytest.MonkeyPatch, kind: Any, noted: Callable[[Any, Any], Any]) -> list[Any]:
    """What ``noted`` returns for each request that is offered to a plan from now on: for that, and its
    result."""
    found: list[Any] = []
    execute = kind.execute

    def recorded(plan: Any, *arguments: Any) -> Any:
        if kind is LOCAL:
            *others, request, route = arguments
            noting = _Noting(request)
            result = execute(plan, *others, noting, route)
            found.append(noted(plan, noting.outcome))
            return result
        result = execute(plan, *arguments)
        found.append(noted(plan, result))
        return result

    replace(monkeypatch, kind, recorded)
    return found


class _Noting:
    """A ``PlannedRequest`` that notes its response, or its execution."""

    def __init__(self, request: Any) -> None:
        self._request = request
        self.outcome: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)

    def respond(self, response: Any) -> None:
        self.outcome = response
        self._request.respond(response)

    def resume(self, execution: Any) -> None:
        self.outcome = execution
        self._request.resume(execution)
