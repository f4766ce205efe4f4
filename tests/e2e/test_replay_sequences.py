"""Sequences and streams through the tap of the real daemon, and replayed against another one."""

from __future__ import annotations

import json
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton

from interlingua.translator.cli import main
from interlingua.translator.recording.files import RecordingReader
from tests.e2e.daemon import Daemon

TOTAL = """
import numpy as np
import triton_python_backend_utils as pb

class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        answers = []
        for request in requests:
            start, key = (
                pb.get_input_tensor_by_name(request, name).as_numpy().item() for name in ("START", "ID")
            )
            x = pb.get_input_tensor_by_name(request, "IN").as_numpy().item()
            self.sums[key] = x + (0 if start else self.sums[key])
            answers.append(pb.InferenceResponse([pb.Tensor("OUT", np.array([[self.sums[key]]], np.int32))]))
        return answers
"""
TOTAL_CONFIG = """
backend: "python" max_batch_size: 1
input [ { name: "IN" data_type: TYPE_INT32 dims: 1 } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: 1 } ]
sequence_batching {
  max_sequence_idle_microseconds: 30000000 oldest { max_candidate_sequences: 8 }
  control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }
  control_input { name: "ID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }
}
"""
REPEAT = """
import numpy as np
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for value in pb.get_input_tensor_by_name(request, "IN").as_numpy():
                sender.send(pb.InferenceResponse([pb.Tensor("OUT", np.array([value], np.int32))]))
            sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
REPEAT_CONFIG = """
backend: "python" max_batch_size: 0
input [ { name: "IN" data_type: TYPE_INT32 dims: -1 } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: 1 } ]
model_transaction_policy { decoupled: true }
"""
TRANSPORTS = ("http", "grpc")


def started(folder: Path, **options: Any) -> Daemon:
    for name, program, config in (("total", TOTAL, TOTAL_CONFIG), ("repeat", REPEAT, REPEAT_CONFIG)):
        (folder / "models" / name / "1").mkdir(parents=True)
        (folder / "models" / name / "1" / "model.py").write_text(program)
        (folder / "models" / name / "config.pbtxt").write_text(config)
    listeners = [{"listen": "127.0.0.1:0", "transport": transport} for transport in TRANSPORTS]
    return Daemon.start(
        folder, {"listeners": listeners, "model_repository": [{"path": str(folder / "models")}], **options}
    )


def given(values: list[Any]) -> Any:
    array = np.array(values, np.int32)
    tensor = triton.InferInput("IN", list(array.shape), "INT32")
    tensor.set_data_from_numpy(array)
    return tensor


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three sequences of five requests each, all at once, and a stream of four answers."""
    folder = tmp_path_factory.mktemp("recorded")
    daemon = started(folder, tap={"path": str(folder / "r")})
    try:
        with triton.InferenceServerClient(daemon.addresses[1]) as client:
            for step in range(5):
                for identity in (11, 12, 13):
                    client.infer(
                        "total",
                        [given([[identity * (step + 1)]])],
                        sequence_id=identity,
                        sequence_start=step == 0,
                        sequence_end=step == 4,
                    )
            told: queue.Queue[Any] = queue.Queue()
            client.start_stream(lambda result, error: told.put(error or result))
            client.async_stream_infer("repeat", [given([3, 1, 4, 1])], enable_empty_final_response=True)
            answers = [told.get(timeout=20) for _ in range(5)]
            client.stop_stream()
        assert [answer.as_numpy("OUT").item() for answer in answers[:4]] == [3, 1, 4, 1]
        assert daemon.stop() == 0
    finally:
        daemon.kill()
    return folder / "r"


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    daemon = started(tmp_path_factory.mktemp("other"))
    try:
        yield daemon
        assert daemon.stop() == 0
    finally:
        daemon.kill()


def test_the_whole_stream_and_every_sequence_are_recorded(recording: Path) -> None:
    with RecordingReader(recording) as reader:
        *sequences, stream = list(reader)
    assert len(sequences) == 15
    first, last = sequences[0].request.sequence, sequences[-1].request.sequence
    assert first is not None and last is not None
    assert (first.id, first.start, first.end) == (11, True, False)
    assert (last.id, last.start, last.end) == (13, False, True)
    assert stream.streamed
    assert [response.final for response in stream.answer.responses] == [False] * 4 + [True]


@pytest.mark.parametrize(
    ("dialect", "transport"), [("oip", "http"), ("oip", "grpc"), ("trtis", "http"), ("trtis", "grpc")]
)
def test_sequences_are_replayed_in_their_order(
    recording: Path, other: Daemon, capsys: pytest.CaptureFixture[str], dialect: str, transport: str
) -> None:
    url = other.addresses[TRANSPORTS.index(transport)]
    where = ["--dialect", dialect, "--transport", transport, "--url", url]
    assert main(["replay", str(recording), *where, "--limit", "15", "--concurrency", "15", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["sent"], report["equal"]) == (15, 15)


def test_a_stream_is_replayed_as_one(
    recording: Path, other: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--dialect", "oip", "--transport", "grpc", "--url", other.addresses[1]]
    assert main(["replay", str(recording), *where, "--rate", "500", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["sent"], report["equal"]) == (16, 16)
    compared = {each["model"]: each["compared"] for each in report["outputs"]}
    assert compared == {"total": 15, "repeat": 4}
