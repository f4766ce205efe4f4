"""The servers of other projects, one of each for a whole run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.golden_repository import LOADED
from tests.conformance.oip_client import Server
from tests.peers import servers


@pytest.fixture(scope="session")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.triton(tmp_path_factory.mktemp("triton"), LOADED) as running:
        yield running


@pytest.fixture(scope="session")
def mlserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.mlserver(tmp_path_factory.mktemp("mlserver")) as running:
        yield running


@pytest.fixture(scope="session")
def kserve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.kserve(tmp_path_factory.mktemp("kserve")) as running:
        yield running
