"""What differs between two configurations, by kind and name, and what only a restart can change."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from interlingua.protocols.section import Section
from interlingua.protocols.transport.address import parse_address
from interlingua.protocols.transport.sockets import place_of
from interlingua.translator.config.auth import AuthOptions
from interlingua.translator.config.identities import has_users
from interlingua.translator.config.options import Config, ListenerOptions
from interlingua.translator.config.routes import RouteOptions

LIVE = frozenset(
    (
        *("name", "id", "strict_readiness", "ready_when_empty", "repository_poll_secs", "offline_scope"),
        *("shared_memory", "max_instances", "max_models", "max_inline_run_us", "max_inflight_requests"),
        *("max_inflight_bytes", "stalled_after_secs", "drain_secs", "shutdown_timeout_secs"),
        *("log_level", "access_log", "plans"),
    )
)
"""The options of ``server`` that take effect without a restart."""

AT_START = frozenset({"tracing", "peers", "ray"})
"""The sections that only a restart applies, apart from ``admin``."""

_KINDS = frozenset({"server", "listeners", "admin", "models", "upstreams", "routes", "tap", "include"})
"""The sections with rules of their own here; a change of any other is an option that has changed."""


@dataclass(slots=True)
class Difference:
    """What was ``added`` and ``removed``, by name, and what has ``changed``, with the options that have."""

    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    changed: dict[str, list[str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


Differences = dict[str, Difference]
"""By kind: ``listeners``, ``models``, ``upstreams``, ``routes``, ``mirrors``, ``tap``, ``options``."""


def differences(before: Config, after: Config) -> Differences:
    """What differs, without the models of repositories, whose files decide."""
    return {
        "listeners": _of_listeners(before.listeners, after.listeners),
        "models": _of_entries(before.models, after.models),
        "upstreams": _of_entries(before.upstreams, after.upstreams),
        "routes": _of_entries(*(dict(_routes(each.routes)) for each in (before, after))),
        "mirrors": _of_entries(*(dict(_mirrors(each.routes)) for each in (before, after))),
        "tap": _of_entries(
            *({} if each.tap is None else {each.tap.path: each.tap} for each in (before, after))
        ),
        "options": Difference(changed={name: [] for name in _changed_options(before, after)}),
    }


def needing_restart(before: Config, after: Config) -> list[str]:
    """The options that differ and that only a restart changes."""
    found = [f"server.{key}" for key in changed_keys(before.server, after.server) if key not in LIVE]
    if (before.admin is None) != (after.admin is None):
        found.append("admin")
    elif before.admin is not None and after.admin is not None:
        found += [f"admin.{key}" for key in changed_keys(before.admin, after.admin)]
    found += [key for key in changed_keys(before, after) if key in AT_START]
    found += _of_auth(before, after)
    for old, new in paired(before.listeners, after.listeners):
        if old is not None and new is not None and old != new and (binds_itself(old) or binds_itself(new)):
            found.append(f"listener {new.listen} with engine: library")
    return found


def _of_auth(before: Config, after: Config) -> Iterator[str]:
    """The parts of ``auth`` that need a restart: options read by the admin address, and memory that processes
    share."""
    old, new = before.auth or AuthOptions(), after.auth or AuthOptions()
    if after.admin is not None and has_users(after.admin):
        yield from (
            f"auth.{key}, which admin.allow uses" for key in changed_keys(old, new) if key != "limits"
        )
    if after.server.several_processes and new.limits and not old.limits:
        yield "auth.limits, the first ones with server.workers"


def binds_itself(options: ListenerOptions) -> bool:
    """Whether the listener is served by grpcio, which takes no socket."""
    return options.engine == "library" and options.transport == "grpc"


def paired(
    before: Sequence[ListenerOptions], after: Sequence[ListenerOptions]
) -> Iterator[tuple[ListenerOptions | None, ListenerOptions | None]]:
    """Listeners of both configurations with the same address, equal ones first, and those of one alone."""
    for old, new in pairs(before, after):
        yield None if old is None else before[old], None if new is None else after[new]


def pairs(
    before: Sequence[ListenerOptions], after: Sequence[ListenerOptions]
) -> list[tuple[int | None, int | None]]:
    """As :func:`paired`, by number: those ``after`` in their order, then those that are removed."""
    left = dict(enumerate(before))
    found: dict[int, int] = {}
    for compared in (_itself, _server, _address, _place):
        for number, options in enumerate(after):
            if number in found or not left:
                continue
            wanted = compared(options)
            match = next((each for each, old in left.items() if compared(old) == wanted), None)
            if match is not None:
                found[number] = match
                del left[match]
    return [*((found.get(number), number) for number in range(len(after))), *((each, None) for each in left)]


def _itself(options: ListenerOptions) -> object:
    return options


def _server(options: ListenerOptions) -> object:
    return options.listen, options.transport


def _address(options: ListenerOptions) -> object:
    return options.listen


def _place(options: ListenerOptions) -> object:
    """The same for all spellings of an address: ``localhost`` and 127.0.0.1, say."""
    try:
        return place_of(parse_address(options.listen))
    except OSError:  # an unknown host, which is an error when it is bound
        return options.listen


def changed_keys(before: Section, after: Section) -> list[str]:
    """The options that differ between two sections of one class."""
    names = type(after).model_fields
    return [name for name in names if getattr(before, name, None) != getattr(after, name)]


def _changed_options(before: Config, after: Config) -> Iterator[str]:
    yield from (f"server.{key}" for key in changed_keys(before.server, after.server))
    yield from (key for key in changed_keys(before, after) if key not in _KINDS)


def _of_listeners(before: Sequence[ListenerOptions], after: Sequence[ListenerOptions]) -> Difference:
    found = Difference()
    for old, new in paired(before, after):
        if old is None and new is not None:
            found.added.append(new.listen)
        elif new is None and old is not None:
            found.removed.append(old.listen)
        elif old is not None and new is not None and old != new:
            found.changed[new.listen] = changed_keys(old, new)
    return found


def _of_entries(before: Mapping[str, Section], after: Mapping[str, Section]) -> Difference:
    return Difference(
        [name for name in after if name not in before],
        [name for name in before if name not in after],
        {
            name: changed_keys(before[name], options)
            for name, options in after.items()
            if name in before and before[name] != options
        },
    )


def _routes(routes: Iterable[RouteOptions]) -> Iterator[tuple[str, RouteOptions]]:
    """By the conditions, which several routes may share."""
    taken: dict[Hashable, int] = {}
    for route in routes:
        name = conditions(route)
        taken[name] = taken.get(name, 0) + 1
        yield name if taken[name] == 1 else f"{name} ({taken[name]})", route


def _mirrors(routes: Iterable[RouteOptions]) -> Iterator[tuple[str, Section]]:
    return ((f"{name} to {each.mirror.to}", each.mirror) for name, each in _routes(routes) if each.mirror)


def conditions(route: RouteOptions) -> str:
    """The conditions of a route as text."""
    stated: dict[str, Any] = route.match.model_dump(exclude_none=True)
    return " ".join(f"{key}={value}" for key, value in stated.items() if value not in ("", {}, ()))


def sections_of_dialects(config: Config) -> list[Any]:
    """The options of dialects, which all their listeners have."""
    own = Config.model_fields
    return [getattr(config, name) for name in type(config).model_fields if name not in own]
