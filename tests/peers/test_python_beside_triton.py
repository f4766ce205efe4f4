"""Models written in Python answer here as they do at Triton: the same requests to both servers."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conformance.oip_client import Server
from tests.peers.beside import Servers, Stream, alike, beside, grpc, grpc_input, http
from tests.runtime.python_models import DECOUPLED, INT32, python_model

pytestmark = [pytest.mark.peers, pytest.mark.timeout(180)]

TASKS = """
async def execute(self, requests):
    self.tasks = {*getattr(self, "tasks", ()), *(asyncio.create_task(self.work(each)) for each in requests)}

async def work(self, request):
    sender = request.get_response_sender()
    for value in given(request):
        await asyncio.sleep(0.05)
        sender.send(answer([value]))
    sender.send(flags=FINAL)
"""

SLEEPS = """
async def execute(self, requests):
    for request in requests:
        await asyncio.sleep(given(request)[0] / 1000)
        request.get_response_sender().send(answer(given(request)), FINAL)
"""

ASKS = """
async def execute(self, requests):
    self.tasks = [asyncio.create_task(self.work(each)) for each in requests]

async def work(self, request):
    tensor = pb.Tensor("IN", given(request))
    asked = pb.InferenceRequest(model_name="one_by_one", inputs=[tensor], requested_output_names=["OUT"])
    found = await asked.async_exec()
    request.get_response_sender().send(
        answer(pb.get_output_tensor_by_name(found, "OUT").as_numpy() + 1), FINAL
    )
"""

ONE_BY_ONE = """
async def execute(self, requests):
    await asyncio.sleep(0.2)
    return [answer(given(request)) for request in requests]
"""

LATER = """
async def execute(self, requests):
    self.tasks = [asyncio.create_task(self.work(each)) for each in requests]

async def work(self, request):
    await asyncio.sleep(0.05)
    request.get_response_sender().send(answer(given(request) * 2), FINAL)
"""

AFTER_THE_END = """
def execute(self, requests):
    sender = requests[0].get_response_sender()
    sender.send(answer([1]), FINAL)
    sender.send(answer([2]))
"""

FAILS_HALF_WAY = """
def execute(self, requests):
    requests[0].get_response_sender().send(answer([1]))
    raise ValueError("half way")
"""

BEFORE_AND_AFTER = """
def execute(self, requests):
    for request in requests:
        before, end_before, after, end_after = given(request)
        sender = request.get_response_sender()
        for number in range(before):
            sender.send(answer([1000 + number]))
        if end_before:
            sender.send(flags=FINAL)
        if after or end_after:
            work = threading.Thread(target=self.work, args=(sender, after, end_after))
            work.start()

def work(self, sender, after, end):
    time.sleep(0.1)
    for number in range(after):
        sender.send(answer([2000 + number]))
    if end:
        sender.send(flags=FINAL)
"""

EMPTY = """
def execute(self, requests):
    return [pb.InferenceResponse([pb.Tensor("OUT", np.zeros(given(each).tolist(), KIND))]) for each in requests]
"""

CODES = (
    "UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS", "CANCELLED",
    "none",
)  # fmt: skip

FAILS = f"""
def execute(self, requests):
    return [pb.InferenceResponse(error=self.error({CODES!r}[given(request)[0]])) for request in requests]

def error(self, name):
    return pb.TritonError("said") if name == "none" else pb.TritonError("said", getattr(pb.TritonError, name))
"""

NAMES = """
def initialize(self, args):
    self.name = args["model_instance_name"]

def execute(self, requests):
    time.sleep(0.1)
    return [pb.InferenceResponse([pb.Tensor("OUT", np.array([self.name], object))]) for request in requests]
"""

ITERATES = """
def initialize(self, args):
    self.left = {}

