"""The clients that are known by name: how many inferences each has in flight, how many it requests per
second, how its requests end.

A limit is one client's alone, so that the others keep their share of a server. Inferences above it are
refused, and may be repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from time import monotonic_ns

from interlingua.protocols.shared_counts import SharedNames
from interlingua.protocols.transport.load import ListenerLoad
from interlingua.schemas import ErrorCode, InferenceError
from interlingua.translator.admin.metrics import Family, Sample

EVERY = "*"
"""The name of the limits of clients that have none of their own."""

MAX_CLIENTS = 4096
"""How many clients are remembered, besides those with requests in flight."""

MAX_LABELS = 1000
"""How many identities have metrics of their own: an issuer of tokens may have millions."""

OTHERS = "other"
"""The label of further identities."""


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """The most inferences of a client in flight, and per second, of which those of a second may come at once;
    None for any number."""

    max_requests: int | None = None
    requests_per_sec: float | None = None


@dataclass(frozen=True, slots=True)
class SharedClients:
    """What each of several processes has of a client: its inferences ``in_flight``, and when its token bucket
    is full again, in nanoseconds of the clock that they share."""

    in_flight: SharedNames
    full_at: SharedNames


class Client:
    """The client ``name``; ``requests`` are its inferences in flight in this process."""

    __slots__ = ("_full_at", "_shared", "limits", "name", "requests")

    def __init__(self, name: str, limits: ClientLimits, shared: SharedClients | None) -> None:
        self.name = name
        self.requests = 0
        self.limits = limits
        self._shared = shared
        self._full_at = 0

    def share(self, shared: SharedClients) -> None:
        """Hold the limits together with other processes, from what is known here."""
        self._shared = shared
        shared.in_flight.set(self.name, self.requests)
        shared.full_at.set(self.name, self._full_at)

    def begin(self, load: ListenerLoad) -> None:
        """Count an inference, which :meth:`end` ends. Raises OVERLOADED above a limit."""
        option = self.admit()
        if option:
            load.count_refusal(option)
            most, rate = self.limits.max_requests, self.limits.requests_per_sec
            refused = f"has {most} requests in flight, as many as"
            if option == "requests_per_sec":
                refused = f"sends more than {rate:g} requests per second, which"
            text = f"client '{self.name}' {refused} its {option} allows; try again"
            raise InferenceError(ErrorCode.OVERLOADED, text)

    def admit(self) -> str:
        """Count an inference, unless it is above a limit: the name of that."""
        most, rate = self.limits.max_requests, self.limits.requests_per_sec
        self.requests += 1
        option = ""
        if most is not None and self._in_flight() > most:
            option = "max_requests"
        elif rate is not None and not self._conforms(rate):
            option = "requests_per_sec"
        if option:
            self.end()
        return option

    def end(self) -> None:
        """An inference has ended."""
        self.requests -= 1
        if self._shared is not None and self.limits.max_requests is not None:
            self._shared.in_flight.set(self.name, self.requests)

    def withdraw(self) -> None:
        """An inference that has begun is counted again, or is none."""
        self.end()
        if (rate := self.limits.requests_per_sec) is not None:
            self._full_at -= round(1e9 / rate)
            if self._shared is not None:
                self._shared.full_at.set(self.name, self._full_at)

    def forget(self) -> None:
        """Leave the room of its name to others."""
        if self._shared is not None:
            self._shared.full_at.set(self.name, 0)

    def _in_flight(self) -> int:
        if self._shared is None:
            return self.requests
        self._shared.in_flight.set(self.name, self.requests)
        # a table without room for the name has none of it
        return max(self.requests, self._shared.in_flight.total(self.name))

    def _conforms(self, rate: float) -> bool:
        """Whether one more is within ``rate``, and if so count it: the generic cell rate algorithm (ITU-T
        I.371), a token bucket whose only state is when it is full again."""
        now, interval = monotonic_ns(), round(1e9 / rate)
        full_at = self._full_at
        if self._shared is not None:
            full_at = max(full_at, self._shared.full_at.largest(self.name))
        full_at = max(now, full_at) + interval
        if full_at - now > max(1, int(rate)) * interval:
            return False
        self._full_at = full_at
        if self._shared is not None:
            self._shared.full_at.set(self.name, full_at)
        return True


class Clients:
    """The clients of all listeners of a process. ``limits`` are by name."""

    def __init__(self, limits: Mapping[str, ClientLimits] | None = None) -> None:
        self._limits: Mapping[str, ClientLimits] = limits or {}
        self._clients: dict[str, Client] = {}
        self._labels: dict[str, str] = {}
        self._shared: SharedClients | None = None
        self.ended: Counter[tuple[str, ErrorCode | None]] = Counter()

    def share(self, shared: SharedClients) -> None:
        """Hold the limits together with other processes."""
        self._shared = shared
        for client in self._clients.values():
            client.share(shared)

    def limit(self, limits: Mapping[str, ClientLimits]) -> None:
        """Have other limits from now on."""
        self._limits = limits
        for client in self._clients.values():
            client.limits = self._limits_of(client.name)

    def client(self, name: str) -> Client:
        """The client ``name``."""
        return self._clients.get(name) or self._add(name)

    def count(self, name: str, code: ErrorCode | None) -> None:
        """A request of the client ``name`` has ended, with an error ``code`` if it has failed."""
        label = self._labels.get(name)
        if label is None:
            label = OTHERS
            if len(self._labels) < MAX_LABELS:
                label = self._labels[name] = name
        self.ended[label, code] += 1

    def families(self) -> Iterator[Family]:
        """The metrics of clients."""
        yield Family(
            "interlingua_identity_requests_total",
            "counter",
            "Requests of authenticated clients that have ended, by identity and code ('OK', or that of "
            f"the error). Identities after the first {MAX_LABELS} have the label '{OTHERS}'.",
            [
                Sample(count, {"identity": label, "code": "OK" if code is None else code.name})
                for (label, code), count in self.ended.items()
            ],
        )

    def _add(self, name: str) -> Client:
        while len(self._clients) >= MAX_CLIENTS:
            idle = next((each for each in self._clients.values() if not each.requests), None)
            if idle is None:
                break
            self._clients.pop(idle.name).forget()
        client = self._clients[name] = Client(name, self._limits_of(name), self._shared)
        return client

    def _limits_of(self, name: str) -> ClientLimits:
        return self._limits.get(name) or self._limits.get(EVERY) or ClientLimits()
