"""Limits and counts of clients that are known by name."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable

import pytest

from interlingua.protocols.shared_counts import SharedCounts, page_bytes
from interlingua.protocols.transport.load import ListenerLoad
from interlingua.schemas import ErrorCode, InferenceError
from interlingua.translator.access import clients
from interlingua.translator.access.clients import ClientLimits, Clients, SharedClients

LIMITS = {"ann": ClientLimits(2), "bob": ClientLimits(requests_per_sec=2.0), "*": ClientLimits(1)}


def begins(of: Clients, name: str, load: ListenerLoad | None = None) -> bool:
    """Whether a request begins; a refusal, which the next one is too, has words for the client."""
    with contextlib.suppress(InferenceError):
        of.client(name).begin(ListenerLoad() if load is None else load)
        return True
    with pytest.raises(InferenceError, match=f"client '{name}' .*; try again") as refused:
        of.client(name).begin(ListenerLoad())
    assert refused.value.code is ErrorCode.OVERLOADED
    return False


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the clock of token buckets."""
    now = [1000.0]
    monkeypatch.setattr(clients, "monotonic_ns", lambda: int(now[0] * 1e9))

    def move(secs: float) -> None:
        now[0] = 1000 + secs

    return move


def test_requests_in_flight() -> None:
    load, limited = ListenerLoad(), Clients(LIMITS)
    assert [begins(limited, "ann", load) for _ in range(4)] == [True, True, False, False]
    assert load.refused == {"max_requests": 2}
    limited.client("ann").end()
    assert [begins(limited, "ann") for _ in range(2)] == [True, False]
    assert limited.client("ann").requests == 2
    # each client without limits of its own has those of all
    assert [begins(limited, name) for name in ("eve", "eve", "joe")] == [True, False, True]


def test_requests_per_second(at: Callable[[float], None]) -> None:
    load, limited = ListenerLoad(), Clients(LIMITS)
    assert [begins(limited, "bob", load) for _ in range(5)] == [True, True, False, False, False]
    assert load.refused == {"requests_per_sec": 3}
    at(0.5)  # refused requests have cost no token
    assert [begins(limited, "bob") for _ in range(2)] == [True, False]
    at(100.0)
    assert [begins(limited, "bob") for _ in range(3)] == [True, True, False]


def test_no_limits() -> None:
    assert all(begins(Clients(), "ann") for _ in range(1000))


def test_remembered_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "MAX_CLIENTS", 3)
    limited = Clients(LIMITS)
    busy = limited.client("ann")
    busy.begin(ListenerLoad())
    for number in range(10):
        limited.client(str(number))
    assert len(limited._clients) == 3
    assert limited.client("ann") is busy


def test_metrics_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "MAX_LABELS", 2)
    counted = Clients()
    for name, code in (("a", None), ("b", None), ("c", None), ("d", ErrorCode.FORBIDDEN), ("a", None)):
        counted.count(name, code)
    (family,) = counted.families()
    assert {(each.labels["identity"], each.labels["code"]): each.value for each in family.samples} == {
        ("a", "OK"): 2,
        ("b", "OK"): 1,
        ("other", "OK"): 1,
        ("other", "FORBIDDEN"): 1,
    }


def shared(row: int, page: mmap.mmap) -> Clients:
    counts = SharedCounts(page, row, 3, 0, 2)
    made = Clients(LIMITS)
    made.share(SharedClients(counts.names(0), counts.names(1)))
    return made


def test_limits_hold_over_all_processes(at: Callable[[float], None]) -> None:
    page = mmap.mmap(-1, page_bytes(3, 0, 2))
    processes = [shared(row, page) for row in range(3)]
    assert [begins(each, "ann") for each in processes] == [True, True, False]
    processes[0].client("ann").end()
    assert [begins(each, "ann") for each in reversed(processes)] == [True, False, False]
    assert [begins(each, "bob") for each in processes] == [True, True, False]
    at(0.5)
    assert [begins(each, "bob") for each in reversed(processes)] == [True, False, False]
    # what a process had that has exited is free
    SharedCounts(page, 0, 3, 0, 2).clear(2)
    assert [begins(each, "ann") for each in processes[:2]] == [True, False]
    at(10.0)
    assert [begins(each, "bob") for each in processes[:2] * 2] == [True, True, False, False]
