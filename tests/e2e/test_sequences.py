"""Sequences behind the real daemon, over Open Inference Protocol and version 1 alike: from start to end, what is
refused, slots and the backlog, idle sequences, two instances, implicit state."""

from __future__ import annotations

import itertools
import queue
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc

from interlingua.schemas import Datatype
from tests.e2e.daemon import Daemon
from tests.e2e.sequence_clients import Ask, Refusal, answer_of, clients_of, input_of, options_of
from tests.runtime.onnx_models import node, value, write
from tests.standins.trtis_client import TrtisError
from tests.standins.trtis_grpc_client import TrtisGrpc

STATE = 'state { input_name: "sum" output_name: "next" data_type: TYPE_INT32 dims: 1 }'
ONNX = {
    "direct": f"max_batch_size: 2 sequence_batching {{ {STATE} max_sequence_idle_microseconds: 30000000 }}",
    "oldest": f"""max_batch_size: 4 sequence_batching {{ {STATE} max_sequence_idle_microseconds: 30000000
        oldest {{ max_candidate_sequences: 2 }} }}""",
    "idle": f"max_batch_size: 1 sequence_batching {{ {STATE} max_sequence_idle_microseconds: 400000 }}",
}
"""Models on ONNX Runtime whose answer is the sum of the sequence, which they know from their state."""

PYTHON = """
import os
import numpy as np
import triton_python_backend_utils as pb

class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        answers = []
        for request in requests:
            key, start, end = (
                pb.get_input_tensor_by_name(request, name).as_numpy().item() for name in ("ID", "START", "END")
            )
            assert key.decode() == str(request.correlation_id())
            x = pb.get_input_tensor_by_name(request, "IN").as_numpy().item()
            total = self.sums[key] = x + (0 if start else self.sums[key])
            if end:
                del self.sums[key]
            told = np.array([[total, os.getpid()]], np.int32)
            answers.append(pb.InferenceResponse([pb.Tensor("OUT", told)]))
        return answers
"""
PYTHON_CONFIG = """
backend: "python" max_batch_size: 1 instance_group [ { count: 2 } ]
input [ { name: "IN" data_type: TYPE_INT32 dims: 1 } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: 2 } ]
sequence_batching {
  max_sequence_idle_microseconds: 30000000
  control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }
  control_input { name: "END" control { kind: CONTROL_SEQUENCE_END bool_false_true: [ false, true ] } }
  control_input { name: "ID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } }
}
"""

NOBATCH = """
platform: "ensemble"
input { name: "IN" data_type: TYPE_INT32 dims: 1 } output { name: "OUT" data_type: TYPE_INT32 dims: 1 }
ensemble_scheduling { step { model_name: "direct" model_version: -1
  input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } } }
"""
"""An ensemble without a batch dimension around a model of sequences with one, as NVIDIA's
``sequence_*_nobatch_*`` are."""


INVALID = {
    "oip over http": "400",
    "oip over grpc": "StatusCode.INVALID_ARGUMENT",
    "oip in a stream": "in the stream",
    "v1 over http": "INVALID_ARG",
    "v1 over grpc": "INVALID_ARG",
}


