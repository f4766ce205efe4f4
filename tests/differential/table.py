"""Every case: a caller, a target and a scenario."""

from __future__ import annotations

from typing import NamedTuple

from tests.differential.acts import SILENCE, answers, large
from tests.differential.calls import BINDINGS, Kit
from tests.differential.changes import CHANGES, LOCAL_CHANGES, UPSTREAM_CHANGES
from tests.differential.forms import FORMS, TRANSPORTS
from tests.differential.scenarios import REQUESTS, floats, usual
from tests.differential.world import Scenario

LOCAL = "local"


class Case(NamedTuple):
    """``target`` is the binding of an upstream, or ``LOCAL``."""

    caller: str
    target: str
    name: str
    scenario: Scenario

    def __str__(self) -> str:
        return f"{self.caller} to {self.target}: {self.name}"


WITHOUT_PLANS = {
    *(("graphpipe/tcp", target) for target in (LOCAL, *BINDINGS)),
    *((caller, target) for caller in BINDINGS for target in ("graphpipe/tcp", "grps/http", "tfserving/http")),
    *(("tfserving/http", target) for target in BINDINGS),
    *((caller, target) for caller in ("grps/http", "grps/grpc", "grps/brpc") for target in BINDINGS),
}
"""Callers and targets between which no plan takes requests."""

_SILENT = [
    ("oip/http", "oip/http"),
    ("oip/grpc", "oip/grpc"),
    ("trtis/http", "oip/http"),
    ("graphpipe/http", "oip/grpc"),
]
"""A deadline takes its time: these are enough."""


def targets(caller: str) -> list[str]:
    """Those with every scenario."""
    return list(dict.fromkeys((LOCAL, caller, "oip/http", "oip/grpc")))


def _scenarios(caller: str, target: str) -> dict[str, Scenario]:
    own = FORMS.get(caller, {}) | TRANSPORTS[Kit.of(caller).transport]
    more = LOCAL_CHANGES if target == LOCAL else UPSTREAM_CHANGES | answers(target)
    return REQUESTS | own | CHANGES | more


_REPEATS = Scenario(lambda kit: usual(kit, 12), repeat=False)

CASES = [
    *(
        Case(caller, target, name, scenario)
        for caller in BINDINGS
        for target in targets(caller)
        for name, scenario in _scenarios(caller, target).items()
        if caller not in scenario.without
    ),
    *(
        Case(caller, target, "floats", Scenario(floats))
        for caller in BINDINGS
        for target in BINDINGS
        if "graphpipe/tcp" not in (caller, target)
    ),
    *(
        Case(caller, target, "repeats", _REPEATS)
        for caller in BINDINGS
        for target in BINDINGS
        if target not in targets(caller)
    ),
    *(Case(caller, target, "silence", SILENCE) for caller, target in _SILENT),
    *(
        Case(caller, target, f"{size} elements", large(size))
        for caller, target in _SILENT
        for size in (5_000, 10_000)
    ),
    Case("oip/grpc", "oip/grpc", "130000 elements", large(130_000)),
]


_UNTAKEN = {
    *((caller, LOCAL, "connections") for caller in BINDINGS),
    ("oip/grpc", "oip/grpc", "default model"),
    ("graphpipe/http", LOCAL, "default model"),
    ("oip/http", "oip/grpc", "JSON"),
    ("trtis/http", "oip/http", "10000 elements"),
    ("graphpipe/http", "oip/grpc", "10000 elements"),
    *(("oip/http", target, "from binary to JSON") for target in ("oip/http", "oip/grpc")),
}
"""Cases of which no request is taken, where others between that caller and target are."""


def takes_plans(case: Case) -> bool:
    """Whether plans take requests of ``case``."""
    pair = case.caller, case.target
    return case.scenario.repeat and pair not in WITHOUT_PLANS and (*pair, case.name) not in _UNTAKEN
