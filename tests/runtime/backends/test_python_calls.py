"""Models written in Python that ask other models."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interlingua.runtime.models.model import LocalModel
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.repository.files import load_model
from interlingua.schemas import CancelToken, Context, ErrorCode, InferenceError, InferRequest, Tensor
from tests.runtime.python_models import DECOUPLED, INT32, numbers, python_model, worker
from tests.waiting import until

TWICE = """
def execute(self, requests):
    return [answer(given(request) * 2) for request in requests]
"""

COUNTS_DOWN = """
def execute(self, requests):
    for request in requests:
        sender = request.get_response_sender()
        for number in range(int(given(request)[0])):
            sender.send(answer([number], parameters={"n": number}))
        sender.send(flags=FINAL)
"""

ASK = """
def ask(self, model, numbers, **more):
    given = pb.Tensor("IN", np.asarray(numbers, np.int32))
    return pb.InferenceRequest(model_name=model, inputs=[given], requested_output_names=["OUT"], **more)

def out(self, response):
    if response.has_error():
        error = response.error()
        raise pb.TritonModelException(f"{error.code()} {error.message()}")
    return pb.get_output_tensor_by_name(response, "OUT").as_numpy()
"""


class House:
    """Models that a test has loaded, in one catalog."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._models: dict[str, LocalModel] = {}
        self.catalog = ModelCatalog()

    def add(self, name: str, body: str, config: str = INT32) -> LocalModel:
        source = python_model(self._folder, ASK + body, config, name)
        self._models[name] = model = load_model(source)
        self.catalog = ModelCatalog(self._models)
        return model

    async def ask(self, name: str, *values: int, **more: Any) -> list[int]:
        tensor = Tensor.from_numpy("IN", np.array(values, np.int32))
        return numbers(await self.catalog.find(name).infer(InferRequest(name, (tensor,), **more)))

    async def fails(self, name: str, *values: int, **more: Any) -> InferenceError:
        with pytest.raises(InferenceError) as caught:
            await self.ask(name, *values, **more)
        return caught.value


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    house = House(tmp_path)
    yield house
    await house.catalog.close()


async def test_a_call_of_a_copy_is_a_copy(house: House) -> None:
    """For a mirror: no model that has part in its answer counts it as a request of its own."""
    twice = house.add("twice", TWICE)
    house.add(
        "asks",
        """
def execute(self, requests):
    return [answer(self.out(self.ask("twice", given(request)).exec()) + 1) for request in requests]
""",
    )
    assert await house.ask("asks", 1, context=Context(copied=True)) == [3]
    (version,) = twice.loaded.values()
    assert version.statistics.execution_count == 0
    assert await house.ask("asks", 1) == [3]
    assert version.statistics.execution_count == 1


@pytest.mark.parametrize("count", [0, 3, 50_000])
async def test_one_calls_another(house: House, count: int) -> None:
    house.add("twice", TWICE)
    house.add(
        "asks",
        """
def execute(self, requests):
    return [answer(self.out(self.ask("twice", given(request)).exec()) + 1) for request in requests]
""",
    )
    for _ in range(3):
        assert await house.ask("asks", *range(count)) == [2 * number + 1 for number in range(count)]
    for name in ("asks", "twice"):
        found = house.catalog.find(name)
        assert isinstance(found, LocalModel)
        assert len(worker(found)._pool._regions) <= 3


async def test_what_the_other_receives(house: House) -> None:
    house.add(
        "tells",
        """
def execute(self, requests):
    (request,) = requests
    told = [request.request_id(), request.correlation_id(), request.flags(), request.timeout(),
            request.parameters(), request.requested_output_names()]
    return [pb.InferenceResponse([pb.Tensor("OUT", np.array([str(told)], object))], parameters={"a": 1})]
""",
        INT32.replace('"OUT" data_type: TYPE_INT32', '"OUT" data_type: TYPE_STRING'),
    )
    house.add(
        "asks",
        """
def execute(self, requests):
    response = self.ask("tells", [1], request_id="r", correlation_id=7, flags=3, timeout=9,
                        parameters={"p": "q"}, model_version=1).exec()
    assert response.parameters() == '{"a": 1}', response.parameters()
    text = self.out(response)[0].decode()
    assert text == str(["r", 7, 3, 9, '{"p": "q"}', ["OUT"]]), text
    return [answer([len(text)])]
""",
    )
    assert (await house.ask("asks", 1))[0] > 0


