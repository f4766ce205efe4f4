"""What holds for a server of one process alone, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

ONE_LOOP = "it measures the process with the event loop, not the supervisor"
LIBRARY = "grpcio listens by itself: front ends cannot share its sockets"

ONE_PROCESS = {
    "test_descriptors.py::test_the_admin_address_answers": ONE_LOOP,
    "test_oip_shared_memory_cost.py::test_a_fifth_of_grpc_at_most": ONE_LOOP,
}
"""Reasons by the name of a file, or of a file and a test."""


def reason(item: pytest.Item) -> str | None:
    """Why a test does not apply to a server of several processes; None if it does."""
    name = getattr(item, "originalname", item.name)
    return ONE_PROCESS.get(f"{item.path.name}::{name}", ONE_PROCESS.get(item.path.name))


def needs_one(config: Mapping[str, Any]) -> str | None:
    """Why a daemon of this configuration has one process; None if it may have several."""
    library = any(
        each["transport"] == "grpc" and each.get("engine") == "library" for each in config["listeners"]
    )
    return LIBRARY if library else None
