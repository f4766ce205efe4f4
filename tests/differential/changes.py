"""The table of what changes in the daemon between requests that repeat."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from interlingua.schemas import ErrorCode, InferenceError
from interlingua.translator.serving.router import Router
from interlingua.translator.serving.routing.conditions import Conditions
from interlingua.translator.serving.routing.route import Route
from interlingua.translator.serving.routing.split import Part, Split
from interlingua.translator.tracing.settings import TraceBook
from interlingua.translator.tracing.tracer import Tracer
from tests.differential.calls import Kit
from tests.differential.scenarios import reconnects, usual
from tests.differential.world import Do, Scenario, Step, World
from tests.spies import failing

_TOKENS = Path(__file__).parent / "tokens.txt"


def changing(*acts: Callable[[World], Awaitable[None] | None]) -> Callable[[Kit], list[Step]]:
    """The steps of a scenario: each of ``acts`` between requests that repeat."""

    def steps(kit: Kit) -> list[Step]:
        found: list[Step] = [*usual(kit)]
        for number, act in enumerate(acts):
            found += [Do(act), *usual(kit, 3, number)]
        return found

    return steps


def routed(*routes: tuple[str, Conditions]) -> Callable[[World], None]:
    """A reload to these routes, each to models with their weights."""

    def act(world: World) -> None:
        parts = [[part.split("=") for part in to.split()] for to, _ in routes]
        splits = [Split([Part(name, float(weight)) for name, weight in each], 0) for each in parts]
        made = [Route(split, when) for split, (_, when) in zip(splits, routes, strict=True)]
        world.notes.append("routes")
        world.service.router = Router(world.models, made)

        def counted() -> list[Any]:
            return [[each.counts.requests, dict(each.counts.parts)] for each in made]

        world.at_end.append(counted)

    return act


def setting(place: str, value: Any) -> Callable[[World], None]:
    """Set an attribute of the world, by its dotted name, with a router as a reload has it."""

    def act(world: World) -> None:
        *path, name = place.split(".")
        owner: Any = world
        for each in path:
            owner = getattr(owner, each)
        setattr(owner, name, value)
        world.service.router = Router(world.models, world.service.router.routes)

    return act


def planned(world: World, on: bool) -> None:
    """As by a reload, where the world has plans at all."""
    world.service.plans = on and world.plans


def swapped(world: World) -> None:
    """The model is replaced, as by a reload."""
    world.models["m"], world.models["n"] = world.models["n"], world.models["m"]


def resigned(world: World) -> None:
    """Another model, of another signature."""
    world.models["m"], world.models["other"] = world.models["other"], world.models["m"]


def forgotten(world: World) -> None:
    """The signature of an upstream model is no longer known."""
    world.models["m"]._signatures.forget()


def fails(error: Exception) -> Callable[[World], None]:
    def act(world: World) -> None:
        world.models["m"].version("")._run = failing(error)

    return act


def recovers(world: World) -> None:
    version = world.models["m"].version("")
    version._run = version.instance.run


def traced(world: World) -> None:
    """Spans of every request from now on."""

    def export(trace: Any) -> None:
        world.notes.append([[span.name, sorted(span.attributes)] for span in trace.spans])

    world.service.tracer = Tracer(TraceBook(1.0), export)


def _default(kit: Kit) -> list[Step]:
    """Requests that name no model, and another default."""
    calls = kit.calls(*({"inputs": number, "model": ""} for number in range(8)))
    steps: list[Step] = [*calls]
    for name in ("n", "m", "", "m"):
        steps += [Do(setting("processor.default_model", name)), *calls[:3]]
    return steps


def _with(*headers: tuple[str, str]) -> Callable[[Kit], list[Step]]:
    return lambda kit: [each.having(*headers) for each in usual(kit, 12)]


CHANGES: dict[str, Scenario] = {
    "routes": Scenario(
        changing(
            routed(),
            routed(("n=1", Conditions("unrelated"))),
            routed(("n=1", Conditions("m"))),
            routed(("m=0.9 n=0.1", Conditions("m"))),
            routed(("n=1", Conditions(headers={"x-other": "1"}))),
            routed(),
        )
    ),
    "routes, each for new connections": Scenario(
        changing(
            reconnects,
            routed(("n=1", Conditions("m"))),
            reconnects,
            routed(),
            reconnects,
        )
    ),
    "options": Scenario(
        changing(
            setting("service.id", "another"),
            partial(planned, on=False),
            partial(planned, on=True),
            setting("pipeline.load.max_requests", 0),
            setting("pipeline.load.max_requests", 10),
            setting("service.access.mode", "all"),
            setting("service.access.mode", "errors"),
            setting("processor.default_model", "n"),
            traced,
            setting("service.tracer", None),
        )
    ),
    # these have the model in the path
    "default model": Scenario(_default, without=("oip/http", "trtis/http", "tfserving/http")),
    "models that are replaced": Scenario(changing(swapped, swapped, resigned, resigned)),
    "headers as parameters": Scenario(
        _with(("x-my-a", "1")),
        listener={"headers_as_parameters": "^x-my-"},
        repeat=False,
        without=("graphpipe/tcp", "grps/brpc"),
    ),
    "a token": Scenario(
        _with(("authorization", "Bearer token-of-a-caller")),
        config={"auth": {"tokens": str(_TOKENS)}},
        repeat=False,
    ),
    "a wrong token": Scenario(
        _with(("authorization", "Bearer wrong")), config={"auth": {"tokens": str(_TOKENS)}}, repeat=False
    ),
}
"""To every target."""

LOCAL_CHANGES: dict[str, Scenario] = {
    "a model that fails": Scenario(
        changing(
            fails(InferenceError(ErrorCode.MODEL_FAILED, "broken")),
            recovers,
            fails(ValueError("a bug")),
            recovers,
            fails(MemoryError()),
            recovers,
        )
    ),
}
"""To a local model."""

UPSTREAM_CHANGES: dict[str, Scenario] = {
    "a signature that is forgotten": Scenario(changing(forgotten, forgotten))
}
"""To an upstream."""
