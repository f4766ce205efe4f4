"""What holds for every test."""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import settings

# a property says what is true, not how soon: a busy machine must not make it fail; `make properties` looks longer
settings.register_profile(
    "untimed", deadline=None, max_examples=int(os.environ.get("PROPERTY_EXAMPLES", "100"))
)
settings.load_profile("untimed")

gc.disable()  # until all tests are collected: see pytest_collection_finish

_FIRST = ("e2e", "benchmarks", "chaos")
"""Folders whose files take long. They run first: test processes that share the files end at the same time then."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests by folder; the tests of a file stay together, in their order."""
    items.sort(key=lambda item: item.path.parent.name not in _FIRST)


def pytest_collection_finish() -> None:
    """Take the tests themselves, thousands of objects that stay, out of every garbage collection to come."""
    gc.collect()
    gc.freeze()
    gc.enable()
