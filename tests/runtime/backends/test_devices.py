"""Where a model may run: the driver's GPUs, and a repository that comes from a machine with others."""

import logging
from pathlib import Path

import pytest

from interlingua.runtime.backends import devices
from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.repository.files import ModelSource, load_model
from interlingua.schemas import Datatype
from tests.runtime.onnx_models import write_identity


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> int:
    count: int = request.param
    monkeypatch.setattr(devices, "cuda_count", lambda: count)
    return count


@pytest.mark.parametrize("gpus", [0], indirect=True)
def test_without_a_gpu_a_gpu_model_runs_on_the_cpu_and_logs_it(
    gpus: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_identity(tmp_path / "m" / "1" / "model.onnx", Datatype.FP32, ["n"])
    (tmp_path / "m" / "config.pbtxt").write_text("instance_group [{ kind: KIND_GPU gpus: [ 1 ] }]")
    with caplog.at_level(logging.WARNING):
        load_model(ModelSource("m", tmp_path / "m"))
    (line,) = [record for record in caplog.records if "GPU" in record.message]
    assert line.facts == {"model": "m"}


@pytest.mark.parametrize("gpus", [2], indirect=True)
def test_a_gpu_beyond_those_that_there_are_is_refused(gpus: int) -> None:
    assert devices.devices() == ("cpu", "cuda:0", "cuda:1")
    for device in ("", "cpu", "cuda", "cuda:1"):
        assert devices.placed(Path("m"), device) == device
    with pytest.raises(LoadError, match="m: there is no device 'cuda:2' here, only cpu, cuda:0, cuda:1"):
        devices.placed(Path("m"), "cuda:2")


def test_a_machine_without_the_driver_has_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_DRIVER", "libno_such_driver.so.1")
    assert devices.cuda_count.__wrapped__() == 0
