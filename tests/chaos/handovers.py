"""``python -m tests.chaos.handovers``: a daemon is replaced again and again, under load.

Callers of every dialect and transport, with kept and with new connections, check every answer; probes read readiness all
the time. No request may fail. Clients do what those of their protocol do: they send a call again that bRPC refuses with
2003 (``ELOGOFF``), and one over framed tcp whose kept connection ends without a byte, which the protocol cannot announce.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from interlingua.protocols.transport.address import parse_url
from interlingua.protocols.transport.client_options import ClientOptions
from interlingua.protocols.transport.clients import CLIENTS
from interlingua.protocols.transport.tls import ClientTls, TlsContext
from tests.certificates import Authority, Issued
from tests.chaos.callers import NEW, PAIRS, Caller
from tests.chaos.world import IDENTITY, TRANSPORTS, listener
from tests.e2e.daemon import WAIT_SECS, Daemon
from tests.waiting import until

PAUSE_SECS = 0.02
DRAIN_SECS = 0.5
_ELOGOFF = "Server is stopping"


class Client(Caller):
    """A caller that tries again where a client of its protocol does. ``again`` counts that."""

    again = 0
    tls: TlsContext | None = None

    def _client(self) -> Any:
        return CLIENTS[self.transport, "native"](
            parse_url(self.address, self.transport), ClientOptions(tls=self.tls)
        )

    async def _call(self, client: Any, number: int) -> str:
        outcome = await super()._call(client, number)
        if outcome != "ok" and self._may_repeat():
            self.faults.pop()
            self.again += 1
            outcome = await super()._call(client, number)
        return outcome

    def _may_repeat(self) -> bool:
        if self.transport == "brpc":
            return _ELOGOFF in self.faults[-1]
        return self.transport == "tcp" and self.faults[-1].startswith("lost") and self.target != NEW


@dataclass
class Result:
    """Outcomes by caller, and readings of readiness that were not ``200``."""

    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    again: int = 0
    probes: Counter[str] = field(default_factory=Counter)
    exits: list[int] = field(default_factory=list)

    @property
    def violations(self) -> list[str]:
        """What must not happen."""
        found = [f"{name}: {counts}" for name, counts in self.outcomes.items() if set(counts) != {"ok"}]
        found += [f"readiness: {what} {count} times" for what, count in self.probes.items() if what != "200"]
        return found + [f"exit code {code}" for code in self.exits if code] + self.faults


def configuration(folder: Path, issued: Issued) -> dict[str, Any]:
    """A daemon with a listener for each transport, one on a unix socket and one with TLS."""
    return {
        "server": {"handover_socket": str(folder / "handover.sock"), "drain_secs": DRAIN_SECS},
        "admin": {"listen": "127.0.0.1:0"},
        "default_model": "local",
        "models": {"local": IDENTITY},
        "listeners": [
            *map(listener, TRANSPORTS),
            listener("http", f"unix:{folder}/http.sock"),
            listener("http", tls={"cert": issued.cert, "key": issued.key}),
        ],
    }


def _callers(daemon: Daemon, authority: Authority, pause_secs: float) -> list[Client]:
    *plain, unix, tls = daemon.addresses
    at = dict(zip(TRANSPORTS, plain, strict=True))
    places = [(*pair, at[pair[1]]) for pair in PAIRS]
    places += [("oip", "http", unix), ("oip", "http", f"https://{tls}")]
    made = [
        Client(dialect, transport, target, "local", address, pause_secs=pause_secs)
        for dialect, transport, address in places
        for target in ("local", NEW)
    ]
    for each in made:
        if each.address.startswith("https"):
            each.tls = TlsContext(ClientTls(authority.ca))
    return made


async def run(folder: Path, workers: Sequence[int], pause_secs: float = PAUSE_SECS) -> Result:
    """Have a daemon for each number of front ends in ``workers`` replace the one before it."""
    authority = Authority(folder / "tls")
    config = configuration(folder, authority.issue("127.0.0.1"))
    result = Result()
    first, *others = ({**config, "server": {**config["server"], "workers": number}} for number in workers)
    daemon = await asyncio.to_thread(Daemon.start, folder, first)
    callers = _callers(daemon, authority, pause_secs)
    tasks = [asyncio.create_task(each.run()) for each in callers]
    tasks.append(asyncio.create_task(_probe(daemon.admin, result)))
    try:
        for each_config in others:
            successor = Daemon.begin(folder, each_config, "--take-over")
            try:
                await asyncio.to_thread(successor.until, "took over")
                result.exits.append(await asyncio.to_thread(daemon.process.wait, WAIT_SECS))
                # each caller has been answered by the successor
                goals = [(each, len(each.seen) + 2) for each in callers]
                await until(
                    lambda goals=goals: all(len(each.seen) >= goal for each, goal in goals), WAIT_SECS
                )
            finally:
                daemon.kill()
                daemon = successor
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        result.exits.append(await asyncio.to_thread(daemon.stop))
    for each in callers:
        name = f"{each.dialect} {each.transport} {'new' if each.target == NEW else 'kept'} {each.address}"
        result.outcomes[name] = Counter(seen.outcome for seen in each.seen)
        result.faults += [f"{name}: {fault}" for fault in each.faults]
        result.again += each.again
    result.faults += [repr(end) for end in ended if not isinstance(end, asyncio.CancelledError)]
    return result


async def _probe(admin: str, result: Result) -> None:
    """Read readiness, over new and kept connections."""
    for_kept = aiohttp.TCPConnector()
    async with aiohttp.ClientSession(connector=for_kept) as kept:
        while True:
            for headers in ({}, {"connection": "close"}):
                async with kept.get(f"{admin}/health/ready", headers=headers) as answer:
                    result.probes[str(answer.status)] += 1
            await asyncio.sleep(PAUSE_SECS)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.handovers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="how often the daemon is replaced")
    parser.add_argument(
        "--workers", default="0,2,0-2", help="numbers of front ends: 0,2: first 0, then 2; 0-2: in turn"
    )
    options = parser.parse_args()
    violations = []
    for workers in options.workers.split(","):
        numbers = [int(number) for number in workers.split("-")] * (options.rounds + 1)
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            result = asyncio.run(run(Path(folder), numbers[: options.rounds + 1]))
        total = sum(map(Counter.total, result.outcomes.values()))
        print(
            f"workers {workers}: {options.rounds} hand-overs in {time.monotonic() - began:.0f} s, {total} requests, "
            f"{result.again} sent again, {result.probes.total()} probes, {len(result.violations)} violations"
        )
        violations += [f"workers {workers}: {each}" for each in result.violations]
    print(*violations, sep="\n", file=sys.stderr)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
