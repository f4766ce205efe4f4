"""What holds for a server of one process alone, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

TAPS = "each front end writes a recording of its own"
NUMBERS = "each front end counts its requests from a number of its own"
UPSTREAMS = "each front end has its own probes, ejections and loads of upstream servers"
MIRRORS = "each front end has its own queue and report of a mirror"
ONE_LOOP = "it stops or measures the process with the event loop, not the supervisor"
STALLS = "not yet: after some fifteen of these requests a front end leaves one without an answer"
LIBRARY = "grpcio listens by itself: front ends cannot share its sockets"

ONE_PROCESS = {
    "test_convert.py::test_a_recorded_batch_is_one_in_version_1": TAPS,
    "test_convert.py::test_a_recording_that_does_not_tell_of_a_batch_needs_the_signature": TAPS,
    "test_descriptors.py::test_the_admin_address_answers": ONE_LOOP,
    "test_matrix.py": STALLS,
    "test_migration.py::test_every_step_is_as_the_page_says": TAPS,
    "test_mirror.py::test_copies_to_a_model_here_are_not_its_own_requests": MIRRORS,
    "test_mirror.py::test_one_element_that_is_wrong": MIRRORS,
    "test_mirror.py::test_what_waits_is_bounded": MIRRORS,
    "test_oip_shared_memory_cost.py::test_a_fifth_of_grpc_at_most": ONE_LOOP,
    "test_python_calls.py::test_a_server_that_stops_during_a_request": ONE_LOOP,
    "test_replay_sequences.py": TAPS,
    "test_tap_replay.py::test_another_model_answers_otherwise": TAPS,
    "test_tap_replay.py::test_redacted_requests_are_sent_with_what_was_made_up": TAPS,
    "test_tap_replay.py::test_replayed_in_any_dialect_the_answers_are_the_same": TAPS,
    "test_tap_replay.py::test_what_came_in_any_dialect_is_written": TAPS,
    "test_tap_replay.py::test_what_cannot_be_replayed": TAPS,
    "test_trtis.py::test_requests_are_numbered_over_all_transports": NUMBERS,
    "test_trtis_bridge_control.py::test_the_bridge_is_ready_though_a_model_was_unloaded_through_it": UPSTREAMS,
    "test_trtis_bridge_control.py::test_what_another_client_loads_again_is_ready": UPSTREAMS,
    "test_trtis_errors.py::test_a_body_that_is_refused_unread_has_a_number_too": NUMBERS,
    "test_upstream_faults.py::test_a_fault": UPSTREAMS,
    "test_upstream_processes.py::test_a_process_that_comes_and_goes": UPSTREAMS,
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
