"""grps clients through the daemon to a real Triton: the answers of a local model, over every wire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.conformance.oip_client import Server
from tests.e2e.grps_clients import TRANSPORTS, clients_of, daemon, examples
from tests.e2e.test_grps_bridge import DATATYPES, IDENTITIES, REFUSED, on_the_wire, same
from tests.standins.grps_client import GrpsError
from tests.standins.grps_contract import GrpsMessage, arrays_of, gtensors

pytestmark = [pytest.mark.peers, pytest.mark.timeout(180)]

WIRES = ["http", "grpc"]
A = np.arange(48, dtype=np.int32).reshape(3, 16)
B = np.full((3, 16), 7, np.int32)


@pytest.fixture(scope="module")
def clients(triton: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Clients of a daemon that has every model itself, and each once more by Triton over each wire."""
    models = ("simple", "simple_string", *IDENTITIES.values())
    config = {
        "model_repository": examples(*models),
        "models": {
            f"{model}_by_{wire}": {"upstream": wire, "remote_model": model}
            for model in models
            for wire in WIRES
        },
        "upstreams": {
            wire: {"dialect": "oip", "transport": wire, "urls": [url]}
            for wire, url in (("http", triton.http), ("grpc", triton.grpc))
        },
    }
    with daemon(tmp_path_factory.mktemp("grps_to_triton"), config) as running, clients_of(running) as found:
        yield found


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("name", [name for name in DATATYPES if name not in REFUSED])
def test_every_datatype_that_both_carry(
    clients: dict[str, Any], name: str, transport: str, wire: str
) -> None:
    given, model = on_the_wire(name), IDENTITIES[name]
    here, there = (
        arrays_of(clients[transport].predict(gtensors(called, INPUT0=given)))
        for called in (model, f"{model}_by_{wire}")
    )
    assert list(there) == list(here) == ["OUTPUT0"]
    assert same(there["OUTPUT0"], here["OUTPUT0"]) and same(here["OUTPUT0"], given)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_batches_text_and_errors(clients: dict[str, Any], transport: str, wire: str) -> None:
    client = clients[transport]
    # without a version, and with the one that Triton tells
    for model in (f"simple_by_{wire}", f"simple_by_{wire}-1"):
        arrays = arrays_of(client.predict(gtensors(model, INPUT0=A, INPUT1=B)))
        assert same(arrays["OUTPUT0"], A + B) and same(arrays["OUTPUT1"], A - B)
    words = np.vectorize(lambda number: str(number), otypes=[object])
    arrays = arrays_of(client.predict(gtensors(f"simple_string_by_{wire}", INPUT0=words(A), INPUT1=words(B))))
    assert arrays["OUTPUT0"].tolist() == words(A + B).tolist()
    with pytest.raises(GrpsError, match="simple_by"):
        client.predict(gtensors(f"simple_by_{wire}-9", INPUT0=A, INPUT1=B))
    with pytest.raises(GrpsError) as caught:
        client.predict(gtensors(f"simple_by_{wire}", INPUT0=A))
    assert caught.value.code == 500
    with pytest.raises(GrpsError, match="UINT64"):
        client.predict(gtensors(f"identity_uint64_by_{wire}", INPUT0=np.array([1], np.int64)))


@pytest.mark.parametrize("wire", WIRES)
def test_ndarrays_text_and_bytes(clients: dict[str, Any], wire: str) -> None:
    told = clients["http"].predict_json(
        {"ndarray": [0.1, -0.0, 3.4e38]}, f"?return-ndarray=true&model=identity_fp32_by_{wire}"
    )
    assert np.array(told["ndarray"], np.float32).tobytes() == np.array([0.1, -0.0, 3.4e38], "<f4").tobytes()
    for client in clients.values():
        model = f"identity_bytes_by_{wire}"
        assert client.predict(GrpsMessage(model=model, str_data="你好")).str_data == "你好"
        assert client.predict(GrpsMessage(model=model, bin_data=b"\xff\0")).bin_data == b"\xff\0"
