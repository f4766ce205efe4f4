"""Every test of a transport runs on both event loops: their sockets differ in detail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

from tests.protocols.transport import peers


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=["native", "library"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whose HTTP server it is; whoever asks for it is tested with each."""
    chosen: str = request.param
    monkeypatch.setattr(peers, "ENGINE", chosen)
    return chosen


@pytest.fixture(params=["native", "library"])
def client_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The implementation of HTTP clients; tests that use it run with each."""
    chosen: str = request.param
    monkeypatch.setattr(peers, "CLIENT_ENGINE", chosen)
    return chosen
