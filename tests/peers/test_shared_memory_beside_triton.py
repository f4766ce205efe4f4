"""The refusals of ``tests/e2e/test_oip_shared_memory.py`` are those of a real Triton."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.oip_client import Server
from tests.e2e import test_oip_shared_memory as daemon
from tests.peers import servers

pytestmark = [pytest.mark.peers, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.triton(tmp_path_factory.mktemp("triton"), ["identity_fp32"]) as server:
        yield server


@pytest.mark.parametrize("case", daemon.REGISTERED)
def test_a_region_that_its_object_does_not_have(triton: Server, case: str) -> None:
    offset, size, text = daemon.REGISTERED[case]
    assert daemon.registered(triton.http, triton.grpc, offset, size) == daemon.refusals(text)


@pytest.mark.parametrize("side", ["input", "output"])
@pytest.mark.parametrize("case", daemon.USED)
def test_a_place_that_its_region_does_not_have(triton: Server, case: str, side: str) -> None:
    offset, size, text = daemon.USED[case]
    assert daemon.used(triton.http, triton.grpc, offset, size, side) == daemon.refusals(text)
