"""Requests that expire in a queue: the same batches, refusals and order of answers from Triton and from here."""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc

from tests.conformance.golden_repository import FOLDER
from tests.conformance.oip_client import Server
from tests.e2e.oip_golden import golden_daemon

pytestmark = [pytest.mark.peers, pytest.mark.timeout(180)]

MODEL = "queue_policies"
FILES = {"file:1/model.py": (FOLDER / "identity_fp32" / "1" / "model.py").read_bytes()}
LONG_US = 60_000_000
CONFIGURATION = {
    "name": MODEL,
    "backend": "python",
    "max_batch_size": 32,
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [1]}],
    "instance_group": [{"kind": "KIND_CPU", "count": 1}],
}


@pytest.fixture(params=["triton", "interlingua"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "triton":
        server: Server = request.getfixturevalue("triton")
        with tritonclient.grpc.InferenceServerClient(server.grpc) as found:
            yield found
            found.unload_model(MODEL)
    else:
        with golden_daemon(tmp_path) as server, tritonclient.grpc.InferenceServerClient(server.grpc) as found:
            yield found


class Asked:
    """Requests under way to ``client``, and how each ended, in the order in which they did."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._ended: queue.Queue[tuple[str, str]] = queue.Queue()

    def ask(self, name: str, rows: int, **more: Any) -> None:
        tensor = tritonclient.grpc.InferInput("INPUT0", [rows, 1], "FP32")
        tensor.set_data_from_numpy(np.zeros((rows, 1), np.float32))

        def ended(result: Any, error: Any) -> None:
            self._ended.put((name, "" if error is None else error.message()))

        self._client.async_infer(MODEL, [tensor], ended, **more)
        # the next is to come behind this one
        time.sleep(0.05)

    def next(self, count: int) -> list[tuple[str, str]]:
        return [self._ended.get(timeout=20) for _ in range(count)]

    def nothing_more(self) -> bool:
        time.sleep(0.5)
        return self._ended.empty()


def loaded(client: Any, **batching: Any) -> Asked:
    """The model with such batches, which wait for a minute."""
    batching = {"max_queue_delay_microseconds": LONG_US, **batching}
    client.load_model(MODEL, config=json.dumps({**CONFIGURATION, "dynamic_batching": batching}), files=FILES)
    return Asked(client)


def policy(action: str) -> dict[str, Any]:
    return {
        "timeout_action": action,
        "allow_timeout_override": True,
        "default_timeout_microseconds": LONG_US,
    }


@pytest.mark.parametrize("action", ["REJECT", "DELAY"])
def test_the_others_run_once_the_first_has_expired(client: Any, action: str) -> None:
    asked = loaded(client, preferred_batch_size=[4, 8], default_queue_policy=policy(action))
    asked.ask("first", 1, timeout=500_000)
    asked.ask("second", 2)
    asked.ask("third", 2)
    if action == "REJECT":
        ended = dict(asked.next(3))
        assert "Request timeout expired" in ended.pop("first")
        assert ended == {"second": "", "third": ""}
        return
    assert sorted(asked.next(2)) == [("second", ""), ("third", "")]
    assert asked.nothing_more()
    asked.ask("last", 3)
    assert sorted(asked.next(2)) == [("first", ""), ("last", "")]


def test_priorities_with_policies_of_their_own(client: Any) -> None:
    asked = loaded(
        client,
        preferred_batch_size=[4, 32],
        priority_levels=2,
        default_priority_level=2,
        default_queue_policy=policy("DELAY"),
        priority_queue_policy={"2": policy("REJECT")},
    )
    asked.ask("a", 2, priority=1)
    asked.ask("b", 1, priority=1, timeout=1_000_000)
    asked.ask("c", 2, priority=1)
    asked.ask("d", 2, priority=2, timeout=2_000_000)
    asked.ask("e", 3, priority=2)
    asked.ask("f", 6, priority=2)
    assert sorted(asked.next(2)) == [("a", ""), ("c", "")]
    ended = dict(asked.next(3))
    assert "Request timeout expired" in ended.pop("d")
    assert ended == {"b": "", "e": ""}
    assert asked.nothing_more()
    asked.ask("rest", 26, priority=2)
    assert sorted(asked.next(2)) == [("f", ""), ("rest", "")]


def test_a_request_larger_than_every_preferred_size_does_not_wait(client: Any) -> None:
    asked = loaded(client, preferred_batch_size=[4])
    asked.ask("large", 5)
    assert asked.next(1) == [("large", "")]
