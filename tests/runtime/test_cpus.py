"""How many CPUs a control group leaves, and what is left of them for the runs of models."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from interlingua.runtime.cpus import EngineThreads, _quotas, available_cpus
from interlingua.runtime.model_config.config import ModelConfig
from interlingua.translator.config import ConfigError, load
from interlingua.translator.workers.placement import CpuPlacement, placed


@pytest.mark.parametrize(
    ("limits", "found"),
    [
        ({"": "max 100000"}, []),
        ({"": "150000 100000"}, [2]),
        ({"a/b": "50000 100000", "a": "400000 100000"}, [1, 4]),
        ({"a/b": "garbage"}, []),
        ({}, []),
    ],
)
def test_the_quota_of_every_group_above_counts(
    limits: dict[str, str], found: list[int], tmp_path: Path
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name, limit in limits.items():
        (tmp_path / name / "cpu.max").write_text(f"{limit}\n")
    own = tmp_path / "own"
    own.write_text("12:cpu,cpuacct:/a\n0::/a/b\n")
    assert list(_quotas(tmp_path, own)) == found


def test_no_control_group_is_no_quota(tmp_path: Path) -> None:
    assert list(_quotas(tmp_path, tmp_path / "none")) == []
    (tmp_path / "own").write_text("12:cpu:/a\n")
    assert list(_quotas(tmp_path, tmp_path / "own")) == []
    assert 1 <= available_cpus() <= len(os.sched_getaffinity(0))


def test_models_get_the_cpus_that_front_ends_leave() -> None:
    assert placed((0, 1, 2, 3), 2) == CpuPlacement((0, 1), (2, 3), 2)
    assert placed((4, 6, 8), 2) == CpuPlacement((4, 6), (8,), 1)
    # too few for all: they share
    assert placed((0, 1), 2) == CpuPlacement((0, 1), (0, 1), 1)
    assert placed((), 1) == CpuPlacement((), (), max(1, available_cpus() - 1))


def test_unknown_cpus_are_errors_of_their_key(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    listeners = "listeners: [{listen: '127.0.0.1:0', transport: http}]"
    (known, *_) = os.sched_getaffinity(0)
    for cpus, wrong in (
        ("[99999]", "CPU 99999 does not exist"),
        (f"[{known}, {known}]", f"CPU {known} is repeated"),
    ):
        path.write_text(f"server: {{cpus: {cpus}}}\n{listeners}\n")
        with pytest.raises(ConfigError, match=rf"c\.yaml:1: server\.cpus: {wrong}"):
            load(path)
    path.write_text(f"server: {{cpus: [{known}]}}\n{listeners}\n")
    assert load(path).server.cpus == (known,)


def test_engines_take_the_threads_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra 'onnx'")
    from interlingua.runtime.backends import onnxruntime

    monkeypatch.setattr(EngineThreads, "count", 3)
    stated = ModelConfig(name="m", parameters={"intra_op_thread_count": "2"})
    assert onnxruntime._session_options(Path("m"), ModelConfig(name="m")).intra_op_num_threads == 3
    assert onnxruntime._session_options(Path("m"), stated).intra_op_num_threads == 2
