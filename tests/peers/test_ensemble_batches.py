"""Ensembles without a batch dimension around models with one: the same answers from Triton and from here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http

from tests.conformance.oip_client import Server
from tests.e2e.oip_golden import golden_daemon

pytestmark = [pytest.mark.peers, pytest.mark.timeout(180)]

A = np.arange(16, dtype=np.int32)
B = np.full(16, 3, np.int32)


def ensemble(name: str, batches: int, dims: list[int]) -> dict[str, Any]:
    """Around ``simple``, which has batches of 8 and dims of 16."""

    def side(*names: str) -> list[dict[str, Any]]:
        return [{"name": each, "data_type": "TYPE_INT32", "dims": dims} for each in names]

    step = {
        "model_name": "simple",
        "model_version": -1,
        "input_map": {"INPUT0": "A", "INPUT1": "B"},
        "output_map": {"OUTPUT0": "SUM", "OUTPUT1": "DIFFERENCE"},
    }
    return {
        "name": name,
        "platform": "ensemble",
        "max_batch_size": batches,
        "input": side("A", "B"),
        "output": side("SUM", "DIFFERENCE"),
        "ensemble_scheduling": {"step": [step]},
    }


@pytest.fixture(params=["triton", "interlingua"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "triton":
        server: Server = request.getfixturevalue("triton")
        with tritonclient.http.InferenceServerClient(server.http) as found:
            yield found
    else:
        with golden_daemon(tmp_path) as server, tritonclient.http.InferenceServerClient(server.http) as found:
            yield found


@pytest.mark.parametrize(
    ("name", "dims", "shape"),
    [("fits_without_the_batch", [16], (16,)), ("fits_with_the_batch", [-1, 16], (2, 16))],
)
def test_an_ensemble_without_batches_around_a_model_with(
    client: Any, name: str, dims: list[int], shape: tuple[int, ...]
) -> None:
    client.load_model(name, config=json.dumps(ensemble(name, 0, dims)), files={"file:1/none": b""})
    try:
        inputs = []
        for each, values in (("A", A), ("B", B)):
            tensor = tritonclient.http.InferInput(each, list(shape), "INT32")
            tensor.set_data_from_numpy(np.broadcast_to(values, shape).copy())
            inputs.append(tensor)
        answer = client.infer(name, inputs)
        assert answer.as_numpy("SUM").shape == shape
        assert (answer.as_numpy("SUM") == A + B).all()
        assert (answer.as_numpy("DIFFERENCE") == A - B).all()
    finally:
        client.unload_model(name)
