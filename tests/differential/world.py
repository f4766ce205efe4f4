"""A daemon between a caller and its target, and everything that a scenario leaves behind there."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import orjson
import yaml

from interlingua.protocols.transport import servers
from interlingua.protocols.transport.address import parse_address
from interlingua.protocols.transport.servers import ServerSettings
from interlingua.translator.assembly import Assembly, assemble, load_local
from interlingua.translator.config.loader import parse
from interlingua.translator.config.options import Config
from interlingua.translator.serving.access_log import AccessLog
from interlingua.translator.serving.pipeline import Pipeline
from tests.differential.callers import CALLERS
from tests.differential.calls import Call, Kit
from tests.differential.changing import settled
from tests.differential.standin import FLOATS, IDENTITY, OTHER, Act, Standin
from tests.waiting import until

NO_SCRIPT: Mapping[int, Act] = {}


@dataclass
class World:
    """``here`` is the assembly of the daemon, ``there`` its upstream, if it has one."""

    here: Assembly
    pipeline: Pipeline
    server: Any
    caller: Any
    log: list[dict[str, Any]]
    there: Standin | None
    kit: Kit
    plans: bool
    notes: list[Any] = field(default_factory=list)
    at_end: list[Callable[[], Any]] = field(default_factory=list)
    """What returns more notes, after the last request."""

    @property
    def service(self) -> Any:
        return self.here.service

    @property
    def models(self) -> Any:
        return self.service.router.models

    @property
    def processor(self) -> Any:
        return self.pipeline._processor

    def counts(self) -> dict[str, Any]:
        """Everything that is counted, but the times."""
        metrics, load, service = (
            self.pipeline.request_metrics[self.kit.dialect],
            self.pipeline.load,
            self.service,
        )
        return {
            "ended": {str(key): count for key, count in metrics.ended.items()},
            "in flight": [metrics.in_flight, load.requests, load.total.requests, load.body_bytes],
            "refused": dict(load.refused),
            "bytes": [metrics.received_bytes, metrics.sent_bytes],
            "flows": {str(key): [sum(flow.counts), flow.failed] for key, flow in metrics.flows.items()},
            "stages": {key: sum(stage.counts) for key, stage in metrics.stages.items()},
            "models": {name: _statistics(self.models[name]) for name in sorted(self.models)},
            "servers": [
                [each.requests, each.running, each.failures, each.open]
                for upstream in self.here.upstreams.values()
                for each in upstream.pool.members
            ],
            "numbers": next(service.numbers),
            "trend": len(service.trends.counts().latencies_ns),
        }

    def idle(self) -> bool:
        metrics, load = self.pipeline.request_metrics[self.kit.dialect], self.pipeline.load
        running = [each.running for up in self.here.upstreams.values() for each in up.pool.members]
        return not any((metrics.in_flight, load.requests, load.total.requests, *running))


def _statistics(model: Any) -> dict[str, Any]:
    return {
        version: [
            each.inference_count,
            each.execution_count,
            each.refused,
            {str(code): count for code, count in each.failures.items()},
            sum(each.latencies.counts),
        ]
        for version, each in model.statistics.items()
    }


@dataclass(frozen=True)
class Do:
    """A step that changes the world."""

    act: Callable[[World], Awaitable[None] | None]


@dataclass(frozen=True)
class Together:
    """Calls that are sent at once."""

    calls: tuple[Call, ...]


Step = Call | Do | Together


@dataclass(frozen=True)
class Scenario:
    """``steps`` for a kit, by a ``script`` of the upstream, with more options of the configuration. Those that
    ``repeat`` have plans that take requests, to every target where requests like them have any. It is not for
    callers in ``without``. Where requests are ``unordered``, several are on their way at a time."""

    steps: Callable[[Kit], Sequence[Step]]
    script: Mapping[int, Act] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    server: Mapping[str, Any] = field(default_factory=dict)
    listener: Mapping[str, Any] = field(default_factory=dict)
    upstream: Mapping[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    repeat: bool = True
    unordered: bool = False


def configuration(kit: Kit, there: Standin | None, plans: bool, scenario: Scenario) -> dict[str, Any]:
    listener = {"listen": "127.0.0.1:0", "transport": kit.transport, "dialects": [kit.dialect]}
    models: dict[str, Any] = {"m": IDENTITY, "n": IDENTITY, "other": OTHER, "floats": FLOATS}
    config: dict[str, Any] = {
        "server": {"plans": plans, "access_log": "errors", **scenario.server},
        "admin": {"listen": "127.0.0.1:0"},
        "listeners": [{**listener, "default_model": "m", **scenario.listener}],
    }
    if there is not None:
        flavor = {"flavor": "triton"} if there.dialect == "oip" else {}
        upstream = {"dialect": there.dialect, "transport": there.transport, "urls": [there.address], **flavor}
        config["upstreams"] = {"there": {**upstream, "probe_interval_secs": 0.0, **scenario.upstream}}
        named = (there.dialect, there.transport) != ("graphpipe", "tcp")
        for name in models:
            remote = {"remote_model": name} if named else {}
            models[name] = {"upstream": "there", "signature": models[name]["signature"], **remote}
    return {**config, "models": models, **scenario.config}


@cache
def _parsed(config: bytes) -> Config:
    return parse(yaml.safe_dump(orjson.loads(config)))


async def opened(
    stack: AsyncExitStack, kit: Kit, there: Standin | None, plans: bool, scenario: Scenario
) -> World:
    """A world that ``stack`` closes."""
    config = configuration(kit, there, plans, scenario)
    options = _parsed(orjson.dumps(config))
    here = assemble(options, load_local(options))
    stack.push_async_callback(here.close)
    log: list[dict[str, Any]] = []
    upstream = "" if there is None else "there"
    here.service.access.close()
    here.service.access = AccessLog(options.server.access_log, lambda _: upstream, write=log.extend)
    stack.callback(here.service.access.close)
    (listener,) = options.listeners
    pipeline = here.pipeline(listener)
    settings = ServerSettings(
        listener.max_request_bytes, max_response_bytes=listener.max_response_bytes, load=pipeline.load
    )
    server = servers.SERVERS[kit.transport](pipeline.handlers, parse_address("127.0.0.1:0"), settings)
    address = await server.start()
    stack.push_async_callback(server.stop, 0)
    caller = CALLERS[kit.transport](address)
    stack.push_async_callback(caller.close)
    return World(here, pipeline, server, caller, log, there, kit, plans)


async def played(world: World, steps: Sequence[Step]) -> list[Any]:
    """The answers to the calls of ``steps``."""
    answers: list[Any] = []
    for step in steps:
        if isinstance(step, Do):
            waiting = step.act(world)
            if waiting is not None:
                await waiting
        else:
            answers += await world.caller.call(*(step.calls if isinstance(step, Together) else (step,)))
    await until(world.idle, pace_secs=0)
    return answers


async def outcome(kit: Kit, there: Standin | None, plans: bool, scenario: Scenario) -> dict[str, Any]:
    """Everything that ``scenario`` shows and leaves."""
    if there is not None:
        there.begin(scenario.script)
    async with AsyncExitStack() as stack:
        world = await opened(stack, kit, there, plans, scenario)
        answers = await played(world, scenario.steps(kit))
        world.notes += [each() for each in world.at_end]
        found: dict[str, Any] = {"answers": answers, "counts": world.counts(), "notes": world.notes}
    if there is not None and scenario.unordered:
        found["seen"] = sorted(re.split("(?=POST /)", "".join(str(each) for each in there.seen)))
    elif there is not None:
        found["seen"], found["connections"] = there.seen, there.relay.connections
    found["log"] = world.log
    made: dict[str, Any] = settled(found)
    if scenario.unordered and kit.transport == "grpc":
        made["answers"].sort(key=repr)
    return made
