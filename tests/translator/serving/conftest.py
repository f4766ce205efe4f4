from __future__ import annotations

from typing import Any

import pytest

from interlingua.protocols.wire import ArrivingMessage
from tests.translator.serving import spied_paths


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each message that was offered to a fast path, whether it was sent there."""
    return spied_paths.record(monkeypatch, spied_paths.FAST, lambda _, call: call is not None)


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each message that is offered to a fast path: whether it passed on while it arrived."""
    found: list[bool] = []

    execute = spied_paths.FAST.execute

    def spied(plan: Any, offered: Any, *arguments: Any) -> Any:
        call = execute(plan, offered, *arguments)
        found.append(call is not None and type(offered) is ArrivingMessage)
        return call

    spied_paths.replace(monkeypatch, spied_paths.FAST, spied)
    return found
