"""The two daemons of the matrix: one that has models of every engine and leads to the other over every wire.

Both listen to every dialect over every transport, as the registry has them. Where a transport has no place for
a model's name, every model has an address of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.address import parse_url
from interlingua.protocols.transport.clients import client_of
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import InferRequest, InferResponse, Operation, Signature
from interlingua.translator.fidelity.parties import Party, callers, targets
from interlingua.translator.fidelity.tensors import stated
from tests.e2e.background import Background
from tests.e2e.daemon import Daemon
from tests.e2e.matrix_models import SUBJECTS, signature_options, subjects, written
from tests.standins.trtis_http_client import TrtisHttp

FAR = {"identity": ("same_", "maps"), "python": ("tell", "count")}
"""Which engines have which models of the far daemon; all others are on ONNX Runtime."""

SHARED = sorted({end.transport for end in callers().values() if end.capability.many_models})
"""The transports over which one listener has all models and dialects."""
APART = [end for end in callers().values() if not end.capability.many_models]
REGION, REGION_BYTES = "region", 64
"""The shared memory that the bridge knows."""

MISSING = "missing"
"""A model of the bridge that the far daemon does not have."""


def label(target: Party, subject: str) -> str:
    """The name by which the bridge has a subject of a target."""
    return f"{target.name.replace('/', '_')}.{subject}"


@dataclass
class World:
    """The bridge, as callers of every kind reach it."""

    bridge: Daemon
    addresses: Mapping[str, str]
    shared: SharedMemory
    background: Background = field(default_factory=Background)
    _asking: dict[tuple[str, str], Upstream] = field(default_factory=dict)

    def address(self, caller: Party, model: str) -> str:
        """Where ``caller`` finds ``model``."""
        return self.addresses[caller.transport if caller.capability.many_models else f"{caller.name} {model}"]

    def infer(self, caller: Party, request: InferRequest, signature: Signature | None) -> InferResponse:
        """Ask as a client of the caller's kind. Raises what it is told."""
        upstream, named = self._client(caller, request)
        answer: InferResponse = self.background.run(upstream.call(Operation.INFER, named, signature))
        return answer

    def stream(self, caller: Party, request: InferRequest, signature: Signature) -> list[InferResponse]:
        """Every answer to a stream. Raises what it is told."""
        upstream, named = self._client(caller, request)

        async def every() -> list[InferResponse]:
            return [each async for each in upstream.stream(named, signature, named.context)]

        return self.background.run(every())

    def close(self) -> None:
        for upstream in self._asking.values():
            self.background.run(upstream.close())
        self.background.close()

    def client(self, caller: Party, model: str) -> Upstream:
        """What requests of ``caller`` for ``model`` go through."""
        address = self.address(caller, model)
        found = self._asking.get((caller.name, address))
        if found is None:
            found = self.background.run(_connected(caller, address))
            self._asking[caller.name, address] = found
        return found

    def _client(self, caller: Party, request: InferRequest) -> tuple[Upstream, InferRequest]:
        found = self.client(caller, request.model)
        if not caller.capability.many_models:
            request.model = ""
        return found, request


async def _connected(caller: Party, address: str) -> Upstream:
    client = client_of(caller.transport)(parse_url(address, caller.transport))
    # a client chooses among outputs without names, where our upstreams ask for all of them
    calls = {
        operation: replace(call, unnamed=False)
        for operation, call in DIALECTS[caller.dialect].bindings[caller.transport].calls.items()
    }
    return Upstream("bridge", calls, [client], 30.0)


@contextmanager
def world(folder: Path) -> Iterator[World]:
    """Both daemons, with everything in them."""
    with _daemon(folder / "far", _far(folder / "far")) as (_, reached):
        config = _bridge(folder / "bridge", reached)
        with _daemon(folder / "bridge", config) as (bridge, addresses), _region(addresses["http"]) as shared:
            running = World(bridge, addresses, shared)
            try:
                yield running
            finally:
                running.close()


@contextmanager
def _region(address: str) -> Iterator[SharedMemory]:
    """Shared memory that the daemon at ``address`` knows, whatever the dialect of those who use it."""
    shared = SharedMemory(create=True, size=REGION_BYTES)
    try:
        TrtisHttp(address).register(REGION, f"/{shared.name}", REGION_BYTES)
        yield shared
    finally:
        shared.close()
        shared.unlink()


@contextmanager
def _daemon(folder: Path, config: dict[str, Any]) -> Iterator[tuple[Daemon, dict[str, str]]]:
    """A daemon, and its addresses: by transport, or by caller and model."""
    places = list(SHARED)
    listeners: list[dict[str, Any]] = [
        {"listen": "127.0.0.1:0", "transport": over, "dialects": _sharing(over)} for over in SHARED
    ]
    for end in APART:
        for number, model in enumerate(config["models"]):
            places.append(f"{end.name} {model}")
            listeners.append(
                {
                    "listen": f"unix:{folder}/{end.dialect}{number}",
                    "transport": end.transport,
                    "dialects": [end.dialect],
                    "default_model": model,
                }
            )
    running = Daemon.start(folder, {**config, "listeners": listeners})
    try:
        yield running, dict(zip(places, running.addresses, strict=True))
        assert running.stop() == 0
        unforeseen = [line for line in running.log if "unexpected error" in line["event"]]
        assert not unforeseen, unforeseen[:3]
    finally:
        running.kill()


def _sharing(transport: str) -> list[str]:
    """The dialects on the listener of ``transport``."""
    over = [end for end in callers().values() if end.transport == transport]
    return [end.dialect for end in over if end.capability.many_models]


def _far(folder: Path) -> dict[str, Any]:
    folder.mkdir()
    models: dict[str, Any] = {}
    for name in SUBJECTS:
        engine = next((each for each, names in FAR.items() if name.startswith(names)), "onnxruntime")
        models |= written(folder, engine, [name])
    return {"models": models}


def _bridge(folder: Path, reached: Mapping[str, str]) -> dict[str, Any]:
    folder.mkdir()
    models: dict[str, Any] = {}
    upstreams: dict[str, Any] = {}
    for target in installed():
        if not target.dialect:
            for name, options in written(folder, target.name, subjects(target.name)).items():
                models[label(target, name)] = options
            continue
        for name in SUBJECTS:
            upstream = _upstream(target, name)
            address = reached[target.transport if target.capability.many_models else f"{target.name} {name}"]
            upstreams[upstream] = {
                "dialect": target.dialect,
                "transport": target.transport,
                "urls": [address],
            }
            model: dict[str, Any] = {"upstream": upstream}
            if target.capability.many_models:
                model["remote_model"] = name
            if stated(target, SUBJECTS[name]):
                model["signature"] = signature_options(name)
            models[label(target, name)] = model
        if target.capability.many_models:
            lost = {"upstream": upstream, "remote_model": "nowhere", "signature": signature_options("scalar")}
            models[label(target, MISSING)] = {**lost, "required": False}
    return {"models": models, "upstreams": upstreams}


def _upstream(target: Party, subject: str) -> str:
    name = target.name.replace("/", "_")
    return name if target.capability.many_models else f"{name}.{subject}"


def installed() -> list[Party]:
    """Every target whose engine is there."""
    from importlib.util import find_spec

    absent = {"torch"} if find_spec("torch") is None else set()
    return [target for name, target in targets().items() if name not in absent]
