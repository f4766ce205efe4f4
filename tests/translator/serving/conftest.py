from __future__ import annotations

from typing import Any

import pytest

from interlingua.protocols.wire import ArrivingMessage
from tests.translator.serving import spied_plans


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each message that was offered to a plan, whether it was sent there."""
    return spied_plans.record(monkeypatch, spied_plans.FORWARD, lambda _, call: call is not None)


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each message that is offered to a plan: whether it passed on while it arrived."""
    found: list[bool] = []

    execute = spied_plans.FORWARD.execute

    def spied(plan: Any, offered: Any, *arguments: Any) -> Any:
        call = execute(plan, offered, *arguments)
        found.append(call is not None and type(offered) is ArrivingMessage)
        return call

    spied_plans.replace(monkeypatch, spied_plans.FORWARD, spied)
    return found
