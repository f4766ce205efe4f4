"""Which model a request reaches by which route, and who answers where it is turned away."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from interlingua.protocols.dialect import Action, Binding, Opened, Passthrough
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.wire import ConnectionFailedError
from interlingua.runtime.peers.owners import Owners
from interlingua.runtime.peers.peers import Peers
from interlingua.runtime.target import Target
from interlingua.runtime.upstream.model import UpstreamModel
from interlingua.runtime.upstream.pool import Member
from interlingua.runtime.upstream.unloaded import UnloadedModels
from interlingua.schemas import (
    Context,
    Datatype,
    ErrorCode,
    InferenceError,
    InferHeads,
    InferRequest,
    InferResponse,
    Operation,
    Sequence,
    ServerMetadata,
    Signature,
    Tensor,
    TensorSpec,
)
from interlingua.translator.serving.observation import Observed
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.processor import RequestProcessor
from interlingua.translator.serving.router import Router
from interlingua.translator.serving.routing.conditions import Conditions
from interlingua.translator.serving.routing.names import Names
from interlingua.translator.serving.routing.route import Route
from interlingua.translator.serving.routing.split import Part, Split


def binding_of(dialect: str) -> Binding:
    return next(iter(DIALECTS[dialect].bindings.values()))


OIP = binding_of("oip")

PASSTHROUGH: Any = Passthrough(lambda *_: InferHeads((), ()), lambda *_: object(), lambda *_: None)  # type: ignore[arg-type]
SIGNATURE = Signature((TensorSpec("x", Datatype.INT32, (-1,)),), (TensorSpec("y", Datatype.INT32, (-1,)),))


class Model(Target):
    """Answers with its name, or fails with ``failure``: in its signature where ``unknown``, after ``given``
    responses of a stream."""

    def __init__(
        self,
        name: str,
        failure: InferenceError | None = None,
        *,
        unknown: bool = False,
        given: int = 0,
        signature: Signature = SIGNATURE,
    ) -> None:
        self.name = name
        self.failure = failure
        self.unknown = unknown
        self.given = given
        self.told = signature
        self.asked: list[InferRequest] = []

    async def signature(self, version: str = "") -> Signature:
        if self.unknown and self.failure is not None:
            raise self.failure
        return self.told

    async def infer(self, request: InferRequest) -> InferResponse:
        self.asked.append(request)
        if self.failure is not None:
            raise self.failure
        return InferResponse(self.name, (Tensor.from_numpy("y", np.zeros(1, np.int32)),), "3", request.id)

    async def stream(self, request: InferRequest) -> AsyncIterator[InferResponse]:
        self.asked.append(request)
        for number in range(2):
            if self.failure is not None and number == self.given:
                raise self.failure
            yield InferResponse(self.name, (), "3", request.id, final=number == 1)


UNAVAILABLE = InferenceError(ErrorCode.UNAVAILABLE, "not now")


class Clients:
    """Whoever asks a server with ``models`` by ``routes``; counts how often it was read, by signature."""

    def __init__(self, *models: Model, routes: Any = (), behind: Any = None) -> None:
        self.models = {model.name: model for model in models}
        self.router = Router(self.models, routes, behind)  # type: ignore[arg-type]
        self.service = Service(self.router, ServerMetadata("s", "1"))
        self.reads: Counter[int] = Counter()

    def opened(self, request: InferRequest, operation: Operation = Operation.INFER) -> Opened[Any]:
        def decode(opened: Any, signature: Signature) -> tuple[InferRequest, None]:
            self.reads[id(signature)] += 1
            return replace(request), None

        return Opened(Action(operation, lambda form, response: response, decode), "m", request.version)

    async def ask(self, dialect: str = "oip", context: Context | None = None, **more: Any) -> Any:
        asked = InferRequest("m", (Tensor.from_numpy("x", np.ones(1, np.int32)),), **more)
        processor = RequestProcessor(self.service, "here")
        return await processor.perform(self.opened(asked), binding_of(dialect), context or Context())

    async def answered_by(self, **more: Any) -> str:
        """The model that answers; its name stands in what an observer sees."""
        seen: list[Observed] = []
        self.service.observers = (
            SimpleNamespace(should_observe=lambda request: True, on_response=seen.append),
        )
        try:
            await self.ask(**more)
        finally:
            self.service.observers = ()
        return seen[0].answered_by


def headers(**given: str) -> Context:
    return Context(headers={name.replace("_", "-"): value for name, value in given.items()})


# --- conditions


GOLD = Route(Split.only("gold"), Conditions(parameters={"class": "gold"}))
SILVER = Route(Split.only("silver"), Conditions("m", headers={"x-tenant": "s*"}, parameters={"class": "s*"}))


@pytest.mark.parametrize(
    ("context", "parameters", "model"),
    [
        (Context(), {}, "m"),
        (Context(), {"class": "gold"}, "gold"),
        (Context(), {"class": "silver"}, "m"),
        (headers(x_tenant="sun"), {"class": "silver"}, "silver"),
        (headers(x_tenant="sun"), {"class": "gold"}, "gold"),
    ],
)
async def test_candidates_are_tried_in_order(context: Context, parameters: Any, model: str) -> None:
    clients = Clients(Model("m"), Model("gold"), Model("silver"), routes=[GOLD, SILVER])
    assert await clients.answered_by(context=context, parameters=parameters) == model
    assert sum(clients.reads.values()) == 1, "read once, since all have the same signature"


async def test_a_request_is_read_as_its_model_wants_it() -> None:
    other = Signature((TensorSpec("x", Datatype.FP32, (-1,)),), ())
    clients = Clients(Model("m"), Model("gold", signature=other), routes=[GOLD])
    assert await clients.answered_by(parameters={"class": "gold"}) == "gold"
    assert clients.reads == {id(other): 1}
    assert await clients.answered_by() == "m"
    assert clients.reads == {id(other): 2, id(SIGNATURE): 1}


@pytest.mark.parametrize("gold", [[], [Model("gold", UNAVAILABLE, unknown=True)]])
async def test_an_unavailable_model_delays_no_other(gold: list[Model]) -> None:
    clients = Clients(Model("m"), *gold, routes=[GOLD])
    assert await clients.answered_by(parameters={"class": "iron"}) == "m"
    with pytest.raises(InferenceError) as caught:
        await clients.ask(parameters={"class": "gold"})
    assert caught.value.code in (ErrorCode.NOT_FOUND, ErrorCode.UNAVAILABLE)


# --- splits


async def test_shares() -> None:
    route = Route(Split([Part("a", 3), Part("b", 1), Part("c", 0)]))
    clients = Clients(Model("a"), Model("b"), Model("c"), routes=[route])
    for _ in range(400):
        await clients.ask()
    assert abs(len(clients.models["a"].asked) - 300) < 8
    assert not clients.models["c"].asked
    asked = {name: len(clients.models[name].asked) for name in "ab"}
    assert (route.counts.requests, route.counts.parts, route.counts.fallbacks) == (400, asked, 0)


@pytest.mark.parametrize("id", [7, "seven"])
async def test_a_sequence_stays(id: int | str) -> None:
    split = [Part("a"), Part("b")]
    route = Route(Split(split), sticky="X-User")
    clients = Clients(Model("a"), Model("b"), routes=[route])
    sequence = Sequence(id)
    asked = {
        await clients.answered_by(sequence=sequence, context=headers(x_user=str(user))) for user in range(20)
    }
    assert len(asked) == 1
    assert {Split(split).keyed(str(id))} == asked, "in any process"


async def test_a_user_stays() -> None:
    route = Route(Split([Part("a"), Part("b")]), sticky="X-User")
    clients = Clients(Model("a"), Model("b"), routes=[route])
    homes: dict[str, str] = {}
    for user in [str(number) for number in range(20)] * 2:
        home = await clients.answered_by(context=headers(x_user=user))
        assert homes.setdefault(user, home) == home
    assert set(homes.values()) == {"a", "b"}
    assert {await clients.answered_by() for _ in range(20)} == {"a", "b"}, "without the header one by one"


async def test_a_part_that_is_away_keeps_the_others_from_nothing() -> None:
    route = Route(Split([Part("away"), Part("b")]))
    clients = Clients(Model("away", UNAVAILABLE, unknown=True), Model("b"), routes=[route])
    refused = 0
    for _ in range(20):
        try:
            assert await clients.answered_by() == "b"
        except InferenceError:
            refused += 1
    assert 8 <= refused <= 12


async def test_a_slow_part_delays_no_other() -> None:
    """Nobody knows what it takes, and yet the others' requests are read."""

    class Slow(Model):
        async def signature(self, version: str = "") -> Signature:
            await asyncio.sleep(60)
            return SIGNATURE

    route = Route(Split([Part("slow"), Part("b"), Part("c")]), sticky="x-user")
    clients = Clients(Slow("slow"), Model("b"), Model("c"), routes=[route])
    users = [str(user) for user in range(30)]
    async with asyncio.timeout(30):
        for user in users:
            home = route.to.keyed(user)
            if home != "slow":
                assert await clients.answered_by(context=headers(x_user=user)) == home
    assert route.reader in ("b", "c")
    clients.models[route.reader].failure = UNAVAILABLE
    clients.models[route.reader].unknown = True
    other = "c" if route.reader == "b" else "b"
    async with asyncio.timeout(30):
        user = next(user for user in users if route.to.keyed(user) == other)
        assert await clients.answered_by(context=headers(x_user=user)) == other
    assert route.reader == other, "whoever read before has gone away"


