"""Dynamic batching behind the real daemon: queue policies, priorities and order, over Open Inference Protocol
and version 1 alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from tests.e2e.daemon import WAIT_SECS, Daemon
from tests.standins.trtis_client import TrtisError
from tests.standins.trtis_grpc_client import TrtisGrpc
from tests.standins.trtis_http_client import TrtisHttp
from tests.waiting import eventually

SLOW = 99
"""The value whose execution lasts until the test ends it."""

MODEL = """
import os
import time
import numpy as np
import triton_python_backend_utils as pb

class TritonPythonModel:
    def initialize(self, args):
        self.executions = 0
        self.gate = os.path.join(args["model_repository"], "slow")

    def execute(self, requests):
        self.executions += 1
        answers = []
        for request in requests:
            x = pb.get_input_tensor_by_name(request, "IN").as_numpy()
            if x[0, 0] == 99:
                os.mkdir(self.gate)
                while os.path.exists(self.gate):
                    time.sleep(0.002)
            told = [[len(requests), self.executions, row] for row in x[:, 0]]
            answers.append(pb.InferenceResponse([pb.Tensor("OUT", np.array(told, np.int32))]))
        return answers
"""

BATCHING = {
    "plain": "max_batch_size: 8 dynamic_batching { }",
    "full": "max_batch_size: 1 dynamic_batching { default_queue_policy { max_queue_size: 2 } }",
    "rejecting": """max_batch_size: 8 dynamic_batching {
        default_queue_policy { default_timeout_microseconds: 50000 } }""",
    "delaying": """max_batch_size: 1 dynamic_batching {
        default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 1000000 } }""",
    "fixed": """max_batch_size: 8 dynamic_batching {
        default_queue_policy { default_timeout_microseconds: 90000000 } }""",
    "overridden": """max_batch_size: 8 dynamic_batching {
        default_queue_policy { default_timeout_microseconds: 90000000 allow_timeout_override: true } }""",
    "levels": "max_batch_size: 1 dynamic_batching { priority_levels: 3 default_priority_level: 2 }",
    "preferring": """max_batch_size: 8 dynamic_batching {
        preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 400000 }""",
    "patient": """max_batch_size: 8 dynamic_batching {
        preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 60000000 }""",
    "ordered": """max_batch_size: 1 instance_group [ { count: 2 } ]
        dynamic_batching { preserve_ordering: true }""",
    "unordered": "max_batch_size: 1 instance_group [ { count: 2 } ] dynamic_batching { }",
}


@dataclass(frozen=True)
class Refusal(Exception):
    """What a server said, whatever the protocol."""

    code: str
    message: str


Ask = Callable[..., Any]
"""Asks a model for rows with a value, with a priority and a timeout in microseconds; in a thread of its own."""


def _oip(package: Any, address: str) -> Ask:
    def ask(model: str, value: int, rows: int = 1, priority: int = 0, timeout: int | None = None) -> Any:
        tensor = package.InferInput("IN", [rows, 1], "INT32")
        tensor.set_data_from_numpy(np.full((rows, 1), value, np.int32))
        with package.InferenceServerClient(address) as client:
            try:
                answer = client.infer(model, [tensor], priority=priority, timeout=timeout)
            except InferenceServerException as error:
                raise Refusal(str(error.status()), error.message()) from error
        return answer.as_numpy("OUT")

    return ask


def _v1(kind: Any, address: str) -> Ask:
    def ask(model: str, value: int, rows: int = 1, priority: int = 0, timeout: int | None = None) -> Any:
        client = kind(address)
        fields = {"priority": priority, "timeout_microseconds": timeout or 0}
        try:
            answer = client.infer(model, {"IN": np.full((rows, 1), value, np.int32)}, ["OUT"], **fields)
        except TrtisError as error:
            raise Refusal(error.code, error.message) from error
        finally:
            client.close()
        return answer.outputs["OUT"]

    return ask


UNAVAILABLE = {
    "oip over http": "503",
    "oip over grpc": "StatusCode.UNAVAILABLE",
    "v1 over http": "UNAVAILABLE",
    "v1 over grpc": "UNAVAILABLE",
}


@dataclass(frozen=True)
class Models:
    """The models of a daemon, executed for as long as a test wants."""

    folder: Path
    daemon: Daemon

    @classmethod
    def serve(cls, folder: Path, names: Iterable[str]) -> Models:
        for name in names:
            version = folder / "models" / name / "1"
            version.mkdir(parents=True)
            (version / "model.py").write_text(MODEL)
            (version.parent / "config.pbtxt").write_text(
                'backend: "python"\n'
                'input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]\n'
                f'output [ {{ name: "OUT" data_type: TYPE_INT32 dims: [ 3 ] }} ]\n{BATCHING[name]}\n'
            )
        config = {
            "listeners": [{"listen": "127.0.0.1:0", "transport": kind} for kind in ("http", "grpc")],
            "admin": {"listen": "127.0.0.1:0"},
            "model_repository": [{"path": str(folder / "models")}],
        }
        return cls(folder / "models", Daemon.start(folder, config))

    def begin(self, model: str) -> None:
        """Wait until ``model`` executes ``SLOW``. Further requests wait in its queue."""
        eventually(self._gate(model).exists)

    def end(self, model: str) -> None:
        """End the execution of ``SLOW``."""
        self._gate(model).rmdir()

    def end_all(self) -> None:
        for gate in self.folder.glob("*/slow"):
            gate.rmdir()

    def _gate(self, model: str) -> Path:
        return self.folder / model / "slow"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    models = Models.serve(tmp_path_factory.mktemp("batching"), BATCHING)
    daemon = models.daemon
    try:
        yield models
        assert daemon.stop() == 0
        assert not [line for line in daemon.log if "unexpected error" in line["event"]], daemon.log
    finally:
        daemon.kill()


@pytest.fixture
def models(served: Models) -> Iterator[Models]:
    try:
        yield served
    finally:
        served.end_all()


@pytest.fixture(scope="module")
def clients(served: Models) -> dict[str, Ask]:
    http, grpc = served.daemon.addresses
    return {
        "oip over http": _oip(triton_http, http),
        "oip over grpc": _oip(triton_grpc, grpc),
        "v1 over http": _v1(TrtisHttp, http),
        "v1 over grpc": _v1(TrtisGrpc, grpc),
    }


@pytest.fixture(params=list(UNAVAILABLE))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def ask(clients: dict[str, Ask], kind: str) -> Ask:
    return clients[kind]


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as pool:
        yield pool


def busy(threads: ThreadPoolExecutor, models: Models, ask: Ask, model: str, rows: int = 1) -> Future[Any]:
    """An execution that lasts until ``models.end(model)``."""
    slow = threads.submit(ask, model, SLOW, rows)
    models.begin(model)
    return slow


def in_turn(
    threads: ThreadPoolExecutor, models: Models, ask: Ask, model: str, *asked: tuple[int, dict[str, int]]
) -> list[Future[Any]]:
    """Queue a request for every value, one after the other."""
    found = []
    for value, options in asked:
        found.append(threads.submit(ask, model, value, **options))
        models.daemon.until_queued(model, len(found))
    return found


def test_requests_of_all_dialects_meet(
    clients: dict[str, Ask], models: Models, threads: ThreadPoolExecutor
) -> None:
    slow = busy(threads, models, clients["oip over grpc"], "plain")
    asked = [threads.submit(each, "plain", row, row) for row, each in enumerate(clients.values(), 1)]
    models.daemon.until_queued("plain", 4)
    models.end("plain")
    answers = [each.result() for each in asked]
    before = int(slow.result()[0, 1])
    # rows of 1 and 2 and 3 and 4 are more than fit into 8
    together = sum(answer[0, 1] == before + 1 for answer in answers)
    assert 2 <= together <= 3
    for row, answer in enumerate(answers, 1):
        assert answer.shape == (row, 3)
        assert (answer[:, 2] == row).all()
        if answer[0, 1] == before + 1:
            assert (answer[:, 0] == together).all()


def test_the_queue_is_full(ask: Ask, kind: str, models: Models, threads: ThreadPoolExecutor) -> None:
    slow = busy(threads, models, ask, "full")
    waiting = in_turn(threads, models, ask, "full", (1, {}), (2, {}))
    with pytest.raises(Refusal) as caught:
        ask("full", 3)
    assert caught.value.code == UNAVAILABLE[kind]
    assert "Exceeds maximum queue size" in caught.value.message
    models.end("full")
    assert [int(each.result()[0, 2]) for each in (slow, *waiting)] == [SLOW, 1, 2]


def test_a_request_that_has_waited_too_long(
    ask: Ask, kind: str, models: Models, threads: ThreadPoolExecutor
) -> None:
    slow = busy(threads, models, ask, "rejecting")
    with pytest.raises(Refusal) as caught:
        ask("rejecting", 1)
    assert not slow.done(), "it is told at once"
    assert caught.value.code == UNAVAILABLE[kind]
    assert "Request timeout expired" in caught.value.message
    models.end("rejecting")
    before = int(slow.result()[0, 1])
    assert ask("rejecting", 2).tolist() == [[1, before + 1, 2]], "it has never run"


def test_a_request_that_is_delayed(ask: Ask, models: Models, threads: ThreadPoolExecutor) -> None:
    slow = busy(threads, models, ask, "delaying")
    late = threads.submit(ask, "delaying", 1)
    models.daemon.until_queued("delaying", 1)
    time.sleep(1)  # its timeout
    timely = threads.submit(ask, "delaying", 2)
    models.daemon.until_queued("delaying", 2)
    models.end("delaying")
    ran = [each.result()[0, 1] for each in (slow, timely, late)]
    assert ran == sorted(ran)


def test_a_timeout_of_ones_own(ask: Ask, kind: str, models: Models, threads: ThreadPoolExecutor) -> None:
    slow = [busy(threads, models, ask, model) for model in ("fixed", "overridden")]
    asked = [threads.submit(ask, model, 1, timeout=50_000) for model in ("fixed", "overridden")]
    with pytest.raises(Refusal) as caught:
        asked[1].result()
    assert caught.value.code == UNAVAILABLE[kind]
    assert "Request timeout expired" in caught.value.message
    models.daemon.until_queued("fixed", 1)
    time.sleep(0.1)
    models.end_all()
    assert asked[0].result()[0, 2] == 1, "where it may not ask for that"
    for each in slow:
        each.result()


def test_priorities_under_saturation(ask: Ask, models: Models, threads: ThreadPoolExecutor) -> None:
    slow = busy(threads, models, ask, "levels")
    low, default, high, none = ({"priority": level} for level in (3, 0, 1, 7))
    order = (low, 1), (default, 2), (high, 3), (none, 4), (low, 5), (high, 6)
    asked = in_turn(threads, models, ask, "levels", *((value, options) for options, value in order))
    models.end("levels")
    before = int(slow.result()[0, 1])
    ran = sorted((each.result()[0].tolist() for each in asked), key=lambda told: told[1])
    assert [value for _, _, value in ran] == [3, 6, 2, 4, 1, 5]
    assert [execution for _, execution, _ in ran] == list(range(before + 1, before + 7))


def test_a_batch_of_the_preferred_size_waits_no_longer(ask: Ask, threads: ThreadPoolExecutor) -> None:
    began = time.monotonic()
    asked = [threads.submit(ask, "patient", value) for value in range(4)]
    assert {int(each.result()[0, 0]) for each in asked} == {4}
    assert time.monotonic() - began < 30


def test_a_smaller_batch_waits_for_the_delay(ask: Ask, models: Models, threads: ThreadPoolExecutor) -> None:
    slow = busy(threads, models, ask, "preferring", rows=4)
    began = time.monotonic()
    asked = [threads.submit(ask, "preferring", value) for value in range(3)]
    models.daemon.until_queued("preferring", 3)
    models.end("preferring")
    assert {int(each.result()[0, 0]) for each in asked} == {3}
    assert time.monotonic() - began >= 0.3
    slow.result()


@pytest.mark.parametrize("model", ["ordered", "unordered"])
def test_answers_in_order(ask: Ask, model: str, models: Models, threads: ThreadPoolExecutor) -> None:
    slow = busy(threads, models, ask, model)
    quick = threads.submit(ask, model, 1)
    if model == "unordered":
        quick.result(WAIT_SECS)
        assert not slow.done()
    else:
        assert not wait([quick], 0.2).done
    models.end(model)
    assert quick.result()[0, 2] == 1
    slow.result()


def test_statistics(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    models = Models.serve(tmp_path, ["plain"])
    address = models.daemon.addresses[0]
    try:
        ask = _oip(triton_http, address)
        slow = busy(threads, models, ask, "plain")
        asked = [threads.submit(ask, "plain", 1, rows) for rows in (2, 2, 3)]
        models.daemon.until_queued("plain", 3)
        time.sleep(0.1)
        models.end("plain")
        for each in (slow, *asked):
            each.result()
        with triton_http.InferenceServerClient(address) as client:
            (told,) = client.get_inference_statistics("plain")["model_stats"]
        assert (told["inference_count"], told["execution_count"]) == (8, 2)
        runs = {each["batch_size"]: each["compute_infer"]["count"] for each in told["batch_stats"]}
        assert runs == {1: 1, 7: 1}
        v1 = TrtisHttp(address)
        status = v1.status("plain").model_status["plain"].version_status[1]
        v1.close()
        assert (status.model_inference_count, status.model_execution_count) == (8, 2)
        counted = {size: stats.success.count for size, stats in status.infer_stats.items()}
        assert counted == {1: 1, 2: 2, 3: 1}
        assert status.infer_stats[2].queue.total_time_ns > 2 * 100_000_000
    finally:
        models.daemon.kill()
