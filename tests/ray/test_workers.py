"""Two front ends: the runtime process is the one that is connected to Ray, and a reload changes what runs."""

from __future__ import annotations

import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton_http
import yaml

from tests.ray.cluster import daemon_on, replicas
from tests.ray.models import write_model
from tests.waiting import eventually

pytestmark = pytest.mark.long


def test_front_ends_share_the_replicas_and_a_reload_changes_their_number(tmp_path: Path) -> None:
    """Sequences of 24 clients at once stay at their replicas; then there is one replica more."""
    path = str(write_model(tmp_path, "sums"))
    model: dict[str, Any] = {
        "backend": "ray",
        "path": path,
        "replicas": 2,
        "resources": {"cpus": 0.1},
    }
    with daemon_on(tmp_path, "local", {"sums": model}, server={"workers": 2}) as daemon:

        def sequence(key: int) -> int:
            processes = set()
            with triton_http.InferenceServerClient(daemon.addresses[0]) as client:
                for number in range(12):
                    tensor = triton_http.InferInput("IN", [1], "FP32")
                    tensor.set_data_from_numpy(np.array([number], np.float32))
                    answer = client.infer(
                        "sums",
                        [tensor],
                        sequence_id=key,
                        sequence_start=number == 0,
                        sequence_end=number == 11,
                    )
                    assert answer.as_numpy("OUT")[0] == sum(range(number + 1))
                    processes.add(int(answer.as_numpy("PROCESS")[0]))
            (process,) = processes
            return process

        with ThreadPoolExecutor(24) as pool:
            used = Counter(pool.map(sequence, range(1, 49)))
        assert len(used) == 2, "both replicas had sequences"
        before = {each["replica"] for each in replicas(daemon, "sums")}

        file = tmp_path / "config.yaml"
        config = yaml.safe_load(file.read_text())
        config["models"]["sums"]["replicas"] = 3
        file.write_text(yaml.safe_dump(config))
        daemon.process.send_signal(signal.SIGHUP)
        eventually(lambda: len(replicas(daemon, "sums")) == 3)
        assert before < {each["replica"] for each in replicas(daemon, "sums")}, "none is replaced"
