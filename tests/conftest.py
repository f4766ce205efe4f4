"""What holds for every test."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# a property says what is true, not how soon: a busy machine must not make it fail; `make properties` looks longer
settings.register_profile(
    "untimed",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=int(os.environ.get("PROPERTY_EXAMPLES", "100")),
)
settings.load_profile("untimed")

gc.disable()  # until all tests are collected: see pytest_collection_finish

_FIRST = ("e2e", "benchmarks", "chaos")
"""Folders whose files take long. They run first: test processes that share the files end at the same time then."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--daemon-workers",
        type=lambda text: [int(number) for number in text.split(",")],
        default=os.environ.get("DAEMON_WORKERS", "0"),
        help="run the end-to-end tests with so many front ends per daemon; 0,2: with each of these numbers",
    )
    parser.addoption(
        "--every", type=int, default=1, metavar="N", help="run every Nth test of each file, from the first on"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the tests by folder; the tests of a file stay together, in their order."""
    items.sort(key=lambda item: item.path.parent.name not in _FIRST)
    count: Counter[Path] = Counter()
    chosen = []
    for item in items:
        if count[item.path] % config.getoption("every") == 0:
            chosen.append(item)
        count[item.path] += 1
    items[:] = chosen


def pytest_collection_finish() -> None:
    """Take the tests themselves, thousands of objects that stay, out of every garbage collection to come. What is
    garbage among them costs less memory than a collection costs time."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def nothing_left_open() -> Iterator[None]:
    """Collect the garbage of each file at its end: a transport that it left open fails its last test. Later, it
    would fail a test of another file."""
    yield
    gc.collect()