# --- fallback


def fallen(failure: InferenceError | None, **more: Any) -> tuple[Clients, Route]:
    route = Route(Split.only("main"), fallback="spare")
    return Clients(Model("main", failure, **more), Model("spare"), routes=[route]), route


def error(code: ErrorCode, **more: Any) -> InferenceError:
    return InferenceError(code, "no", **more)


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize(
    ("failure", "falls"),
    [
        (error(ErrorCode.UNAVAILABLE), True),
        (error(ErrorCode.OVERLOADED), True),
        (error(ErrorCode.NOT_FOUND), True),
        (ConnectionFailedError(ErrorCode.UNAVAILABLE, "refused", sent=False), True),
        (ConnectionFailedError(ErrorCode.UNAVAILABLE, "broke off", sent=True), False),
        (error(ErrorCode.UNAVAILABLE, begun=True), False),
        (error(ErrorCode.NOT_FOUND, details={"shared_memory_region": "r"}), False),
        (error(ErrorCode.INVALID_TENSOR), False),
        (error(ErrorCode.MODEL_FAILED), False),
        (error(ErrorCode.DEADLINE_EXCEEDED), False),
        (error(ErrorCode.BAD_UPSTREAM), False),
    ],
)
async def test_what_falls_back(failure: InferenceError, falls: bool, unknown: bool) -> None:
    clients, route = fallen(failure, unknown=unknown)
    if falls:
        assert await clients.answered_by() == "spare"
    else:
        with pytest.raises(InferenceError) as caught:
            await clients.ask()
        assert caught.value is failure
    assert route.counts.parts == {"main": 1}
    assert (route.counts.requests, route.counts.fallbacks) == (1, int(falls))
    assert len(clients.models["spare"].asked) == falls


