"""Several requests in one execution of a model written in Python."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from interlingua.runtime.backends import Answers, Job
from interlingua.runtime.models.instance_answer import InstanceAnswer
from interlingua.runtime.models.model import LocalModel
from interlingua.schemas import CancelToken, Context, ErrorCode, InferenceError, InferRequest
from tests.runtime.python_models import DECOUPLED, INT32, instance, loaded, request, worker


def jobs(*asked: InferRequest) -> list[Job]:
    return [Job(each, each.inputs, ("OUT",)) for each in asked]


async def run(model: LocalModel, *asked: InferRequest) -> list[Answers]:
    place = await instance(model).claim()
    return place.run(jobs(*asked))


async def reported(answers: Answers) -> list[list[int] | str]:
    """The numbers of each answer, or its error; that of the whole as the last."""
    found: list[list[int] | str] = []
    try:
        async for answer in answers:
            if answer.error is not None:
                found.append(answer.error.message)
            elif answer.outputs:
                found.append(answer.outputs[0].numpy().tolist())
    except InferenceError as error:
        found.append(error.message)
    finally:
        await answers.aclose()
    return found


async def all_reported(several: Sequence[Answers]) -> list[list[list[int] | str]]:
    return [await reported(each) for each in several]


COUNTS = """
def execute(self, requests):
    return [answer([len(requests), *given(request)]) for request in requests]
"""


@pytest.mark.parametrize("size", [1, 5000])
async def test_all_are_given_to_one_execution(tmp_path: Path, size: int) -> None:
    model = loaded(tmp_path, COUNTS)
    for count in (3, 1, 40):
        asked = [request(*[number] * size) for number in range(count)]
        found = await all_reported(await run(model, *asked))
        assert found == [[[count, *[number] * size]] for number in range(count)]
    await model.close()


async def test_each_has_its_own_response(tmp_path: Path) -> None:
    body = """
    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        number = given(request)[0]
        if number == 1:
            return pb.InferenceResponse(error=pb.TritonError("mine", pb.TritonError.NOT_FOUND))
        if number == 2:
            return pb.InferenceResponse([pb.Tensor("OUT", np.zeros(1, complex))])
        if number == 3:
            return None
        if number == 4:
            return 7
        if number == 5:
            threading.Timer(0.05, request.get_response_sender().send, [answer([5]), FINAL]).start()
            return None
        if number == 6:
            request.get_response_sender().send(answer([6]), FINAL)
            return None
        return answer([number])
    """
    model = loaded(tmp_path, body)
    # whichever is the last, the place is free again
    for shift in range(8):
        order = [(shift + each) % 8 for each in range(8)]
        found = await all_reported(await run(model, *map(request, order)))
        by_number = dict(zip(order, found, strict=True))
        for number in (0, 5, 6, 7):
            assert by_number[number] == [[number]]
        assert by_number[1] == ["mine"]
        for number, said in (
            (2, "no datatype stores NumPy's complex128"),
            (3, "the model has let go of a request without a response"),
            (4, "in the execute function return list, found type 'int'."),
        ):
            (text,) = by_number[number]
            assert said in text
    await model.close()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return [answer([1])] * (len(requests) - 1)", "size is:3, and InferenceResponse(s) size is:2"),
        ("return [answer([1])] * 4", "size is:3, and InferenceResponse(s) size is:4"),
        ("return 7", "Expected a list in the execute return, found type 'int'"),
        ("raise ValueError('all')", "message: ValueError: all"),
        ("os._exit(2)", "exit code 2"),
    ],
)
async def test_what_fails_for_all(tmp_path: Path, body: str, said: str) -> None:
    model = loaded(tmp_path, f"def execute(self, requests):\n    {body}")
    for each in await all_reported(await run(model, *map(request, range(3)))):
        (text,) = each
        assert said in text
    await model.close()


async def test_what_cannot_be_sent_fails_alone(tmp_path: Path) -> None:
    model = loaded(tmp_path, COUNTS)
    found = await all_reported(await run(model, request(1), request(2, id="\ud800"), request(3)))
    assert found[0::2] == [[[2, 1]], [[2, 3]]]
    assert "the request id is not text" in str(found[1])
    (alone,) = await all_reported(await run(model, request(2, id="\ud800")))
    assert "the request id is not text" in str(alone)
    assert await all_reported(await run(model, request(4))) == [[[1, 4]]]
    await model.close()


async def test_one_that_is_cancelled_leaves_the_others(tmp_path: Path) -> None:
    body = """
    def execute(self, requests):
        time.sleep(0.5)
        return [answer([request.is_cancelled()]) for request in requests]
    """
    model = loaded(tmp_path, body)
    token = CancelToken()
    first, second = await run(model, request(0), request(0, context=Context(cancel=token)))
    asyncio.get_running_loop().call_later(0.02, token.cancel)
    assert await reported(second) == ["the request was cancelled"]
    assert await reported(first) == [[0]]
    await model.close()


async def test_streams_of_one_execution(tmp_path: Path) -> None:
    body = """
    def execute(self, requests):
        senders = [request.get_response_sender() for request in requests]
        for step in range(3):
            for sender in senders:
                sender.send(answer([len(requests), step]))
        for sender in senders:
            sender.send(flags=FINAL)
    """
    model = loaded(tmp_path, body, DECOUPLED)
    found = await all_reported(await run(model, *map(request, range(4))))
    assert found == [[[4, step] for step in range(3)]] * 4
    await model.close()


async def test_one_that_was_cancelled_before_is_not_run(tmp_path: Path) -> None:
    model = loaded(tmp_path, COUNTS)
    token = CancelToken()
    token.cancel()
    found = await all_reported(await run(model, request(1), request(2, context=Context(cancel=token))))
    assert found == [[[1, 1]], ["the request was cancelled"]]
    await model.close()


# --- places


SLEEPS = """
def execute(self, requests):
    time.sleep(given(requests[0])[0] / 1000)
    return [answer([os.getpid()]) for request in requests]
