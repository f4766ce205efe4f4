"""Models written in Python whose methods are coroutines. As at Triton, a model has one event loop for its
life: tasks go on when ``execute`` has returned, and the coroutines of a decoupled model overlap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interlingua.runtime.backends.python as backend
from interlingua.runtime.models.model import LocalModel
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.repository.files import load_model
from interlingua.schemas import ErrorCode, InferenceError, InferRequest, Tensor
from tests.runtime.python_models import DECOUPLED, INT32, instance, numbers, python_model
from tests.waiting import until

SECS = 20
"""What no test comes near unless something waits for ever."""


class Models:
    """Loads models for a test and closes them after it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._models: dict[str, LocalModel] = {}

    def add(self, body: str, config: str = DECOUPLED, name: str = "m") -> LocalModel:
        source = python_model(self._folder, body, config, name)
        self._models[name] = model = load_model(source)
        ModelCatalog(self._models)
        return model

    async def close(self) -> None:
        async with asyncio.timeout(SECS):
            await asyncio.gather(*(model.close() for model in self._models.values()))


@pytest.fixture
async def models(tmp_path: Path) -> AsyncIterator[Models]:
    found = Models(tmp_path)
    yield found
    await found.close()


def requested(*values: int) -> InferRequest:
    return InferRequest("m", (Tensor.from_numpy("IN", np.array(values, np.int32)),))


async def streamed(model: LocalModel, *values: int) -> list[Any]:
    """The numbers of each response, or its error; None for a response without outputs."""
    async with asyncio.timeout(SECS):
        return [
            response.error.message if response.error else numbers(response) if response.outputs else None
            async for response in model.stream(requested(*values))
        ]


BACKGROUND = """
async def execute(self, requests):
    for request in requests:
        work = self.work(request.get_response_sender(), given(request))
        self.tasks = {*getattr(self, "tasks", ()), asyncio.create_task(work)}

async def work(self, sender, values):
    for value in values:
        await asyncio.sleep(0.01)
        sender.send(answer([value]))
    sender.send(flags=FINAL)
"""


async def test_tasks_go_on_when_execute_has_returned(models: Models) -> None:
    model = models.add(BACKGROUND)
    found = await asyncio.gather(*(streamed(model, start, start + 1) for start in (1, 10, 20)))
    assert found == [[[1], [2], None], [[10], [11], None], [[20], [21], None]]


async def test_coroutines_of_a_decoupled_model_overlap(models: Models) -> None:
    # each ends only when all four have begun
    model = models.add("""
async def execute(self, requests):
    self.begun = getattr(self, "begun", 0) + len(requests)
    while self.begun < 4:
        await asyncio.sleep(0.01)
    for request in requests:
        request.get_response_sender().send(answer(given(request)), FINAL)
""")
    assert await asyncio.gather(*(streamed(model, each) for each in range(4))) == [
        [[0]],
        [[1]],
        [[2]],
        [[3]],
    ]


async def test_coroutines_are_spread_over_the_instances(models: Models, tmp_path: Path) -> None:
    over = tmp_path / "over"
    model = models.add(
        f"""
async def execute(self, requests):
    while not os.path.exists({str(over)!r}):
        await asyncio.sleep(0.01)
    requests[0].get_response_sender().send(answer([1]), FINAL)
""",
        DECOUPLED + "instance_group [ { count: 2 } ]",
    )
    workers = [worker for worker in instance(model)._workers if worker is not None]
    asking = []
    for count in range(1, 5):
        asking.append(asyncio.create_task(streamed(model, 0)))
        await until(lambda: sum(worker.held for worker in workers) == count)  # noqa: B023
        await until(lambda: all(worker.idle for worker in workers))
    assert [worker.held for worker in workers] == [2, 2]
    over.touch()
    assert await asyncio.gather(*asking) == [[[1]]] * 4


async def test_a_short_coroutine_ends_before_a_long_one(models: Models) -> None:
    model = models.add("""
async def execute(self, requests):
    (request,) = requests
    await asyncio.sleep(given(request)[0] / 1000)
    request.get_response_sender().send(answer(given(request)), FINAL)
""")
    ended: list[int] = []

    async def ask(millis: int) -> None:
        assert await streamed(model, millis) == [[millis]]
        ended.append(millis)

    long = asyncio.create_task(ask(600))
    await asyncio.sleep(0.05)
    await ask(1)
    assert ended == [1]
    await long


async def test_coroutines_of_other_models_run_one_after_another(models: Models) -> None:
    model = models.add(
        """
running = 0
async def execute(self, requests):
    self.running += 1
    assert self.running == 1
    await asyncio.sleep(0.02)
    self.running -= 1
    return [answer(given(request)) for request in requests]
""",
        INT32,
    )
    found = await asyncio.gather(*(model.infer(requested(each)) for each in range(4)))
    assert [numbers(each) for each in found] == [[0], [1], [2], [3]]


