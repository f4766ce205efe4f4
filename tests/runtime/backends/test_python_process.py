"""What becomes of the process of a model written in Python, and of the requests that it has."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from interlingua.schemas import (
    CancelToken,
    Context,
    ErrorCode,
    InferResponse,
)
from tests.runtime.python_models import (
    ECHO,
    INT32,
    failure,
    instance,
    loaded,
    numbers,
    python_model,
    request,
    worker,
)
from tests.waiting import eventually, until

ROOT = Path(__file__).parents[3]


async def test_a_process_that_is_killed_is_started_again(tmp_path: Path) -> None:
    body = """
    def execute(self, requests):
        if given(requests[0])[0]:
            time.sleep(60)
        return [answer([os.getpid()]) for request in requests]
    """
    model = loaded(tmp_path, body)
    first = worker(model)._process.pid
    assert numbers(await model.infer(request(0))) == [first]
    running = asyncio.create_task(failure(model, request(1)))
    await asyncio.sleep(0.05)
    os.kill(first, signal.SIGKILL)
    error = await running
    assert error.code is ErrorCode.MODEL_FAILED
    assert "killed by SIGKILL" in error.message
    state = await model.ready()
    assert not state.ready
    assert "started again" in state.reason
    refused = await failure(model, request(0))
    assert refused.code is ErrorCode.UNAVAILABLE
    assert refused.retryable
    await until(lambda: model.readiness().ready)
    assert numbers(await model.infer(request(0))) == [worker(model)._process.pid] != [first]
    await model.close()


async def test_an_idle_process_that_ends_is_noticed(tmp_path: Path) -> None:
    model = loaded(tmp_path, ECHO)
    assert (await model.ready()).ready
    os.kill(worker(model)._process.pid, signal.SIGKILL)
    await until(lambda: instance(model)._workers[0] is None)
    await until(lambda: instance(model)._workers[0] is not None)
    assert numbers(await model.infer(request(5))) == [5]
    await model.close()


async def test_a_process_that_ended_leaves_nothing_open(tmp_path: Path) -> None:
    """Not even until the garbage collector comes by."""
    model = loaded(tmp_path, ECHO)
    gc.collect()
    gc.disable()
    try:
        opened = []
        for _ in range(3):
            # shared memory in both directions
            assert len(numbers(await model.infer(request(*range(100_000))))) == 100_000
            opened.append(_open_files())
            os.kill(worker(model)._process.pid, signal.SIGKILL)
            await until(lambda: instance(model)._workers[0] is None)
            await until(lambda: instance(model)._workers[0] is not None)
        assert opened[0] == opened[1] == opened[2]
    finally:
        gc.enable()
    await model.close()


def _open_files() -> Counter[str]:
    """What workers have open here, by what it is."""
    links = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(f"/proc/self/fd/{number}").partition(":[")[0])
    return Counter(link for link in links if link.startswith(("/memfd:interlingua", "socket")))


# --- time


SLEEPS = """
def execute(self, requests):
    time.sleep(given(requests[0])[0] / 1000)
    return [answer(given(request)) for request in requests]
