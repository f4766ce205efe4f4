"""Version 1 clients load and unload models of the server behind the bridge, over every wire that it has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.e2e.daemon import Daemon
from tests.e2e.trtis_clients import clients_of
from tests.e2e.trtis_models import SPARE
from tests.standins.trtis_client import TrtisError

WIRES = ("trtis_http", "trtis_grpc", "oip_http", "oip_grpc")
GIVEN = {"DATA": np.zeros(3, np.float32)}
SUMS = {name: np.ones((1, 16), np.int32) for name in ("INPUT0", "INPUT1")}
READY, UNAVAILABLE = 1, 2


@pytest.fixture(scope="module", params=WIRES)
def bridge(
    request: pytest.FixtureRequest, v1: Daemon, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    """Clients of a daemon before two models, one of which it knows under two names."""
    dialect, transport = request.param.split("_")
    with clients_of(v1) as direct:
        direct["http"].load(SPARE)
    daemon = Daemon.start(
        tmp_path_factory.mktemp("bridge"),
        {
            "listeners": [
                {"listen": "127.0.0.1:0", "transport": kind, "dialects": ["trtis"]}
                for kind in ("http", "grpc")
            ],
            "models": {
                "simple": {"upstream": "old"},
                "spare": {"upstream": "old", "remote_model": SPARE},
                "alias": {"upstream": "old", "remote_model": SPARE},
            },
            "upstreams": {
                "old": {
                    "dialect": dialect,
                    "transport": transport,
                    "urls": [v1.addresses[transport == "grpc"]],
                    "control": "explicit",
                }
            },
        },
    )
    try:
        with clients_of(daemon) as clients:
            yield clients
        assert daemon.stop() == 0
    finally:
        daemon.kill()
        with clients_of(v1) as direct:
            direct["http"].unload(SPARE)


def version_of(client: Any, model: str) -> Any:
    return client.status().model_status[model].version_status[1]


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_the_bridge_is_ready_though_a_model_was_unloaded_through_it(
    bridge: dict[str, Any], transport: str
) -> None:
    """The original is ready while all models are, but for those that were unloaded on purpose."""
    client = bridge[transport]
    assert client.infer("spare", GIVEN, ["PROB"]).model_version == 1
    assert client.health("ready")
    counted = version_of(client, "spare").model_inference_count
    client.unload("spare")
    try:
        assert client.health("ready")
        for model in ("spare", "alias"):
            version = version_of(client, model)
            assert (version.ready_state, version.ready_state_reason.message) == (UNAVAILABLE, "unloaded")
            with pytest.raises(TrtisError, match="Request for unknown model"):
                client.infer(model, GIVEN, ["PROB"])
        assert version_of(client, "spare").model_inference_count == counted > 0
        assert client.status("spare").model_status["spare"].config.input[0].name == "DATA"
        assert client.infer("simple", SUMS, ["OUTPUT0"]).model_version == 1, "its server is none that fails"
    finally:
        client.load("alias")
    assert client.health("ready")
    for model in ("spare", "alias"):
        assert version_of(client, model).ready_state == READY
        assert client.infer(model, GIVEN, ["PROB"]).model_version == 1


def test_what_another_client_loads_again_is_ready(bridge: dict[str, Any], v1: Daemon) -> None:
    client = bridge["http"]
    client.unload("spare")
    with clients_of(v1) as direct:
        direct["http"].load(SPARE)
    assert version_of(client, "spare").ready_state == READY
    with clients_of(v1) as direct:
        direct["http"].unload(SPARE)
    try:
        assert not client.health("ready"), "nobody has unloaded it here since"
    finally:
        client.load("spare")
    assert client.health("ready")