async def test_what_a_model_itself_refuses_may_have_run() -> None:
    """As a Python model does that answers UNAVAILABLE; before it is asked, that is no doubt."""
    failure = error(ErrorCode.UNAVAILABLE, retryable=False)
    clients, _ = fallen(failure)
    with pytest.raises(InferenceError):
        await clients.ask()
    clients, _ = fallen(failure, unknown=True)
    assert await clients.answered_by() == "spare"


async def test_a_model_that_is_not_loaded() -> None:
    route = Route(Split.only("gone"), fallback="spare")
    clients = Clients(Model("spare"), routes=[route])
    assert await clients.answered_by() == "spare"
    assert route.counts.fallbacks == 1


async def test_a_fallback_that_fails_too() -> None:
    route = Route(Split.only("main"), fallback="spare")
    last = error(ErrorCode.OVERLOADED)
    clients = Clients(Model("main", UNAVAILABLE), Model("spare", last), routes=[route])
    with pytest.raises(InferenceError) as caught:
        await clients.ask()
    assert caught.value is last
    assert len(clients.models["spare"].asked) == 1


async def test_the_stable_part_as_the_fallback_of_the_other() -> None:
    route = Route(Split([Part("stable"), Part("canary")]), fallback="stable")
    clients = Clients(Model("stable"), Model("canary", UNAVAILABLE), routes=[route])
    assert {await clients.answered_by() for _ in range(10)} == {"stable"}
    counts = route.counts
    assert counts.requests == sum(counts.parts.values()) == 10
    assert counts.fallbacks == counts.parts["canary"] > 0
    clients.models["stable"].failure = UNAVAILABLE
    with pytest.raises(InferenceError):
        await clients.ask()


