"""Ensembles whose steps leave outputs out, or answer any number of times, behind the real daemon. What each
answers was seen of Triton 2.51 on the same repository."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from tests.conformance.oip_client import Server
from tests.e2e import ensemble_repository
from tests.e2e.daemon import Daemon
from tests.e2e.ensemble_repository import DECOUPLED, MIXED

LOADED = sorted(set(ensemble_repository.ENSEMBLES) - set(MIXED))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("ensembles")
    repository = ensemble_repository.write(folder / "models")
    daemon = Daemon.start(
        folder,
        {
            "listeners": [
                {"listen": "127.0.0.1:0", "transport": transport, "dialects": ["oip"]}
                for transport in ("http", "grpc")
            ],
            "model_repository": [{"path": str(repository), "control": "explicit", "load": LOADED}],
        },
    )
    try:
        yield Server(*daemon.addresses)
        assert not [line for line in daemon.log if "unexpected error" in line["event"]], daemon.log
    finally:
        daemon.kill()


def requested(module: Any, values: list[int]) -> Any:
    given = module.InferInput("X", [len(values)], "INT32")
    given.set_data_from_numpy(np.array(values, np.int32))
    return given


def once(
    server: Server, model: str, values: list[int], outputs: list[str] | None = None
) -> dict[str, list[int]]:
    """The outputs by name. Raises what the server says."""
    wanted = None if outputs is None else [triton_http.InferRequestedOutput(name) for name in outputs]
    with triton_http.InferenceServerClient(server.http) as client:
        answer = client.infer(model, [requested(triton_http, values)], outputs=wanted)
        names = [output["name"] for output in answer.get_response()["outputs"]]
        return {name: answer.as_numpy(name).tolist() for name in names}


def streamed(server: Server, model: str, values: list[int]) -> list[Any]:
    """What came, in order: outputs by name, or the text of an error."""
    heard: queue.Queue[Any] = queue.Queue()
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: heard.put(error or result))
        client.async_stream_infer(model, [requested(triton_grpc, values)], enable_empty_final_response=True)
        told: list[Any] = []
        while True:
            each = heard.get(timeout=30)
            if isinstance(each, InferenceServerException):
                return [*told, each.message()]
            response = each.get_response()
            if response.outputs:
                told.append({output.name: each.as_numpy(output.name).tolist() for output in response.outputs})
            if response.parameters["triton_final_response"].bool_param:
                return told


@pytest.mark.parametrize(
    ("model", "values", "told"),
    [
        ("left_out", [1, 2], {"Y": [11, 22]}),
        ("left_out", [0, 2], {"Y": [1000, 1002]}),
        ("left_out_of_the_answer", [1, 2], {"Y": [1, 2], "Z": [10, 20]}),
        ("left_out_of_the_answer", [0, 2], {"Y": [0, 2]}),
        ("left_out_but_required", [1], {"Y": [1], "Z": [10]}),
    ],
)
def test_a_step_that_leaves_an_output_out(
    server: Server, model: str, values: list[int], told: dict[str, list[int]]
) -> None:
    assert once(server, model, values) == told


def test_an_output_that_a_step_requires(server: Server) -> None:
    """The model of the next step says what it misses: 400 at Triton."""
    with pytest.raises(
        InferenceServerException, match=r"in ensemble 'left_out_but_required', step 'plain'.*'IN'"
    ) as e:
        once(server, "left_out_but_required", [0])
    assert e.value.status() == "400"
    assert once(server, "left_out_but_required", [0], ["Y"]) == {"Y": [0]}


def one(values: list[int]) -> list[Any]:
    return [{"Y": [value]} for value in values]


@pytest.mark.parametrize(
    ("model", "values", "told"),
    [
        ("repeated", [5, 6, 7], one([5, 6, 7])),
        ("repeated", [], []),
        ("repeated_alone", [5, 6], one([5, 6])),
        ("repeated_last", [5, 6], one([5, 6])),
        ("repeated_twice", [5, 6], one([5, 6])),
        ("nested", [5, 6], one([5, 6])),
        ("repeated_and_joined", [5, 6], [{"Y": [10], "Z": [5]}, {"Y": [12], "Z": [6]}]),
        ("left_out", [0], one([1000])),
    ],
)
def test_a_step_that_answers_any_number_of_times(
    server: Server, model: str, values: list[int], told: list[Any]
) -> None:
    assert streamed(server, model, values) == told


@pytest.mark.parametrize(
    ("model", "values", "before", "says"),
    [
        ("repeated_alone", [5, -2, 6], one([5]), "minus two in repeat"),
        ("repeated", [5, -1, 6], one([5]), "minus one in plain"),
        ("repeated_last", [-1, 5], [], "minus one in plain"),
        ("nested", [5, -1], one([5]), "minus one in plain"),
    ],
)
def test_a_failure_ends_the_answers(
    server: Server, model: str, values: list[int], before: list[Any], says: str
) -> None:
    *told, error = streamed(server, model, values)
    assert told == before
    assert error.startswith(f"in ensemble '{model}', step ")
    assert says in error


@pytest.mark.parametrize("model", DECOUPLED)
def test_such_an_ensemble_is_decoupled(server: Server, model: str) -> None:
    """Its configuration says so though none is stated, and a request for one answer is refused with 501."""
    with pytest.raises(InferenceServerException, match="decoupled transaction policy") as refused:
        once(server, model, [1])
    assert refused.value.status() == "501"
    with triton_http.InferenceServerClient(server.http) as client:
        assert client.get_model_config(model)["model_transaction_policy"] == {"decoupled": True}
        assert client.get_model_config("left_out").get("model_transaction_policy") in (
            None,
            {"decoupled": False},
        )


@pytest.mark.parametrize("model", MIXED)
def test_what_originates_from_different_decoupled_models_is_not_loaded(server: Server, model: str) -> None:
    with triton_http.InferenceServerClient(server.http) as client:
        with pytest.raises(
            InferenceServerException, match="originate from different decoupled models"
        ) as refused:
            client.load_model(model)
        assert refused.value.status() == "400"
        assert not client.is_model_ready(model)


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_a_decoupled_step_behind_an_upstream(server: Server, tmp_path: Path, transport: str) -> None:
    repository = ensemble_repository.write(tmp_path / "models")
    daemon = Daemon.start(
        tmp_path,
        {
            "listeners": [
                {"listen": "127.0.0.1:0", "transport": each, "dialects": ["oip"]} for each in ("http", "grpc")
            ],
            "model_repository": [
                {"path": str(repository), "load": ["plain", "repeated", "nested"], "control": "explicit"}
            ],
            "models": {"repeat": {"upstream": "there", "remote_model": "repeat"}},
            "upstreams": {
                "there": {"dialect": "oip", "transport": transport, "urls": [getattr(server, transport)]}
            },
        },
    )
    try:
        here = Server(*daemon.addresses)
        for model in ("repeated", "nested"):
            assert streamed(here, model, [5, 6, 7]) == one([5, 6, 7])
            *told, error = streamed(here, model, [5, -2])
            assert told == one([5])
            assert "minus two in repeat" in error
            with pytest.raises(InferenceServerException, match="decoupled transaction policy"):
                once(here, model, [1])
    finally:
        daemon.kill()


def test_a_caller_who_goes_away_ends_the_steps(server: Server) -> None:
    heard: queue.Queue[Any] = queue.Queue()
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: heard.put(error or result))
        client.async_stream_infer("repeated", [requested(triton_grpc, [7] * 5000)])
        assert heard.get(timeout=30).as_numpy("Y").tolist() == [7]
        client.stop_stream(cancel_requests=True)
    # the models are free for others
    assert streamed(server, "repeated", [5]) == one([5])


def test_the_steps_are_counted(server: Server) -> None:
    def counts() -> list[int]:
        with triton_http.InferenceServerClient(server.http) as client:
            told = [client.get_inference_statistics(name) for name in ("repeated", "repeat", "plain")]
        return [each["model_stats"][0]["inference_stats"]["success"]["count"] for each in told]

    before = counts()
    streamed(server, "repeated", [1, 2, 3])
    assert [now - then for now, then in zip(counts(), before, strict=True)] == [1, 1, 3]