def write_sum(models: Path, name: str) -> None:
    """A model of sequences, which answers with the sum of the numbers so far."""
    write(
        models / name / "1" / "model.onnx",
        [node("Add", ["IN", "sum"], ["OUT"]), node("Identity", ["OUT"], ["next"])],
        [value(each, Datatype.INT32, ["n", 1]) for each in ("IN", "sum")],
        [value(each, Datatype.INT32, ["n", 1]) for each in ("OUT", "next")],
    )
    (models / name / "config.pbtxt").write_text(
        'input { name: "IN" data_type: TYPE_INT32 dims: 1 } '
        f'output {{ name: "OUT" data_type: TYPE_INT32 dims: 1 }} {ONNX[name]}'
    )


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with all models, over HTTP and over gRPC."""
    folder = tmp_path_factory.mktemp("sequences")
    models = folder / "models"
    for name in ONNX:
        write_sum(models, name)
    (models / "two" / "1").mkdir(parents=True)
    (models / "two" / "1" / "model.py").write_text(PYTHON)
    (models / "two" / "config.pbtxt").write_text(PYTHON_CONFIG)
    (models / "nobatch" / "1").mkdir(parents=True)
    (models / "nobatch" / "config.pbtxt").write_text(NOBATCH)
    daemon = Daemon.start(
        folder,
        {
            "listeners": [{"listen": "127.0.0.1:0", "transport": kind} for kind in ("http", "grpc")],
            "admin": {"listen": "127.0.0.1:0"},
            "model_repository": [{"path": str(models)}],
        },
    )
    try:
        yield daemon
        assert daemon.stop() == 0
        assert not [line for line in daemon.log if "unexpected error" in line["event"]], daemon.log
    finally:
        daemon.kill()


@pytest.fixture
def addresses(daemon: Daemon) -> list[str]:
    return daemon.addresses


@pytest.fixture
def grpc(addresses: list[str]) -> str:
    return addresses[1]


@pytest.fixture
def clients(addresses: list[str]) -> dict[str, Ask]:
    http, grpc = addresses
    return clients_of(http, grpc)


@pytest.fixture(params=list(INVALID))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def ask(clients: dict[str, Ask], kind: str) -> Ask:
    return clients[kind]


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


IDS = itertools.count(1000)

both = pytest.mark.parametrize("model", ["direct", "oldest"])
every = pytest.mark.parametrize("model", ["direct", "oldest", "two"])


@pytest.mark.parametrize("kind", ["v1 over http", "v1 over grpc"])
def test_a_sequence_through_an_ensemble_without_batches(ask: Ask) -> None:
    identity = next(IDS)
    assert ask("nobatch", 1, identity, "s") == [1]
    assert ask("nobatch", 2, identity) == [3]
    assert ask("nobatch", 3, identity, "e") == [6]


@every
def test_from_start_to_end(ask: Ask, model: str) -> None:
    first, second = next(IDS), next(IDS)
    assert ask(model, 1, first, "s")[0] == 1
    assert ask(model, 10, second, "s")[0] == 10
    assert ask(model, 2, first)[0] == 3
    assert ask(model, 20, second, "e")[0] == 30
    assert ask(model, 4, first, "e")[0] == 7
    assert ask(model, 5, first, "se")[0] == 5


@every
def test_what_is_refused(ask: Ask, kind: str, model: str) -> None:
    identity = next(IDS)
    no_id = "a non-zero correlation ID" if kind.startswith("v1") else "a non-zero or non-empty correlation ID"
    refusals = {
        f"inference request for sequence {identity} to model '{model}' must specify the START flag on the first "
        "request of the sequence": (1, identity),
        f"inference request to model '{model}' must specify {no_id}": (1, 0, "s"),
    }
    if model != "two":
        # the other takes no batch at all
        refusals[
            f"inference request to model '{model}' must specify batch-size 1 due to requirements of sequence "
            "batcher"
        ] = (1, identity, "s", 2)
    for said, asked in refusals.items():
        with pytest.raises(Refusal) as caught:
            ask(model, *asked)
        assert caught.value.code == INVALID[kind]
        assert said in caught.value.message
    ask(model, 1, identity, "se")
    with pytest.raises(Refusal, match="START flag"):
        ask(model, 1, identity)


@pytest.mark.parametrize("name", ["oip over http", "oip over grpc", "oip in a stream"])
@every
def test_an_id_may_be_a_text(clients: dict[str, Ask], name: str, model: str) -> None:
    ask = clients[name]
    identity = f"session {next(IDS)} é"
    assert ask(model, 1, identity, "s")[0] == 1
    assert ask(model, 2, identity, "e")[0] == 3
    with pytest.raises(Refusal, match="non-zero or non-empty correlation ID"):
        ask(model, 1, "", "s")


@both
def test_more_sequences_than_slots(ask: Ask, model: str, daemon: Daemon, threads: ThreadPoolExecutor) -> None:
    first, second, third, fourth = (next(IDS) for _ in range(4))
    ask(model, 1, first, "s")
    ask(model, 2, second, "s")
    waiting = threads.submit(ask, model, 3, third, "s")
    daemon.until_queued(model, 1)
    behind = threads.submit(ask, model, 4, fourth, "se")
    daemon.until_queued(model, 2)
    assert ask(model, 1, second)[0] == 3, "who has a slot goes on"
    assert not waiting.done() and not behind.done()
    assert ask(model, 1, first, "e")[0] == 2
    assert waiting.result(60)[0] == 3
    assert not behind.done()
    assert ask(model, 1, third, "e")[0] == 4
    assert behind.result(60)[0] == 4
    assert ask(model, 1, second, "e")[0] == 4


def test_an_idle_sequence_gives_its_slot_away(ask: Ask, threads: ThreadPoolExecutor) -> None:
    first, second = next(IDS), next(IDS)
    began = time.monotonic()
    ask("idle", 1, first, "s")
    assert ask("idle", 2, second, "se") == [2]
    assert 0.4 <= time.monotonic() - began < 20
    with pytest.raises(Refusal, match=f"sequence {first} to model 'idle' must specify the START flag"):
        ask("idle", 1, first)


@every
def test_a_start_on_a_live_id_begins_again(ask: Ask, model: str) -> None:
    identity = next(IDS)
    assert [ask(model, number, identity, flags)[0] for number, flags in ((1, "s"), (2, ""))] == [1, 3]
    assert [ask(model, number, identity, flags)[0] for number, flags in ((5, "s"), (6, "e"))] == [5, 11]


def test_a_sequence_stays_on_its_instance(ask: Ask) -> None:
    first, second = next(IDS), next(IDS)
    begun = [ask("two", 1, identity, "s") for identity in (first, second)]
    processes = [process for _, process in begun]
    assert len(set(processes)) == 2, "each instance has one slot"
    for total in (2, 3):
        assert [ask("two", 1, identity) for identity in (first, second)] == [
            [total, process] for process in processes
        ]
    assert [ask("two", 1, identity, "e")[0] for identity in (first, second)] == [4, 4]


def test_a_sequence_may_change_its_dialect(clients: dict[str, Ask]) -> None:
    identity = next(IDS)
    flags = ["s", "", "", "", "e"]
    sums = [ask("direct", 1, identity, flag)[0] for ask, flag in zip(clients.values(), flags, strict=True)]
    assert sums == [1, 2, 3, 4, 5]


STEPS = [(5, 1, "s"), (6, 10, "s"), (5, 2, ""), (6, 20, "e"), (5, 3, "e"), (5, 4, ""), (5, 7, "se")]
"""Steps of two sequences that are sent without waiting: a sequence, a value and flags."""
SUMS = [1, 10, 3, 30, 6, None, 7]


@both
def test_sequences_in_one_stream(grpc: str, model: str) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    base = next(IDS) * 10
    with triton_grpc.InferenceServerClient(grpc) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for identity, number, flags in STEPS:
            tensors = [input_of(triton_grpc, number, 1)]
            client.async_stream_infer(model, tensors, **options_of(base + identity, flags))
        found = [answers.get(timeout=60) for _ in STEPS]
        client.stop_stream()
    sums = [None if error is not None else answer_of(result)[0] for result, error in found]
    assert sorted(map(str, sums)) == sorted(map(str, SUMS))
    (refused,) = [error.message() for _, error in found if error is not None]
    assert "must specify the START flag" in refused


@both
def test_sequences_in_one_stream_of_version_1(grpc: str, model: str) -> None:
    client = TrtisGrpc(grpc)
    base = next(IDS) * 10
    context = client.context(model)
    requests = []
    for identity, number, flags in STEPS:
        fields = {"correlation_id": base + identity, "flags": ("s" in flags) + 2 * ("e" in flags)}
        requests.append(context.request({"IN": np.array([[number]], np.int32)}, ["OUT"], **fields))
    sums: list[int | None] = []
    refusals = []
    for response in client.stream(requests):
        try:
            sums.append(int(context.read(response).outputs["OUT"].item()))
        except TrtisError as error:
            refusals.append(error)
            sums.append(None)
    assert sums == SUMS
    assert [error.code for error in refusals] == ["INVALID_ARG"]
    assert "must specify the START flag" in refusals[0].message
    client.close()