async def test_a_fallback_with_a_signature_of_its_own_reads_again() -> None:
    other = Signature((TensorSpec("x", Datatype.FP32, (-1,)),), ())
    route = Route(Split.only("main"), fallback="spare")
    clients = Clients(Model("main", UNAVAILABLE), Model("spare", signature=other), routes=[route])
    assert await clients.answered_by() == "spare"
    assert clients.reads == {id(SIGNATURE): 1, id(other): 1}


async def test_a_sequence_that_starts_at_the_fallback_stays_there() -> None:
    clients, route = fallen(UNAVAILABLE)
    assert await clients.answered_by(sequence=Sequence(1, start=True)) == "spare"
    clients.models["main"].failure = None
    assert await clients.answered_by(sequence=Sequence(1)) == "spare"
    assert await clients.answered_by(sequence=Sequence(2, start=True)) == "main"
    assert await clients.answered_by(sequence=Sequence(1, end=True)) == "spare"
    assert await clients.answered_by(sequence=Sequence(1)) == "main", "it is over"
    assert route.counts.fallbacks == 3
    clients.models["main"].failure = UNAVAILABLE
    assert await clients.answered_by(sequence=Sequence(3, start=True)) == "spare"
    clients.models["main"].failure = None
    assert await clients.answered_by(sequence=Sequence(3, start=True)) == "main", "it has started anew"


async def test_a_sequence_in_the_middle_goes_nowhere_else() -> None:
    clients, _ = fallen(UNAVAILABLE)
    for unknown in (False, True):
        clients.models["main"].unknown = unknown
        with pytest.raises(InferenceError) as caught:
            await clients.ask(sequence=Sequence(1))
        assert caught.value is UNAVAILABLE
    assert not clients.models["spare"].asked


async def test_a_sequence_without_a_certain_owner_falls_back_at_its_start_alone() -> None:
    """Peers that are not known yet refuse sequences of local models; here the fallback is an upstream's."""
    clients, route = fallen(None)
    clients.models["spare"].upstream = SimpleNamespace()  # type: ignore[assignment]
    owners = Owners(10.0, lambda _: True)
    owners.changed([Member(None, "a:1")])
    clients.router.peers = Peers(SimpleNamespace(), owners)  # type: ignore[arg-type]
    with pytest.raises(InferenceError, match="the peers are not known yet"):
        await clients.ask(sequence=Sequence(1))
    assert not clients.models["spare"].asked
    assert await clients.answered_by(sequence=Sequence(2, start=True)) == "spare"
    assert await clients.answered_by(sequence=Sequence(2, end=True)) == "spare"
    assert await clients.answered_by() == "main"
    assert route.counts.fallbacks == 2
    assert clients.router.peers.counts["refused"] == 2


async def test_no_sequence_goes_on_in_a_process_that_has_handed_over() -> None:
    """Clients may have begun it again in the successor, and keep connections to both."""
    there = Model("there")
    there.upstream = SimpleNamespace()  # type: ignore[assignment]
    clients = Clients(Model("m"), there, routes=[Route(Split.only("there"), Conditions(dialect="trtis"))])
    clients.service.hand_over()
    for sequence in (Sequence(1), Sequence(1, start=True), Sequence("1", end=True)):
        with pytest.raises(
            InferenceError, match="sequence '1' is with the process that has taken over"
        ) as caught:
            await clients.ask(sequence=sequence)
        assert caught.value.code is ErrorCode.UNAVAILABLE and caught.value.retryable
        await clients.ask("trtis", sequence=sequence)
    assert not clients.models["m"].asked and len(there.asked) == 3
    await clients.ask(sequence=Sequence(1, start=True, end=True))
    await clients.ask()
    assert len(clients.models["m"].asked) == 2