async def test_a_task_answers_for_a_model_that_is_not_decoupled(models: Models) -> None:
    model = models.add(
        """
async def execute(self, requests):
    self.task = asyncio.create_task(self.work(requests[0]))

async def work(self, request):
    await asyncio.sleep(0.01)
    request.get_response_sender().send(answer(given(request) * 2), FINAL)
""",
        INT32,
    )
    async with asyncio.timeout(SECS):
        assert numbers(await model.infer(requested(3, 4))) == [6, 8]


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        ("raise ValueError('no')", "ValueError: no"),
        ("sys.exit(3)", "SystemExit: 3"),
        ("return [answer([1])]", "the execute function must return None"),
    ],
)
async def test_a_coroutine_that_fails_ends_its_requests_with_the_reason(
    models: Models, ending: str, said: str
) -> None:
    # at Triton its client waits for ever
    model = models.add(f"""
async def execute(self, requests):
    import sys
    sender = requests[0].get_response_sender()
    sender.send(answer([1]))
    await asyncio.sleep(0)
    if given(requests[0])[0]:
        {ending}
    sender.send(flags=FINAL)
""")
    for _ in range(2):
        with pytest.raises(InferenceError, match=said) as caught:
            await streamed(model, 1)
        assert caught.value.code is ErrorCode.MODEL_FAILED
        assert await streamed(model, 0) == [[1], None]


async def test_a_task_that_drops_its_sender_has_ended(models: Models) -> None:
    model = models.add("""
async def execute(self, requests):
    task = asyncio.create_task(self.work(requests[0].get_response_sender()))
    self.tasks = {task}
    task.add_done_callback(self.tasks.discard)

async def work(self, sender):
    sender.send(answer([1]))
    raise ValueError("in a task")
""")
    assert await streamed(model, 1) == [[1], None]


async def test_sys_exit_in_a_task_stops_no_other(models: Models) -> None:
    model = models.add(
        BACKGROUND
        + """
    if values[0] < 0:
        import sys
        sys.exit(1)
"""
    )
    assert await streamed(model, -1) == [[-1], None]
    assert await streamed(model, 1) == [[1], None]


async def test_a_task_calls_another_model(models: Models) -> None:
    models.add(
        "def execute(self, requests):\n    return [answer(given(r) * 2) for r in requests]", INT32, "twice"
    )
    model = models.add("""
async def execute(self, requests):
    self.tasks = [asyncio.create_task(self.work(request)) for request in requests]

async def work(self, request):
    def requested(number):
        tensor = pb.Tensor("IN", np.array([number], np.int32))
        return pb.InferenceRequest(
            model_name="twice", inputs=[tensor], requested_output_names=["OUT"]
        ).async_exec()
    found = await asyncio.gather(*(requested(number) for number in given(request)))
    sender = request.get_response_sender()
    for each in found:
        sender.send(answer(pb.get_output_tensor_by_name(each, "OUT").as_numpy()))
    sender.send(flags=FINAL)
""")
    found = await asyncio.gather(*(streamed(model, start, start + 1) for start in range(3)))
    assert found == [[[2 * start], [2 * start + 2], None] for start in range(3)]


async def test_a_task_sees_that_its_client_has_gone(models: Models, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    model = models.add(f"""
async def execute(self, requests):
    self.task = asyncio.create_task(self.work(requests[0].get_response_sender()))

async def work(self, sender):
    sender.send(answer([1]))
    while not sender.is_cancelled():
        await asyncio.sleep(0.01)
    sender.send(flags=FINAL)
    open({str(gone)!r}, "w").close()
""")
    async with aclosing(model.stream(requested(0))) as stream:
        await anext(stream)
    await until(gone.exists)


async def test_a_client_that_does_not_read_holds_up_no_other(models: Models) -> None:
    model = models.add("""
async def execute(self, requests):
    (request,) = requests
    sender = request.get_response_sender()
    for number in range(given(request)[0]):
        sender.send(answer([number]))
        await asyncio.sleep(0)
    sender.send(flags=FINAL)
""")
    async with aclosing(model.stream(requested(2000))) as slow:
        assert numbers(await anext(slow)) == [0]
        assert await streamed(model, 2) == [[0], [1], None]
        rest = [each async for each in slow]
    assert [numbers(each) for each in rest[:-1]] == [[number] for number in range(1, 2000)]


async def test_tasks_are_cancelled_before_finalize(models: Models, tmp_path: Path) -> None:
    told = tmp_path / "told"
    model = models.add(f"""
async def execute(self, requests):
    self.task = asyncio.create_task(self.forever())
    await asyncio.sleep(0)
    requests[0].get_response_sender().send(flags=FINAL)

async def forever(self):
    try:
        await asyncio.Event().wait()
    finally:
        self.tell("cancelled")

def finalize(self):
    self.tell("finalized")

def tell(self, what):
    with open({str(told)!r}, "a") as file:
        print(what, file=file)
""")
    assert await streamed(model, 1) == [None]
    await models.close()
    assert told.read_text().split() == ["cancelled", "finalized"]


async def test_a_client_of_a_task_that_never_ends_gets_an_error_at_the_unload(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "_CLOSE_SECS", 0.3)
    model = models.add("""
async def execute(self, requests):
    self.sender = requests[0].get_response_sender()
    self.sender.send(answer([1]))
""")
    async with aclosing(model.stream(requested(1))) as stream:
        assert numbers(await anext(stream)) == [1]
        waiting = asyncio.ensure_future(anext(stream))
        await models.close()
        with pytest.raises(InferenceError, match="unloaded before it had answered") as caught:
            await waiting
        assert caught.value.code is ErrorCode.UNAVAILABLE
