"""Version 1 clients through the daemon to a real Triton: the answers of a local model, over every wire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.conformance.oip_client import Server
from tests.e2e.daemon import Daemon
from tests.e2e.trtis_clients import clients_of, refused
from tests.e2e.trtis_models import DATATYPES, LOADED, write_repository
from tests.standins.trtis_client import Top
from tests.standins.trtis_contract import NUMPY

pytestmark = [pytest.mark.peers, pytest.mark.timeout(180)]

TRANSPORTS = ["http", "grpc"]
MODELS = ("simple", "simple_string", *(f"identity_{name}" for name in DATATYPES))
A = np.arange(48, dtype=np.int32).reshape(3, 16)
B = np.full((3, 16), 7, np.int32)


@pytest.fixture(scope="module")
def clients(triton: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Clients of a daemon that has every model itself, and each once more by Triton over each wire."""
    folder = tmp_path_factory.mktemp("v1_to_triton")
    urls = {"http": triton.http, "grpc": triton.grpc}
    daemon = Daemon.start(
        folder,
        {
            "listeners": [
                {"listen": "127.0.0.1:0", "transport": transport, "dialects": ["trtis"]}
                for transport in TRANSPORTS
            ],
            "model_repository": [{"path": str(write_repository(folder / "models")), "load": list(LOADED)}],
            "models": {
                f"{model}_by_{wire}": {"upstream": wire, "remote_model": model}
                for model in (*MODELS, "cls")
                for wire in TRANSPORTS
            },
            "upstreams": {
                wire: {"dialect": "oip", "transport": wire, "urls": [url]} for wire, url in urls.items()
            },
        },
    )
    try:
        with clients_of(daemon) as both:
            yield both
        assert daemon.stop() == 0
    finally:
        daemon.kill()


def sample(model: str) -> tuple[dict[str, Any], list[str]]:
    if model.startswith("simple"):
        given = {"INPUT0": A, "INPUT1": B}
        if model == "simple_string":
            as_text = np.vectorize(lambda number: str(number).encode(), otypes=[object])
            given = {name: as_text(array) for name, array in given.items()}
        return given, ["OUTPUT1", "OUTPUT0"]
    name = model.removeprefix("identity_")
    if name == "bytes":
        return {"INPUT0": np.array([b"abc", b"", b"\xff\xfe\x00r"], object)}, ["OUTPUT0"]
    values = [0, 1, 1] if name == "bool" else [0, 1, 100]
    return {"INPUT0": np.array(values, NUMPY[f"TYPE_{DATATYPES[name]}"])}, ["OUTPUT0"]


@pytest.mark.parametrize("wire", TRANSPORTS)
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("model", MODELS)
def test_triton_answers_as_the_model_here(
    clients: dict[str, Any], model: str, transport: str, wire: str
) -> None:
    client = clients[transport]
    here, there = client.context(model), client.context(f"{model}_by_{wire}")
    assert there.config.max_batch_size == here.config.max_batch_size
    for ours, theirs in ((here.config.input, there.config.input), (here.config.output, there.config.output)):
        assert [(each.name, each.data_type, each.dims) for each in ours] == [
            (each.name, each.data_type, each.dims) for each in theirs
        ]
    inputs, outputs = sample(model)
    wanted, got = here.infer(inputs, outputs, id=3), there.infer(inputs, outputs, id=3)
    assert list(got.outputs) == list(wanted.outputs)
    for name in outputs:
        assert got.outputs[name].tolist() == wanted.outputs[name].tolist()
        assert got.outputs[name].dtype == wanted.outputs[name].dtype
    assert (got.batch_size, got.id) == (wanted.batch_size, 3)


@pytest.mark.parametrize("wire", TRANSPORTS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_classes_are_exact_though_triton_rounds(clients: dict[str, Any], transport: str, wire: str) -> None:
    rows = np.array([[1, 4, 2, 3], [4, 3, 2, 4]], np.float32) / 3
    raw = clients[transport].infer(f"cls_by_{wire}", {"INPUT0": rows}, ["OUTPUT0"]).outputs["OUTPUT0"]
    classes = (
        clients[transport].infer(f"cls_by_{wire}", {"INPUT0": rows}, {"OUTPUT0": Top(3)}).outputs["OUTPUT0"]
    )
    for row, entry in zip(raw, classes, strict=True):
        order = np.argsort(-row, kind="stable")[:3]
        assert [(index, value) for index, value, _ in entry] == [(i, float(row[i])) for i in order]


@pytest.mark.parametrize("wire", TRANSPORTS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_triton_refuses(clients: dict[str, Any], transport: str, wire: str) -> None:
    inputs, outputs = sample("simple")
    with refused("UNAVAILABLE", "Request for unknown model: 'simple' version 9 is not found"):
        clients[transport].infer(f"simple_by_{wire}", inputs, outputs, version=9)
    words = {name: np.full((1, 16), b"no number", object) for name in inputs}
    with refused("INTERNAL", ""):
        clients[transport].infer(f"simple_string_by_{wire}", words, outputs)
