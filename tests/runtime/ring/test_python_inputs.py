"""Models written in Python read the arenas of front ends, and change nothing there."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.runtime.models.model import LocalModel
from interlingua.runtime.ring.channel import create
from interlingua.runtime.ring.client import RuntimeClient
from interlingua.runtime.ring.server import RuntimeServer
from interlingua.schemas import Datatype, InferRequest, Tensor
from tests.runtime.python_models import DECOUPLED, INT32, loaded, worker
from tests.waiting import until

ARENA_BYTES = 4 << 20
COUNT = 20_000

WRITES = """
def execute(self, requests):
    found = []
    for request in requests:
        array = given(request)
        array *= 2
        found.append(answer(array))
    return found
"""


class FrontEnd:
    """A channel to a runtime process that has ``model``."""

    def __init__(self, model: LocalModel) -> None:
        here, there = create(ARENA_BYTES)
        self.server = RuntimeServer(there, lambda _: model, {}, lambda: None)
        self.client = RuntimeClient(here)

    def tensor(self, value: int, count: int = COUNT) -> Tensor:
        """``count`` numbers from ``value`` on, in the arena, where no number is aligned."""
        memory = self.client.allocate(4 * count + 1)
        assert memory is not None
        memory[1:] = np.arange(value, value + count, dtype=np.int32).tobytes()
        return Tensor("IN", Datatype.INT32, (count,), memory[1:])

    async def infer(self, tensor: Tensor) -> NDArray[Any]:
        (output,) = (await self.client.infer(InferRequest("m", (tensor,)), "m")).outputs
        return output.numpy().copy()

    @property
    def is_empty(self) -> bool:
        """Whether all of the arena is free."""
        return self.client._channel.arena.allocate(ARENA_BYTES) is not None

    async def close(self) -> None:
        self.client.close()
        await self.server.close()


def expected(value: int, factor: int = 2) -> list[int]:
    return (np.arange(value, value + COUNT) * factor).tolist()


async def test_what_a_model_writes_stays_its_own(tmp_path: Path) -> None:
    model = loaded(tmp_path, WRITES)
    front_end = FrontEnd(model)
    shared = front_end.tensor(1)
    found = await asyncio.gather(*(front_end.infer(shared) for _ in range(4)))
    assert [each.tolist() for each in found] == [expected(1)] * 4
    assert shared.numpy().tolist() == expected(1, 1)
    await front_end.close()
    await model.close()


async def test_memory_that_is_used_again_has_the_next_numbers(tmp_path: Path) -> None:
    model = loaded(tmp_path, WRITES)
    front_end = FrontEnd(model)
    places = set()
    for value in range(20):
        tensor = front_end.tensor(value)
        places.add(np.frombuffer(tensor.view, np.uint8).ctypes.data)
        assert (await front_end.infer(tensor)).tolist() == expected(value)
        del tensor
    assert len(places) < 12
    assert front_end.is_empty
    await front_end.close()
    await model.close()


async def test_a_model_keeps_its_inputs(tmp_path: Path) -> None:
    keeps = """
    kept = []

    def execute(self, requests):
        for request in requests:
            self.kept.append(given(request))
        return [answer([array.sum() % 1000 for array in self.kept]) for _ in requests]
    """
    model = loaded(tmp_path, keeps)
    front_end = FrontEnd(model)
    for count in range(1, 7):
        found = await front_end.infer(front_end.tensor(count))
        assert found.tolist() == [sum(expected(value, 1)) % 1000 for value in range(1, count + 1)]
    assert front_end.is_empty
    await front_end.close()
    await model.close()


async def test_a_process_that_is_killed_leaves_no_tensor_in_use(tmp_path: Path) -> None:
    model = loaded(tmp_path, "def execute(self, requests):\n    time.sleep(60)")
    front_end = FrontEnd(model)
    running = asyncio.create_task(front_end.infer(front_end.tensor(1)))
    await until(lambda: worker(model)._held)
    assert not front_end.is_empty
    os.kill(worker(model)._process.pid, signal.SIGKILL)
    (error,) = await asyncio.gather(running, return_exceptions=True)
    assert "killed by SIGKILL" in str(error)
    # its traceback has the request
    del running, error
    await until(lambda: front_end.is_empty)
    await front_end.close()
    await model.close()


async def test_a_tensor_is_free_after_the_first_response(tmp_path: Path) -> None:
    model = loaded(
        tmp_path,
        """
        def execute(self, requests):
            for request in requests:
                sender = request.get_response_sender()
                sender.send(answer(given(request)[:3]))
                while not sender.is_cancelled():
                    time.sleep(0.005)
                sender.send(flags=FINAL)
        """,
        DECOUPLED,
    )
    front_end = FrontEnd(model)
    request = InferRequest("m", (front_end.tensor(5),), answers="many")
    stream = front_end.client.stream(request, "m")
    response = await anext(stream)
    assert response.outputs[0].numpy().tolist() == [5, 6, 7]
    assert not worker(model)._held
    await stream.aclose()
    del request, stream, response
    await until(lambda: front_end.is_empty)
    await front_end.close()
    await model.close()


async def test_two_front_ends_of_one_model(tmp_path: Path) -> None:
    batches = INT32 + "max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 2000 }\n"
    model = loaded(tmp_path, WRITES, batches)
    front_ends = [FrontEnd(model), FrontEnd(model)]

    async def of(front_end: FrontEnd, value: int) -> None:
        tensor = front_end.tensor(value)
        batch = Tensor("IN", tensor.datatype, (1, COUNT), tensor.view)
        for _ in range(3):
            assert (await front_end.infer(batch)).ravel().tolist() == expected(value)
        assert tensor.numpy().tolist() == expected(value, 1)

    await asyncio.gather(*(of(front_ends[value % 2], value) for value in range(8)))
    for each in front_ends:
        assert each.is_empty
        await each.close()
    await model.close()


async def test_the_arena_of_a_front_end_that_exits_is_unmapped(tmp_path: Path) -> None:
    model = loaded(tmp_path, WRITES)
    maps = Path(f"/proc/{worker(model)._process.pid}/maps")

    def mapped() -> int:
        return maps.read_text().count("memfd:interlingua-channel")

    for value in range(3):
        front_end = FrontEnd(model)
        assert (await front_end.infer(front_end.tensor(value))).tolist() == expected(value)
        assert mapped() == 1
        front_end.client.close()
        await front_end.server.close()
        del front_end
        await until(lambda: not mapped())
    await model.close()


async def test_a_late_answer_does_not_end_the_run_of_others(tmp_path: Path) -> None:
    end = tmp_path / "end"
    model = loaded(
        tmp_path,
        f"""
        second = threading.Event()

        def execute(self, requests):
            (request,) = requests
            array = given(request)[:1]
            if array[0] == 0:
                threading.Thread(target=self.late, args=(request.get_response_sender(), array)).start()
                return [None]
            self.second.set()
            while not os.path.exists({str(end)!r}):
                time.sleep(0.005)
            return [answer(array)]

        def late(self, sender, array):
            self.second.wait()
            sender.send(answer(array), FINAL)
        """,
    )
    front_end = FrontEnd(model)
    late = asyncio.create_task(front_end.infer(front_end.tensor(0)))
    await until(lambda: worker(model)._held and not worker(model).running)
    slow = asyncio.create_task(front_end.infer(front_end.tensor(1)))
    assert (await late).tolist() == [0]
    assert worker(model).running
    end.touch()
    assert (await slow).tolist() == [1]
    await front_end.close()
    await model.close()