async def test_failures_are_responses(house: House) -> None:
    house.add("fails", "def execute(self, requests):\n    raise ValueError('no')")
    house.add("streams", COUNTS_DOWN, DECOUPLED)
    house.add(
        "asks",
        """
def execute(self, requests):
    which = ["fails", "nobody", "streams", "fails"][given(requests[0])[0]]
    version = 5 if given(requests[0])[0] == 3 else -1
    return [answer(self.out(self.ask(which, [1], model_version=version).exec()))]
""",
    )
    for number, said in enumerate(
        (
            "1 Failed to process the request(s) for model 'fails_0', message: ValueError: no",
            "2 Request for unknown model: 'nobody' is not found",
            "5 model 'streams' answers in a stream",
            "2 Request for unknown model: 'fails' version 5 is not found",
        )
    ):
        assert f"TritonModelException: {said}" in (await house.fails("asks", number)).message


async def test_what_cannot_be_sent(house: House) -> None:
    house.add("twice", TWICE)
    house.add(
        "asks",
        """
def execute(self, requests):
    bad = {
        0: lambda: self.ask("twice", [1], parameters="["),
        1: lambda: self.ask("twice", [1], parameters='{"a": []}'),
        2: lambda: pb.InferenceRequest(model_name="twice", inputs=[pb.Tensor("IN", np.zeros(1, complex))]),
        3: lambda: pb.InferenceRequest(model_name="twice", inputs=[pb.Tensor("WHICH", np.zeros(1))]),
        4: lambda: self.ask(["twice"], [1]),
        5: lambda: self.ask("twice", [1], request_id=b"x"),
    }[given(requests[0])[0]]()
    return [answer(self.out(bad.exec()))]
""",
    )
    for number, said in enumerate(
        (
            "a call of model 'twice' has parameters that are not JSON",
            "a call of model 'twice' has parameters that are not plain values by name",
            "no datatype stores",
            "WHICH",
            "TypeError: unhashable",
            "TypeError",
        )
    ):
        assert said in (await house.fails("asks", number)).message
    assert "TritonModelException" in (await house.fails("asks", 0)).message


async def test_not_while_it_is_loaded(tmp_path: Path) -> None:
    body = """
def initialize(self, args):
    self.ask("twice", [1]).exec()

def execute(self, requests):
    pass
"""
    with pytest.raises(
        Exception, match="'twice' cannot be called while the model that calls it is being loaded"
    ):
        load_model(python_model(tmp_path, ASK + body))


async def test_coroutines_ask_several_at_once(house: House, tmp_path: Path) -> None:
    body = f"""
def execute(self, requests):
    folder = {str(tmp_path / "begun")!r}
    os.makedirs(folder, exist_ok=True)
    open(f"{{folder}}/{{os.getpid()}}", "w").close()
    while len(os.listdir(folder)) < 3:
        time.sleep(0.005)
    return [answer(given(request) * 2) for request in requests]
"""
    house.add("twice", body, INT32 + "instance_group [ { count: 3 } ]")
    house.add(
        "asks",
        """
async def execute(self, requests):
    import asyncio
    calls = [self.ask("twice", [number]).async_exec() for number in given(requests[0])]
    responses = await asyncio.gather(*calls)
    return [answer([self.out(response)[0] for response in responses])]
""",
    )
    async with asyncio.timeout(60):
        assert await house.ask("asks", *range(6)) == [0, 2, 4, 6, 8, 10]
    # whoever reads for the loop stands in nobody's way
    assert await house.ask("asks", 5) == [10]
    assert await house.ask("asks", 6) == [12]


