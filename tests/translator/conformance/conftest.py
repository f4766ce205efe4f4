"""One daemon with the example models, and one that takes sequences, for all tests of the kit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from interlingua.protocols.registry import DIALECTS
from interlingua.schemas import Datatype
from tests.e2e.daemon import ROOT, Daemon

TOTAL = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        answers = []
        for request in requests:
            one = request.correlation_id()
            if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
                self.sums[one] = 0
            self.sums[one] += pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", self.sums[one])]))
        return answers
"""
TOTAL_CONFIG = """
backend: "python" max_batch_size: 4
input [ { name: "INPUT0" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 1 ] } ]
sequence_batching { max_sequence_idle_microseconds: 5000000 }
"""
"""A model whose answer is the sum of what its sequence has sent."""


def total(folder: Path) -> Path:
    """A repository with that model."""
    place = folder / "sequences" / "total" / "1"
    place.mkdir(parents=True)
    (place / "model.py").write_text(TOTAL)
    (place.parent / "config.pbtxt").write_text(TOTAL_CONFIG)
    return place.parents[1]


def over(transport: str) -> list[str]:
    """Every dialect that ``transport`` carries."""
    return [name for name, dialect in DIALECTS.items() if transport in dialect.bindings]


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The addresses of a daemon, by transport; ``unix`` is GraphPipe alone, ``cpp`` the other grps. Over tcp
    a listener has one model: ``tcp`` has simple, ``tcp_identity_fp32`` that one, and so on."""
    folder: Path = tmp_path_factory.mktemp("conformance")
    listeners = {
        "http": {"listen": "127.0.0.1:0", "transport": "http", "dialects": over("http")},
        "grpc": {"listen": "127.0.0.1:0", "transport": "grpc", "dialects": over("grpc")},
        "brpc": {"listen": "127.0.0.1:0", "transport": "brpc"},
        "tcp": {"listen": "127.0.0.1:0", "transport": "tcp", "default_model": "simple"},
        **{
            f"tcp_{model}": {
                "listen": f"unix:{folder}/{model}.sock",
                "transport": "tcp",
                "default_model": model,
            }
            for model in (f"identity_{datatype.value.lower()}" for datatype in Datatype)
        },
        "unix": {
            "listen": f"unix:{folder}/graphpipe.sock",
            "transport": "http",
            "dialects": ["graphpipe"],
            "default_model": "digits",
        },
        "cpp": {
            "listen": "127.0.0.1:0",
            "transport": "http",
            "dialects": ["grps"],
            "flavors": {"grps": "cpp"},
        },
    }
    daemon = Daemon.start(
        folder,
        {
            "listeners": list(listeners.values()),
            "model_repository": [
                {"path": str(ROOT / "examples" / "models")},
                {"path": str(total(folder))},
            ],
            "default_model": "identity_fp32",
        },
    )
    try:
        yield dict(zip(listeners, daemon.addresses, strict=True))
        assert daemon.stop() == 0
        assert not [line for line in daemon.log if "unexpected error" in line["event"]], daemon.log
    finally:
        daemon.kill()