@pytest.mark.parametrize(("given", "falls"), [(0, True), (1, False)])
async def test_a_stream_falls_back_before_its_first_response(given: int, falls: bool) -> None:
    clients, route = fallen(UNAVAILABLE, given=given)
    asked = InferRequest("m", (Tensor.from_numpy("x", np.ones(1, np.int32)),))
    opened = clients.opened(asked, Operation.INFER_STREAM)
    stream = RequestProcessor(clients.service, "here").stream(opened, OIP, Context())
    answers = [answer async for answer, _ in stream]
    assert len(answers) == 2
    assert (answers[-1].error is None) is falls
    assert route.counts.fallbacks == falls


# --- what passes through


def passing(relay: Any, *routes: Route) -> tuple[Clients, Any]:
    """Clients of a model behind an upstream that messages pass to by ``relay``."""

    upstream: Any = SimpleNamespace(
        name="there", offers=lambda _: False, passthrough=PASSTHROUGH, unloaded=UnloadedModels()
    )
    main: Any = UpstreamModel("main", upstream, "main")
    main.pass_through = relay
    main.infer, main.signature = Model("main").infer, Model("main").signature
    clients = Clients(Model("spare"), main, routes=routes)
    asked = InferRequest("m", (Tensor.from_numpy("x", np.ones(1, np.int32)),))
    opened = clients.opened(asked)
    opened.action = replace(opened.action, passthrough=PASSTHROUGH)
    return clients, lambda: RequestProcessor(clients.service, "here").perform(opened, OIP, Context())


async def relayed(*_: Any) -> str:
    return "relayed"


@pytest.mark.parametrize(
    ("more", "passes"),
    [
        ({}, True),
        ({"timeout_secs": 5.0}, True),
        ({"when": Conditions("m", headers={})}, True),
        ({"names": Names({"a": "b"})}, False),
        ({"names": Names(versions={"1": "2"})}, False),
        ({"datatypes": "strict"}, False),
        ({"mirror": SimpleNamespace(should_observe=lambda _: False, on_response=None)}, True),
        ({"when": Conditions(parameters={"class": "gold"})}, False),
    ],
)
async def test_what_passes_by_a_route(more: dict[str, Any], passes: bool) -> None:
    route = Route(Split.only("main"), **more)
    _, ask = passing(relayed, route, Route(Split.only("main")))
    assert (await ask() == "relayed") is passes
    assert route.counts.requests == (not route.when.parameters)


async def test_what_could_not_pass_is_counted_once() -> None:
    async def read_it(*_: Any) -> None:
        return None

    route = Route(Split.only("main"))
    _, ask = passing(read_it, route)
    assert isinstance(await ask(), InferResponse)
    assert route.counts.requests == 1


async def test_what_passes_falls_back() -> None:
    async def refused(*_: Any) -> Any:
        raise ConnectionFailedError(ErrorCode.UNAVAILABLE, "refused", sent=False)

    async def broken(*_: Any) -> Any:
        raise ConnectionFailedError(ErrorCode.UNAVAILABLE, "broke off", sent=True)

    route = Route(Split.only("main"), fallback="spare")
    clients, ask = passing(refused, route)
    assert isinstance(await ask(), InferResponse)
    assert len(clients.models["spare"].asked) == 1
    assert route.counts.parts == {"main": 1}
    assert route.counts.fallbacks == 1
    clients, ask = passing(broken, route)
    with pytest.raises(ConnectionFailedError):
        await ask()
    assert not clients.models["spare"].asked