async def test_threads_ask_at_once(house: House) -> None:
    house.add("twice", TWICE)
    house.add(
        "asks",
        """
def execute(self, requests):
    found = {}
    def work(number):
        for _ in range(20):
            found[number] = self.out(self.ask("twice", [number]).exec())[0]
    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    return [answer([found[number] for number in range(5)])]
""",
    )
    assert await house.ask("asks", 0) == [0, 2, 4, 6, 8]


async def test_a_thread_calls_while_nothing_runs(house: House) -> None:
    house.add("twice", TWICE)
    asks = house.add(
        "asks",
        """
def execute(self, requests):
    for request in requests:
        threading.Thread(target=self.work, args=(request.get_response_sender(), given(request))).start()

def work(self, sender, numbers):
    time.sleep(0.05)
    sender.send(answer(self.out(self.ask("twice", numbers).exec())), FINAL)
""",
        DECOUPLED,
    )

    async def streamed(number: int) -> list[int]:
        tensor = Tensor.from_numpy("IN", np.array([number], np.int32))
        (response,) = [each async for each in asks.stream(InferRequest("asks", (tensor,)))]
        return numbers(response)

    assert await asyncio.gather(*map(streamed, range(4))) == [[0], [2], [4], [6]]


@pytest.mark.parametrize("how", ["exec(decoupled=True)", "async_exec(decoupled=True)"])
async def test_streams(house: House, how: str) -> None:
    house.add("streams", COUNTS_DOWN, DECOUPLED)
    house.add("twice", TWICE)
    house.add(
        "asks",
        f"""
async def execute(self, requests):
    found = []
    for name in ("streams", "twice"):
        responses = {"await " * how.startswith("async")}self.ask(name, given(requests[0])).{how}
        for response in responses:
            if response.output_tensors():
                found += self.out(response).tolist()
    return [answer(found)]
""",
    )
    assert await house.ask("asks", 4) == [0, 1, 2, 3, 8]
    assert await house.ask("asks", 600) == [*range(600), 1200]


