"""Needs Ray, which is in an environment of its own: make test-ray."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder starts a cluster."""
    here = f"{Path(__file__).parent}/"
    for item in items:
        # of all tests: strings, which are faster than the parents of paths
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.ray)
            item.add_marker(pytest.mark.timeout(600))