"""


async def test_the_deadline_passes(tmp_path: Path) -> None:
    model = loaded(tmp_path, SLEEPS)
    error = await failure(model, request(1500, context=Context(deadline=time.monotonic() + 0.2)))
    assert error.code is ErrorCode.DEADLINE_EXCEEDED
    assert worker(model).running, "the caller does not wait for the run"
    assert numbers(await model.infer(request(1))) == [1]
    await model.close()


async def test_a_caller_goes_away(tmp_path: Path) -> None:
    model = loaded(tmp_path, SLEEPS)
    tokens = [CancelToken(), CancelToken()]
    asked = [
        asyncio.create_task(failure(model, request(1000, context=Context(cancel=token)))) for token in tokens
    ]
    last = asyncio.create_task(model.infer(request(1)))
    await until(lambda: worker(model).running)
    for token in tokens:
        token.cancel()
    assert [(await task).code for task in asked] == [ErrorCode.CANCELLED] * 2
    assert numbers(await last) == [1]
    await model.close()


async def test_a_task_that_is_cancelled_gives_its_turn_on(tmp_path: Path) -> None:
    model = loaded(tmp_path, SLEEPS)
    tasks = [asyncio.create_task(model.infer(request(30))) for _ in range(6)]
    await until(lambda: worker(model).running)
    for task in tasks[:5:2]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(each, InferResponse) for each in results] == [False, True, False, True, False, True]
    await model.close()


async def test_instances_run_beside_each_other(tmp_path: Path) -> None:
    config = INT32 + "instance_group [ { count: 2 kind: KIND_CPU } ]"
    body = """
    def execute(self, requests):
        time.sleep(0.2)
        return [answer([os.getpid()]) for request in requests]
    """
    model = loaded(tmp_path, body, config)
    answers = await asyncio.gather(*(model.infer(request(0)) for _ in range(2)))
    assert len({numbers(answer)[0] for answer in answers}) == 2
    await model.close()


async def test_a_coroutine_is_run(tmp_path: Path) -> None:
    body = """
    async def execute(self, requests):
        import asyncio
        await asyncio.sleep(0)
        return [answer(given(request)) for request in requests]
    """
    model = loaded(tmp_path, body)
    assert numbers(await model.infer(request(3))) == [3]
    await model.close()


# --- the process


async def test_closing_lets_the_model_finalize(tmp_path: Path) -> None:
    done = tmp_path / "done"
    body = f"""
    def execute(self, requests):
        time.sleep(0.1)
        return [answer([1])]

    def finalize(self):
        open({str(done)!r}, "w").close()
    """
    model = loaded(tmp_path, body)
    number = worker(model)._process.pid
    running = asyncio.create_task(model.infer(request(1)))
    await asyncio.sleep(0.02)
    await model.close()
    assert numbers(await running) == [1]
    assert done.exists()
    assert not Path(f"/proc/{number}").exists()


async def test_signals_are_left_to_the_server(tmp_path: Path) -> None:
    model = loaded(tmp_path, ECHO)
    await model.infer(request(1))
    number = worker(model)._process.pid
    for name in (signal.SIGTERM, signal.SIGINT):
        os.kill(number, name)
    assert numbers(await model.infer(request(2))) == [2]
    assert worker(model)._process.pid == number
    await model.close()


def test_no_process_outlives_the_server(tmp_path: Path) -> None:
    python_model(tmp_path, ECHO)
    program = f"""
import os, sys
from pathlib import Path
from interlingua.runtime.repository.files import ModelSource, load_model
model = load_model(ModelSource("m", Path({str(tmp_path / "m")!r})))
print(model.loaded["1"].instance._workers[0]._process.pid, flush=True)
os._exit(1)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    number = int(ran.stdout)
    state = Path(f"/proc/{number}/stat")
    eventually(lambda: not state.exists() or "Z" in state.read_text().split()[2])


def test_a_model_serves_one_event_loop_after_another(tmp_path: Path) -> None:
    model = loaded(tmp_path, ECHO)
    for number in range(3):
        assert numbers(asyncio.run(model.infer(request(number)))) == [number]
    asyncio.run(model.close())


async def test_no_request_overtakes(tmp_path: Path) -> None:
    body = """
    def initialize(self, args):
        self.order = []

    def execute(self, requests):
        self.order.append(int(given(requests[0])[0]))
        return [answer(self.order)]
    """
    model = loaded(tmp_path, body)
    asked = [asyncio.create_task(model.infer(request(number))) for number in range(20)]
    while not asked[-1].done():
        # one more whenever the loop turns, while others wait
        asked.append(asyncio.create_task(model.infer(request(len(asked)))))
        await asyncio.sleep(0)
        if len(asked) > 200:
            break
    answers = await asyncio.gather(*asked)
    assert numbers(answers[-1]) == list(range(len(asked)))
    await model.close()


async def test_waiting_requests_fail_when_the_process_has_ended(tmp_path: Path) -> None:
    model = loaded(tmp_path, SLEEPS)
    running = asyncio.create_task(failure(model, request(5000)))
    waiting = [asyncio.create_task(failure(model, request(1))) for _ in range(3)]
    await asyncio.sleep(0.05)
    os.kill(worker(model)._process.pid, signal.SIGKILL)
    assert (await running).code is ErrorCode.MODEL_FAILED
    assert [(await each).code for each in waiting] == [ErrorCode.UNAVAILABLE] * 3
    await model.close()
