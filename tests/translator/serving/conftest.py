from __future__ import annotations

import pytest

from interlingua.runtime.upstream.fast_path import UpstreamFastPath
from tests.spies import results_of


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each message on a fast path, whether it was sent there."""
    return results_of(monkeypatch, UpstreamFastPath, "begin")
