"""Requests with ids of their own follow plans, where an id may have any value of its length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from interlingua.protocols.wire import GrpcAnswer, HttpAnswer, parts_of
from interlingua.schemas.oip import MESSAGES
from tests.differential.calls import Kit, tensor, tensors
from tests.differential.pair import pair
from tests.differential.running import Running, running
from tests.differential.standin import Act
from tests.differential.table import LOCAL
from tests.differential.world import NO_SCRIPT, Step

CALLERS = ["oip/http", "oip/grpc"]
KEEP, DROP = ["oip/http", "oip/grpc"], ["graphpipe/http", "trtis/http", "tfserving/grpc"]
"""Targets whose messages have any id, and those whose have none, or numbers."""

UNIQUE = [f"{number:08x}-{number * 7:04x}.{number}:_" for number in range(10, 40)]


@pytest.fixture(scope="module")
def world() -> Iterator[Running]:
    with running() as made:
        yield made


def _requests(kit: Kit, ids: Sequence[str], **more: Any) -> list[Step]:
    return [kit.call(number, id=each, **more) for number, each in enumerate(ids)]


def _taken(world: Running, caller: str, target: str, steps: Sequence[Step], script: Any = NO_SCRIPT) -> int:
    """How many of the requests plans have taken: the callers get the same as without."""
    with pair(world, caller, target, script) as worlds:
        world.taken.clear()
        planned, unplanned = worlds.play(list(steps))
        assert planned == unplanned
    return len(world.taken)


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("target", [*KEEP, LOCAL])
def test_unique_ids_follow_a_plan(world: Running, caller: str, target: str) -> None:
    assert _taken(world, caller, target, _requests(Kit.of(caller), UNIQUE)) >= len(UNIQUE) - 3


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("target", DROP)
def test_ids_that_an_upstream_does_not_get_are_counted(world: Running, caller: str, target: str) -> None:
    assert not _taken(world, caller, target, _requests(Kit.of(caller), [*UNIQUE, *map(str, range(10, 30))]))


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("target", KEEP)
@pytest.mark.parametrize(
    "ids",
    [
        # as much else in a message: the model, a tensor, a digit of a shape
        [*"mab12843m1abz", *"mab12843m1abz"],
        ["FP32", "id-1", "FP32", "id-2", "name", "FP32", "INT3", "FP32"] * 2,
        # what a text form escapes, and what it does not
        ["ab", "cd", "a\\", 'a"', "ef", "é", "\n\n", "gh", "  ", "ij", "{}", "kl"] * 2,
        # none, and other lengths
        ["", "1", "22", "333", "", "4", "55", "666", "", "7", "88", "999", "x" * 64, "x" * 65, "y" * 64] * 2,
    ],
    ids=["looks like structure", "looks like words", "escaped", "lengths"],
)
def test_any_id_comes_back(world: Running, caller: str, target: str, ids: list[str]) -> None:
    assert _taken(world, caller, target, _requests(Kit.of(caller), ids)) > 2


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("target", KEEP)
def test_a_name_is_no_id(world: Running, caller: str, target: str) -> None:
    """Another tensor's name where another request has the same bytes as its id."""
    kit, (a, b) = Kit.of(caller), tensors(1)
    ids = [kit.call(number, id="a") for number in range(8)]
    names = [kit.call([replace(a, name=each), b], id="a") for each in "abca"]
    models = [kit.call(3, id="m", model=each) for each in "mnxm"]
    assert _taken(world, caller, target, [*ids, *names, *models, *ids]) > 4


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("target", KEEP)
def test_contents_that_have_the_id(world: Running, caller: str, target: str) -> None:
    kit, (a, b) = Kit.of(caller), tensors(1)
    steps = [
        kit.call([tensor("a", a.datatype, (1, 2), each[:8].encode()), b], id=each[:8]) for each in UNIQUE
    ]
    assert _taken(world, caller, target, steps) > 20


def _answers(change: Callable[[bytes, str], bytes]) -> Act:
    def act(answer: Any, number: int) -> Any:
        if isinstance(answer, HttpAnswer):
            return HttpAnswer(
                answer.status, answer.headers, (change(b"".join(parts_of(answer)), UNIQUE[number]),)
            )
        assert isinstance(answer, GrpcAnswer)
        return replace(answer, message=change(bytes(answer.whole), UNIQUE[number]), parts=())

    return Act(answer=act)


def _without(message: bytes, identity: str) -> bytes:
    if not message.startswith(b"{"):
        head: Any = MESSAGES["inference.ModelInferResponse"].FromString(message)
        head.id = ""
        return bytes(head.SerializeToString())
    # spaces, since a header has the length
    member = b'"id":"%s",' % identity.encode()
    return message.replace(member, b" " * len(member))


CHANGES: dict[str, Callable[[bytes, str], bytes]] = {
    "another id": lambda message, identity: message.replace(identity.encode(), identity[::-1].encode()),
    "another case": lambda message, identity: message.replace(identity.encode(), identity.upper().encode()),
    "that of another request": lambda message, identity: message.replace(
        identity.encode(), UNIQUE[3].encode()
    ),
    "none": _without,
}


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("target", KEEP)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("which", [range(30), range(5, 30, 3)], ids=["always", "at times"])
def test_an_upstream_that_does_not_repeat_it(
    world: Running, caller: str, target: str, change: str, which: range
) -> None:
    script = dict.fromkeys(which, _answers(CHANGES[change]))
    _taken(world, caller, target, _requests(Kit.of(caller), UNIQUE), script)