def execute(self, requests):
    for request in requests:
        key = request.correlation_id()
        if request.flags() & pb.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
            self.left[key] = int(given(request)[0])
        self.left[key] -= 1
        told = answer([self.left[key], request.flags(), len(requests), key != 0])
        if self.left[key]:
            request.set_release_flags(pb.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            request.get_response_sender().send(told)
        else:
            request.get_response_sender().send(told, FINAL)
"""

COLLECTS = """
def initialize(self, args):
    self.runs = {}

def execute(self, requests):
    return [self.one(request) for request in requests]

def one(self, request):
    runs = self.runs[request.correlation_id()] = self.runs.get(request.correlation_id(), 0) + 1
    if runs == given(request)[0]:
        return answer([runs, request.flags()])
    request.set_release_flags(pb.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
"""

ITERATIVE = "sequence_batching { iterative_sequence: true }"

TEXT = INT32.replace('"OUT" data_type: TYPE_INT32', '"OUT" data_type: TYPE_STRING')
GROUPS = {
    "ungrouped": ("", {"ungrouped_0"}),
    "one": ("instance_group [ { count: 1 kind: KIND_CPU } ]", {"one_0_0"}),
    "two": ("instance_group [ { count: 2 kind: KIND_CPU } ]", {"two_0_0", "two_0_1"}),
    "groups": (
        "instance_group [ { kind: KIND_CPU }, { name: 'own' count: 2 kind: KIND_CPU } ]",
        {"groups_0_0", "own_0", "own_1"},
    ),
}

MODELS = {
    **{
        f"empty_{kind}": (TEXT, EMPTY.replace("KIND", f"np.{kind}"))
        for kind in ("float64", "int8", "object_")
    },
    "empty_ints": (INT32, EMPTY.replace("KIND", "np.float64")),
    "fails": (INT32, FAILS),
    "iterates": (DECOUPLED + ITERATIVE, ITERATES),
    "collects": (INT32 + ITERATIVE, COLLECTS),
    **{name: (TEXT + groups, NAMES) for name, (groups, _) in GROUPS.items()},
    "tasks": (DECOUPLED, TASKS),
    "sleeps": (DECOUPLED, SLEEPS),
    "asks": (DECOUPLED, ASKS),
    "one_by_one": (INT32, ONE_BY_ONE),
    "later": (INT32, LATER),
    "after_the_end": (DECOUPLED, AFTER_THE_END),
    "fails_half_way": (DECOUPLED, FAILS_HALF_WAY),
    "before_and_after": (DECOUPLED, BEFORE_AND_AFTER),
}


def write(folder: Path) -> list[str]:
    for name, (config, body) in MODELS.items():
        python_model(folder, body, config, name)
    return list(MODELS)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with beside(tmp_path_factory.mktemp("python"), write) as servers:
        yield servers


def numbers(*values: int) -> list[Any]:
    return [grpc_input("IN", np.array(values, np.int32), "INT32")]


def by_request(answers: list[tuple[str, Any, bool]]) -> dict[str, list[tuple[Any, bool]]]:
    found: dict[str, list[tuple[Any, bool]]] = {}
    for id, values, final in answers:
        found.setdefault(id, []).append((values, final))
    return dict(sorted(found.items()))


def test_tasks_go_on_when_execute_has_returned(both: Servers) -> None:
    def outcome(server: Server) -> Any:
        with Stream(server) as stream:
            stream.ask("tasks", numbers(1, 2, 3), "a")
            stream.ask("tasks", numbers(7), "b")
            return by_request(stream.all(2))

    assert alike(both, outcome) == {
        "a": [([1], False), ([2], False), ([3], False), (None, True)],
        "b": [([7], False), (None, True)],
    }


def test_four_coroutines_of_a_decoupled_model_take_the_time_of_one(both: Servers) -> None:
    def outcome(server: Server) -> Any:
        began = time.monotonic()
        with Stream(server) as stream:
            for id in "abcd":
                stream.ask("sleeps", numbers(1500), id)
            found = by_request(stream.all(4))
        # one after another they take 6 seconds
        return found, time.monotonic() - began < 5

    assert alike(both, outcome) == ({id: [([1500], True)] for id in "abcd"}, True)


def test_a_short_coroutine_ends_before_a_long_one(both: Servers) -> None:
    def outcome(server: Server) -> Any:
        with Stream(server) as stream:
            stream.ask("sleeps", numbers(1500), "long")
            stream.ask("sleeps", numbers(1), "short")
            return [id for id, _, _ in stream.all(2)]

    assert alike(both, outcome) == ["short", "long"]


def test_a_task_calls_another_model(both: Servers) -> None:
    def outcome(server: Server) -> Any:
        with Stream(server) as stream:
            for number in range(3):
                stream.ask("asks", numbers(number), str(number))
            return by_request(stream.all(3))

    assert alike(both, outcome) == {str(number): [([number + 1], True)] for number in range(3)}


def test_coroutines_of_other_models_run_one_after_another(both: Servers) -> None:
    def outcome(server: Server) -> Any:
        began = time.monotonic()
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda number: grpc(server, "one_by_one", numbers(number)), range(4)))
        return found, time.monotonic() - began >= 0.8

    assert alike(both, outcome) == ([("OK", [number]) for number in range(4)], True)


def test_a_task_answers_for_a_model_that_is_not_decoupled(both: Servers) -> None:
    assert alike(both, lambda server: grpc(server, "later", numbers(3, 4))) == ("OK", [6, 8])


@pytest.mark.parametrize(
    ("before", "end_before", "after", "end_after"),
    [(0, 1, 0, 0), (0, 0, 0, 1), (1, 1, 0, 0), (0, 0, 1, 1), (2, 1, 0, 0), (0, 0, 2, 1), (1, 0, 3, 1)],
)
def test_responses_before_and_after_execute_returns(
    both: Servers, before: int, end_before: int, after: int, end_after: int
) -> None:
    def outcome(server: Server) -> Any:
        with Stream(server) as stream:
            stream.ask("before_and_after", numbers(before, end_before, after, end_after))
            return [values for _, values, _ in stream.all()]

    expected = [[1000 + number] for number in range(before)] + [[2000 + number] for number in range(after)]
    assert alike(both, outcome) == [*expected, None]


def test_nothing_comes_after_the_end(both: Servers) -> None:
    def outcome(server: Server) -> Any:
        with Stream(server) as stream:
            stream.ask("after_the_end", numbers(0))
            found = stream.all()
            with pytest.raises(queue.Empty):
                stream.take(0.5)
            return found

    assert alike(both, outcome) == [("", [1], True)]


def test_an_execute_that_raises_ends_its_stream(both: Servers) -> None:
    def outcome(server: Server) -> Any:
        with Stream(server) as stream:
            stream.ask("fails_half_way", numbers(0))
            return [
                values.partition("\n")[0] if isinstance(values, str) else values
                for _, values, _ in stream.all()
            ]

    said = "Failed to process the request(s) for model 'fails_half_way_0', message: ValueError: half way"
    assert alike(both, outcome) == [[1], said]


@pytest.mark.parametrize("model", ["empty_float64", "empty_int8", "empty_object_", "empty_ints"])
@pytest.mark.parametrize("shape", [(0,), (1, 0)])
def test_an_empty_output_of_another_datatype(both: Servers, model: str, shape: tuple[int, ...]) -> None:
    expected = np.zeros(shape).tolist()
    assert alike(both, lambda server: grpc(server, model, numbers(*shape))) == ("OK", expected)

    def over_http(server: Server) -> Any:
        given = {"name": "IN", "datatype": "INT32", "shape": [len(shape)], "data": list(shape)}
        status, answer = http(server, f"/v2/models/{model}/infer", {"inputs": [given]})
        (output,) = answer["outputs"]
        # Triton tells the datatype of the array, which nothing declares
        return status, output["shape"], output["data"]

    assert alike(both, over_http) == (200, list(shape), [])


@pytest.mark.parametrize("code", CODES)
def test_codes_of_errors(both: Servers, code: str) -> None:
    names = {"none": "INTERNAL", "INVALID_ARG": "INVALID_ARGUMENT", "UNSUPPORTED": "UNIMPLEMENTED"}
    given = numbers(CODES.index(code))
    assert alike(both, lambda server: grpc(server, "fails", given)) == (names.get(code, code), "said")


@pytest.mark.parametrize("model", GROUPS)
def test_names_of_instances(both: Servers, model: str) -> None:
    def outcome(server: Server) -> Any:
        # as many at once as there are instances, some times
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda number: grpc(server, model, numbers(number)), range(12)))
        return {name.decode() for status, (name,) in found if status == "OK"}

    assert alike(both, outcome) == GROUPS[model][1]


def test_a_request_that_is_rescheduled_comes_again(both: Servers) -> None:
    def outcome(server: Server) -> Any:
        with Stream(server) as stream:
            stream.ask("iterates", numbers(3), "a")
            stream.ask("iterates", numbers(2), "b")
            return stream.all(2)

    assert alike(both, outcome) == [
        ("a", [2, 1, 1, 1], False),
        ("a", [1, 0, 1, 1], False),
        ("a", [0, 0, 1, 1], True),
        ("b", [1, 1, 1, 1], False),
        ("b", [0, 0, 1, 1], True),
    ]


def test_an_iterative_model_that_is_not_decoupled(both: Servers) -> None:
    assert alike(both, lambda server: grpc(server, "collects", numbers(3))) == ("OK", [3, 0])


def test_an_iterative_sequence_that_has_not_started(both: Servers) -> None:
    def outcome(server: Server) -> Any:
        with Stream(server) as stream:
            stream.ask("iterates", numbers(1), sequence_id=7)
            return stream.take()[1]

    said = "inference request for sequence 7 to model 'iterates' must specify the START flag on the first request of the sequence"
    assert alike(both, outcome) == said
