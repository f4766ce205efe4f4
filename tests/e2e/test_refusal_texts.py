"""What Triton refuses, the daemon refuses in Triton's words; ``tests/peers`` holds the same table to a real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.oip_client import Server
from tests.conformance.refusal_texts import TABLE, write_models
from tests.e2e.daemon import Daemon


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("refusal-texts")
    write_models(folder / "repository")
    daemon = Daemon.start(
        folder,
        {
            "listeners": [
                {"listen": "127.0.0.1:0", "transport": transport, "dialects": ["oip"]}
                for transport in ("http", "grpc")
            ],
            "model_repository": [{"path": str(folder / "repository")}],
        },
    )
    try:
        yield Server(*daemon.addresses)
        assert daemon.stop() == 0
    finally:
        daemon.kill()


@pytest.mark.parametrize("name", TABLE)
def test_texts_that_users_of_triton_match_on(server: Server, name: str) -> None:
    refused = TABLE[name]
    status, text = refused.send(server)
    assert status == (400 if refused.message is None else "INVALID_ARGUMENT"), text
    assert text.startswith(refused.text)
