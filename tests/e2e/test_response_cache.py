"""The response cache behind the real daemon: clients of two dialects share answers, and can tell by the
statistics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tritonclient.http as triton_http

from interlingua.schemas import Datatype
from tests.e2e.daemon import Daemon
from tests.e2e.trtis_clients import clients_of
from tests.runtime.onnx_models import node, value, write

ROWS = np.array([[1, 2]], np.float32)


def test_clients_share_cached_answers(tmp_path: Path) -> None:
    x, y = (value(name, Datatype.FP32, ["n", 2]) for name in "xy")
    write(tmp_path / "models" / "negate" / "1" / "model.onnx", [node("Neg", ["x"], ["y"])], [x], [y])
    (tmp_path / "models" / "negate" / "config.pbtxt").write_text(
        "max_batch_size: 8 response_cache { enable: true } dynamic_batching { }"
    )
    listeners = [{"listen": "127.0.0.1:0", "transport": transport} for transport in ("http", "grpc")]
    daemon = Daemon.start(
        tmp_path,
        {
            "server": {"response_cache_bytes": 100_000},
            "listeners": listeners,
            "model_repository": [{"path": str(tmp_path / "models")}],
        },
    )
    try:
        with clients_of(daemon) as clients, triton_http.InferenceServerClient(daemon.addresses[0]) as triton:
            given = triton_http.InferInput("x", ROWS.shape, "FP32")
            given.set_data_from_numpy(ROWS)
            for _ in range(2):
                assert triton.infer("negate", [given]).as_numpy("y").tolist() == [[-1, -2]]
            for client in clients.values():
                assert client.infer("negate", {"x": ROWS}, {"y": None}).outputs["y"].tolist() == [[-1, -2]]
            (told,) = triton.get_inference_statistics("negate")["model_stats"]
        assert (told["inference_count"], told["execution_count"]) == (1, 1)
        stats = told["inference_stats"]
        counts = {
            name: stats[name]["count"] for name in ("success", "cache_hit", "cache_miss", "compute_infer")
        }
        assert counts == {"success": 4, "cache_hit": 3, "cache_miss": 1, "compute_infer": 1}
        assert stats["cache_hit"]["ns"] > 0 < stats["cache_miss"]["ns"]
        assert daemon.stop() == 0
    finally:
        daemon.kill()