"""


async def first(answers: Sequence[Answers]) -> InstanceAnswer:
    answer = await anext(answers[0])
    await answers[0].aclose()
    return answer


async def test_places_are_claimed_in_turn(tmp_path: Path) -> None:
    model = loaded(tmp_path, SLEEPS, INT32 + "instance_group [ { count: 2 } ]")
    python = instance(model)
    assert python.places == 2
    a, b = await python.claim(), await python.claim()
    waiting = [asyncio.create_task(python.claim()) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    a.release()
    assert await waiting[0] is a
    running = b.run(jobs(request(1)))
    assert await waiting[1] is b
    await first(running)
    a.release()
    b.release()
    await model.close()


async def test_one_place_alone(tmp_path: Path) -> None:
    model = loaded(tmp_path, SLEEPS, INT32 + "instance_group [ { count: 2 } ]")
    python = instance(model)
    second = await python.claim(place=1)
    again = asyncio.create_task(python.claim(place=1))
    await asyncio.sleep(0)
    other = await python.claim()
    other.release()
    assert await python.claim(place=0) is other
    other.release()
    assert not again.done()
    running = second.run(jobs(request(5)))
    assert await again is second
    again.result().release()
    await first(running)
    await model.close()


async def test_a_claim_that_is_given_up(tmp_path: Path) -> None:
    model = loaded(tmp_path, SLEEPS)
    python = instance(model)
    place = await python.claim()
    token = CancelToken()
    cancelled = asyncio.create_task(python.claim(token))
    dropped = asyncio.create_task(python.claim())
    last = asyncio.create_task(python.claim())
    await asyncio.sleep(0)
    token.cancel()
    dropped.cancel()
    with pytest.raises(InferenceError) as caught:
        await cancelled
    assert caught.value.code is ErrorCode.CANCELLED
    place.release()
    assert await last is place
    place.release()
    await model.close()


async def test_a_place_whose_process_has_ended(tmp_path: Path) -> None:
    model = loaded(tmp_path, SLEEPS)
    place = await instance(model).claim()
    waiting = asyncio.create_task(instance(model).claim())
    place._process.kill()
    with pytest.raises(InferenceError) as caught:
        await waiting
    assert caught.value.code is ErrorCode.UNAVAILABLE
    (found,) = await all_reported(place.run(jobs(request(1))))
    assert "has ended" in str(found)
    await model.close()


async def test_more_than_there_is_room_for(tmp_path: Path) -> None:
    model = loaded(tmp_path, COUNTS)
    place = await instance(model).claim()
    room = place.room
    found = await all_reported(place.run(jobs(*(request(each) for each in range(room + 2)))))
    assert [text for (text,) in found[room:]] == ["'m_0' has too many requests open"] * 2
    assert found[:room] == [[[room, each]] for each in range(room)]
    await model.close()


async def test_arrays_of_a_batch_share_memory_and_let_go_of_it(tmp_path: Path) -> None:
    body = """
    def initialize(self, args):
        self.kept = []

    def execute(self, requests):
        self.kept = [given(requests[0])]
        return [answer(given(request) * 2) for request in requests]
    """
    model = loaded(tmp_path, body)
    arrays = [np.arange(30_000, dtype=np.int32) + number for number in range(4)]
    for _ in range(10):
        found = await all_reported(await run(model, *(request(*array) for array in arrays)))
        assert found == [[(array * 2).tolist()] for array in arrays]
    assert len(worker(model)._pool._regions) <= 3
    await model.close()
