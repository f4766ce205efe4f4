"""What a configuration leaves out: the same is filled in by Triton and here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tritonclient.http

from tests.conformance.golden_repository import FOLDER
from tests.conformance.oip_client import Server
from tests.e2e.oip_golden import golden_daemon

pytestmark = [pytest.mark.peers, pytest.mark.timeout(180)]

MODEL = "configuration_defaults"
FILES = {"file:1/model.py": (FOLDER / "identity_fp32" / "1" / "model.py").read_bytes()}
TENSOR = {"data_type": "TYPE_FP32", "dims": [1]}
PLAIN = {
    "name": MODEL,
    "backend": "python",
    "max_batch_size": 8,
    "input": [{"name": "INPUT0", **TENSOR}],
    "output": [{"name": "OUTPUT0", **TENSOR}],
}


@pytest.fixture
def clients(triton: Server, tmp_path: Path) -> Iterator[list[Any]]:
    with (
        golden_daemon(tmp_path) as ours,
        tritonclient.http.InferenceServerClient(triton.http) as theirs,
        tritonclient.http.InferenceServerClient(ours.http) as own,
    ):
        yield [theirs, own]
        theirs.unload_model(MODEL)


@pytest.mark.parametrize(
    "stated",
    [
        {},
        {"dynamic_batching": {}},
        {"dynamic_batching": {"preferred_batch_size": [4]}},
        {"sequence_batching": {}},
        {"sequence_batching": {"oldest": {"max_candidate_sequences": 2}}},
        {
            "instance_group": [
                {"count": 2},
                {"kind": "KIND_CPU"},
                {"name": "x", "kind": "KIND_CPU", "count": 1},
            ]
        },
        {"optimization": {"input_pinned_memory": {"enable": False}}},
    ],
    ids=lambda stated: next(iter(stated), "plain"),
)
def test_both_fill_in_the_same(clients: list[Any], stated: dict[str, Any]) -> None:
    found = []
    for client in clients:
        client.load_model(MODEL, config=json.dumps({**PLAIN, **stated}), files=FILES)
        config = client.get_model_config(MODEL)
        kinds = ("dynamic_batching", "sequence_batching", "instance_group", "optimization", "version_policy")
        found.append({kind: config.get(kind) for kind in kinds})
    assert found[0] == found[1]
