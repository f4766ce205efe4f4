"""The table of what callers do, and what changes between their requests."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from interlingua.schemas import Datatype
from tests.differential.calls import Call, Kit, tensor, tensors
from tests.differential.world import Do, Scenario, Step, Together, World

WARM = 8
"""So many requests repeat before those of a scenario, and one after each."""


def usual(kit: Kit, count: int = WARM, first: int = 0) -> list[Call]:
    """Requests that differ by the contents of their tensors alone."""
    return [kit.call(number) for number in range(first, first + count)]


def between(kit: Kit, calls: Sequence[Step]) -> list[Step]:
    """``calls``, and repeating requests around each."""
    steps: list[Step] = [*usual(kit)]
    for number, each in enumerate(calls):
        steps += [each, each, kit.call(number)] if isinstance(each, Call) else [each, *usual(kit, 2, number)]
    return steps


def _shaped(kit: Kit) -> list[Step]:
    """As many bytes in other shapes, and other datatypes of one width."""
    a, b = (bytes(each.view) for each in tensors(3, 4))
    f32, i32 = Datatype.FP32, Datatype.INT32
    rows = [
        [tensor("a", f32, (1, 4), a), tensor("b", i32, (4,), b)],
        [tensor("a", f32, (2, 2), a), tensor("b", i32, (4,), b)],
        [tensor("a", f32, (4, 1), a), tensor("b", i32, (4,), b)],
        [tensor("a", i32, (2, 2), a), tensor("b", i32, (4,), b)],
        [tensor("a", f32, (2, 2), a), tensor("b", f32, (4,), b)],
        [tensor("a", i32, (2, 2), a), tensor("b", f32, (4,), b)],
        [tensor("a", Datatype.UINT32, (2, 2), a), tensor("b", i32, (4,), b)],
        [tensor("a", f32, (1, 4), a), tensor("b", i32, (2, 2), b)],
        [tensor("a", f32, (1, 2), a[:8]), tensor("b", i32, (6,), bytes(8) + b)],
        [tensor("a", f32, (1, 6), bytes(8) + a), tensor("b", i32, (2,), b[:8])],
    ]
    return between(kit, kit.calls(*({"inputs": each} for each in rows)))


def _named(kit: Kit) -> list[Step]:
    """Reordered, renamed, missing and more tensors."""
    a, b = tensors(5)
    rows = [
        [b, a],
        [replace(a, name="b"), replace(b, name="a")],
        [replace(a, name="z"), b],
        [replace(a, name="aa"), b],
        [replace(a, name=""), b],
        [a],
        [b],
        [a, b, replace(a, name="c")],
        [a, a],
        [],
    ]
    outputs = [("b", "a"), ("a",), ("b",), None, ("a", "z"), ("a", "a")]
    found = [{"inputs": each} for each in rows] + [{"inputs": 6, "outputs": each} for each in outputs]
    return between(kit, kit.calls(*found))


def _ids(kit: Kit) -> list[Step]:
    ids = ["1", "2", "10", "01", "abc", 'a"b', "a\\b", "\n", "é", "", "a" * 64, "]}", "0"]
    return between(kit, kit.calls(*({"inputs": 7, "id": each} for each in ids)))


def _contents(kit: Kit) -> list[Step]:
    """Contents that look like structure, empty tensors, NaNs."""
    head = kit.call(1).body
    head += bytes(-len(head) % 4)
    whole = bytes(b"".join(struct.pack("<I", 0x7FC00000 + each) for each in range(4)))
    infinite = struct.pack("<4f", float("inf"), float("-inf"), -0.0, 1e-45)
    rows: list[Any] = []
    for data in (head, head[:16], whole, infinite, bytes(16), b"\xff" * 16, b""):
        count = len(data) // 4
        rows.append(
            [tensor("a", Datatype.FP32, (1, count), data), tensor("b", Datatype.INT32, (count,), data)]
        )
    rows.append([tensor("a", Datatype.FP32, (0, 4), b""), tensor("b", Datatype.INT32, (1,), bytes(4))])
    return between(kit, kit.calls(*({"inputs": each} for each in rows)))


def _bodies(kit: Kit) -> list[Step]:
    """Equal heads and other bodies: cut, longer, changed at some places, none at all."""
    call = kit.call(9)
    body = call.body
    places = range(0, len(body), max(1, len(body) // 12))
    changed = [body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :] for place in places]
    others = [
        b"",
        body[:-1],
        body[:-4],
        body[: len(body) // 2],
        body + b"\0",
        body + body,
        b"\xff" * len(body),
    ]
    return between(kit, [call.containing(each) for each in others]) + [
        step for each in changed for step in (call.containing(each), kit.call(2))
    ]


def _headers(kit: Kit) -> list[Step]:
    """Headers that are unique to each request, and some that change what it is."""
    steps: list[Step] = [*usual(kit)]
    for name, value in (
        ("x-request-id", "id-{}"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c8031{:02x}-b7ad6b7169203331-01"),
        ("x-other", "{}"),
        ("authorization", "Bearer token{}"),
    ):
        steps += [kit.call(number).having((name, value.format(number))) for number in (0, 1, 2, 2, 2, 2)]
        steps += usual(kit, 2)
    return steps


def _models(kit: Kit) -> list[Step]:
    """Another model, an unknown one, none, and versions."""
    rows = [
        {"model": "n"},
        {"model": "n"},
        {"model": "unknown"},
        {"model": ""},
        {"version": "1"},
        {"version": "2"},
    ]
    return between(kit, kit.calls(*({"inputs": 4, **each} for each in rows)))


def _together(kit: Kit) -> list[Step]:
    return [*usual(kit), Together(tuple(usual(kit, 20))), *usual(kit, 2)]


async def reconnects(world: World) -> None:
    await world.caller.close()


def _connections(kit: Kit) -> list[Step]:
    """A connection for every request."""
    calls = [*usual(kit), *kit.calls(*({"id": "7", "inputs": number} for number in range(3)))]
    return [step for call in calls for step in (call, Do(reconnects))]


def _wide(kit: Kit) -> list[Step]:
    """Tensors of four datatypes, and of another order."""
    wide, double = Datatype.INT64, Datatype.FP64
    found = []
    for number in range(12):
        first, second = tensors(number, 6)
        given = [
            replace(first, shape=(2, 3)),
            tensor("b", wide, (3,), bytes(second.view)),
            tensor("c", Datatype.UINT8, (5,), bytes(first.view)[:5]),
            tensor("d", double, (1, 3), bytes(first.view)),
        ]
        order = given if number < 8 else given[::-1]
        found.append({"inputs": order, "model": "other", "outputs": ("a", "b", "c", "d")})
    return [*kit.calls(*found)]


def floats(kit: Kit) -> list[Step]:
    """Requests that repeat, to a model of floats."""
    found: list[Step] = []
    for number in range(12):
        first, _ = tensors(number, 6)
        given = [replace(first, shape=(2, 3)), tensor("d", Datatype.FP64, (1, 3), bytes(first.view))]
        found += kit.calls({"inputs": given, "model": "floats", "outputs": ("a", "d")})
    return found


REQUESTS: dict[str, Scenario] = {
    "shapes and datatypes": Scenario(_shaped),
    "names and order": Scenario(_named),
    "other datatypes": Scenario(_wide, repeat=False),
    "ids": Scenario(_ids),
    "contents": Scenario(_contents),
    "bodies": Scenario(_bodies),
    "headers": Scenario(_headers),
    "models": Scenario(_models),
    # TRTIS has the number of a request in its message over gRPC
    "together": Scenario(_together, unordered=True, without=("trtis/grpc",)),
    "connections": Scenario(_connections),
    "every request in the access log": Scenario(
        lambda kit: usual(kit, 12), server={"access_log": "all"}, repeat=False
    ),
    "too large": Scenario(
        lambda kit: between(kit, kit.calls({"inputs": tensors(1, 600)}, {"inputs": tensors(1, 150)})),
        listener={"max_request_bytes": 4000, "max_response_bytes": 1000},
    ),
}
"""By what callers do."""