async def test_a_sequence_that_could_not_pass_keeps_its_place() -> None:
    """Its model is not known for the moment, and that is found before it is known that there is a sequence."""

    async def unknown(*_: Any) -> Any:
        raise InferenceError(ErrorCode.NOT_FOUND, "no model 'main'")

    route = Route(Split.only("main"), fallback="spare")
    clients, _ = passing(unknown, route)
    main: Any = clients.models["main"]
    main.signature = unknown

    async def ask(**place: bool) -> Any:
        asked = InferRequest(
            "m", (Tensor.from_numpy("x", np.ones(1, np.int32)),), sequence=Sequence("s", **place)
        )
        opened = clients.opened(asked)
        opened.action = replace(opened.action, passthrough=PASSTHROUGH)
        return await RequestProcessor(clients.service, "here").perform(opened, OIP, Context())

    with pytest.raises(InferenceError, match="no model 'main'"):
        await ask()
    assert not clients.models["spare"].asked, "it has begun elsewhere"
    await ask(start=True)
    main.signature = Model("main").signature
    await ask()
    assert len(clients.models["spare"].asked) == 2, "it began at the fallback, and stays"
    assert route.counts.requests == 3


# --- deadlines, datatypes, observers


@pytest.mark.parametrize(("callers", "routes"), [(None, 5.0), (1.0, 5.0), (9.0, 5.0), (1.0, None)])
async def test_the_earlier_deadline_holds(callers: float | None, routes: float | None) -> None:
    clients = Clients(Model("main"), routes=[Route(Split.only("main"), timeout_secs=routes)])
    began = time.monotonic()
    await clients.ask(context=Context(deadline=None if callers is None else began + callers))
    deadline = clients.models["main"].asked[0].context.deadline
    assert deadline is not None
    assert deadline - began == pytest.approx(min(filter(None, (callers, routes))), abs=0.5)


async def test_a_signature_that_does_not_come_in_time() -> None:
    class Slow(Model):
        async def signature(self, version: str = "") -> Signature:
            await asyncio.sleep(60)
            return SIGNATURE

    clients = Clients(Slow("main"), routes=[Route(Split.only("main"), timeout_secs=0.01)])
    with pytest.raises(InferenceError) as caught:
        await clients.ask()
    assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED


async def test_inputs_are_widened_to_the_models() -> None:
    wide = Signature((TensorSpec("x", Datatype.INT64, (-1,)),), ())
    clients = Clients(Model("m", signature=wide), routes=[Route(Split.only("m"), datatypes="widen")])
    await clients.ask()
    (given,) = clients.models["m"].asked[0].inputs
    assert given.datatype is Datatype.INT64
    assert given.numpy().tolist() == [1]


@pytest.mark.parametrize(
    ("dialect", "behind", "refused"), [("oip", "", False), ("graphpipe", "", True), ("oip", "grps", True)]
)
async def test_a_strict_route(dialect: str, behind: str, refused: bool) -> None:
    told = Signature((TensorSpec("x", Datatype.BOOL, (-1,)),), ())
    route = Route(Split.only("m"), datatypes="strict")
    clients = Clients(
        Model("m", signature=told), routes=[route], behind={"m": binding_of(behind)} if behind else None
    )
    with pytest.raises(InferenceError, match="'x' of datatype BOOL") if refused else nullcontext():
        await clients.ask(dialect)
    assert len(clients.models["m"].asked) == (not refused)


async def test_a_mirror_looks_on_at_its_route_alone() -> None:
    seen: list[Observed] = []
    mirror: Any = SimpleNamespace(should_observe=lambda request: True, on_response=seen.append)
    route = Route(Split.only("main"), Conditions(headers={"x-mirror": "*"}), fallback="spare", mirror=mirror)
    clients = Clients(Model("m"), Model("main", UNAVAILABLE), Model("spare"), routes=[route])
    await clients.ask()
    await clients.ask(context=headers(x_mirror="1"))
    (observed,) = seen
    assert (observed.answered_by, observed.request.model) == ("spare", "m")
    assert observed.error is None


async def test_a_route_to_names_of_its_own() -> None:
    inner = Signature((TensorSpec("in", Datatype.INT32, (-1,)),), (TensorSpec("y", Datatype.INT32, (-1,)),))
    names = Names({"x": "in"}, {"z": "y"}, {"1": "7"})
    clients = Clients(Model("main", signature=inner), routes=[Route(Split.only("main"), names=names)])
    answer = await clients.ask(version="1")
    (asked,) = clients.models["main"].asked
    assert ([tensor.name for tensor in asked.inputs], asked.version) == (["in"], "7")
    assert ([tensor.name for tensor in answer.outputs], answer.version, answer.model) == (["z"], "1", "m")