async def test_a_stream_that_is_not_read_to_its_end(house: House, tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    house.add(
        "streams",
        f"""
def execute(self, requests):
    sender = requests[0].get_response_sender()
    while not sender.is_cancelled():
        sender.send(answer([1]))
    sender.send(flags=FINAL)
    open({str(stopped)!r}, "w").close()
""",
        DECOUPLED,
    )
    house.add(
        "asks",
        """
def execute(self, requests):
    responses = self.ask("streams", [1]).exec(decoupled=True)
    first = next(responses)
    if given(requests[0])[0]:
        responses.cancel()
        *_, last = responses
        assert last.error().code() == pb.TritonError.CANCELLED
    else:
        del responses
    return [answer(self.out(first))]
""",
    )
    for how in (0, 1):
        assert await house.ask("asks", how) == [1]
        await until(stopped.exists)
        stopped.unlink()


# --- what a call is bound to


WAITS = """
def execute(self, requests):
    while not os.path.exists("FILE"):
        time.sleep(0.005)
    return [answer([1]) for _ in requests]
"""
ASKS_SLEEPS = """
def execute(self, requests):
    response = self.ask("sleeps", [1]).exec()
    self.seen = response.error().message() if response.has_error() else "fine"
    print(self.seen, flush=True)
    return [answer([1])]
"""


async def test_the_deadline_is_inherited(
    house: House, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    end = tmp_path / "end"
    house.add("sleeps", WAITS.replace("FILE", str(end)))
    house.add("asks", ASKS_SLEEPS)
    error = await house.fails("asks", 1, context=Context(deadline=time.monotonic() + 1))
    assert error.code is ErrorCode.DEADLINE_EXCEEDED
    end.touch()
    # both instances are free again at their time
    assert await house.ask("asks", 1) == [1]
    said = capfd.readouterr().out.split("\n")
    assert "model 'sleeps' did not answer before the deadline" in said[0] or "cancelled" in said[0]
    assert said[1] == "fine"


async def test_a_client_that_goes_away_takes_its_calls_along(
    house: House, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    end = tmp_path / "end"
    sleeps = house.add("sleeps", WAITS.replace("FILE", str(end)))
    house.add("asks", ASKS_SLEEPS)
    token = CancelToken()
    failing = asyncio.create_task(house.fails("asks", 1, context=Context(cancel=token)))
    await until(lambda: worker(sleeps).running)
    token.cancel()
    assert (await failing).code is ErrorCode.CANCELLED
    end.touch()
    assert await house.ask("asks", 1) == [1]
    assert "cancelled" in capfd.readouterr().out


async def test_a_run_without_waiters_calls_no_model(
    house: House, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    calls = tmp_path / "calls"
    house.add("twice", TWICE)
    asks = house.add(
        "asks",
        f"""
def execute(self, requests):
    while not os.path.exists({str(calls)!r}):
        time.sleep(0.005)
    response = self.ask("twice", [1]).exec()
    print(response.error().message() if response.has_error() else "fine", flush=True)
    return [answer([1])]
""",
    )
    token = CancelToken()
    failing = asyncio.create_task(house.fails("asks", 1, context=Context(cancel=token)))
    await until(lambda: worker(asks).running)
    token.cancel()
    assert (await failing).code is ErrorCode.CANCELLED
    calls.touch()
    assert await house.ask("asks", 1) == [1]
    assert capfd.readouterr().out == "nobody waits for the run that makes this call\nfine\n"


async def test_a_process_that_ends_amid_a_call(house: House, tmp_path: Path) -> None:
    end = tmp_path / "end"
    sleeps = house.add("sleeps", WAITS.replace("FILE", str(end)))
    asks = house.add("asks", ASKS_SLEEPS)
    asked = asyncio.create_task(house.fails("asks", 1))
    await until(lambda: worker(sleeps).running)
    worker(asks)._process.kill()
    assert (await asked).code is ErrorCode.MODEL_FAILED
    end.touch()
    assert await house.ask("sleeps", 1) == [1]


# --- calls that would wait for themselves


RECURSES = """
def execute(self, requests):
    number = given(requests[0])[0]
    if not number:
        return [answer([0])]
    return [answer(self.out(self.ask("OTHER", [number - 1]).exec()) + 1)]
"""


async def test_a_model_that_calls_itself(house: House) -> None:
    house.add("one", RECURSES.replace("OTHER", "one"))
    house.add("three", RECURSES.replace("OTHER", "three"), INT32 + "instance_group [ { count: 3 } ]")
    assert await house.ask("one", 0) == [0]
    error = await house.fails("one", 1)
    assert "TritonModelException: 4 the model cannot be called: each of its instances" in error.message
    assert await house.ask("three", 2) == [2]
    assert "each of its instances" in (await house.fails("three", 3)).message
    # nothing is left behind
    assert await house.ask("three", 2) == [2]
    assert await house.ask("one", 0) == [0]


async def test_models_that_call_each_other_never_hang(house: House) -> None:
    house.add("a", RECURSES.replace("OTHER", "b"))
    house.add("b", RECURSES.replace("OTHER", "a"))
    assert await house.ask("a", 1) == [1]
    assert "each of its instances" in (await house.fails("a", 2)).message
    async with asyncio.timeout(30):
        for _ in range(10):
            found = await asyncio.gather(*(house.ask(name, 1) for name in "abab"), return_exceptions=True)
            assert any(each == [1] for each in found)
            assert all(each == [1] or isinstance(each, InferenceError) for each in found)
    assert await house.ask("b", 1) == [1]
