from __future__ import annotations

import pytest

from tests.translator.serving import spied_paths


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each message that was offered to a fast path, whether it was sent there."""
    return spied_paths.record(monkeypatch, spied_paths.FAST, lambda _, call: call is not None)
