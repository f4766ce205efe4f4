from __future__ import annotations

from typing import Any

import pytest

from interlingua.runtime.upstream.fast_path import UpstreamFastPath


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each message on a fast path, whether it was sent there."""
    found: list[bool] = []
    begin = UpstreamFastPath.begin

    def spied(*arguments: Any) -> bool:
        found.append(begin(*arguments))
        return found[-1]

    monkeypatch.setattr(UpstreamFastPath, "begin", spied)
    return found
