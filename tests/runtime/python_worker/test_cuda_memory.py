"""Tensors on a GPU that are handed over by DLPack.

No GPU can be counted on where these tests run, so a stand-in takes the driver's place: its device memory is
this process's own, and it notes the calls in their order.
"""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from interlingua.runtime.python_worker import cuda_memory, dlpack
from interlingua.runtime.python_worker.triton_python_backend_utils import Tensor, TritonModelException


class Driver:
    """Answers as CUDA's driver does; the call named ``failing`` fails."""

    def __init__(self, failing: str = "") -> None:
        self.calls: list[str] = []
        self.device = -1
        self._failing = failing

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if name == "cuDeviceGet":
                self.device = arguments[1]
            if name == self._failing:
                return 700
            if name == "cuMemcpyDtoH_v2":
                to, source, nbytes = (argument.value for argument in arguments)
                ctypes.memmove(to, source, nbytes)
            return 0

        return call


CALLS = [
    "cuInit",
    "cuDeviceGet",
    "cuDevicePrimaryCtxRetain",
    "cuCtxPushCurrent_v2",
    "cuCtxSynchronize",
    "cuMemcpyDtoH_v2",
    "cuCtxPopCurrent_v2",
    "cuDevicePrimaryCtxRelease_v2",
]


def on_gpu(array: Any, device: int = 1) -> Any:
    """A capsule that says that ``array`` is on a GPU."""
    capsule = dlpack.to_capsule(array)
    (managed, *_) = dlpack._shared[max(dlpack._shared)]
    managed.tensor.device_type, managed.tensor.device_id = 2, device
    return capsule


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    stand_in = Driver()
    monkeypatch.setattr(cuda_memory, "_driver", lambda: stand_in)
    return stand_in


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, ml_dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 4), (2, 0)], ids=str)
def test_a_tensor_on_a_gpu_is_copied(driver: Driver, dtype: Any, shape: tuple[int, ...]) -> None:
    array = (np.arange(np.prod(shape, dtype=int)) % 2).astype(dtype).reshape(shape)
    found = dlpack.from_capsule(on_gpu(array))
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tobytes() == array.tobytes()
    assert not np.shares_memory(found, array)
    assert dlpack._shared == {}, "whoever has the tensor is told that it was taken"
    assert driver.calls == (CALLS if array.size else [])
    assert driver.device == (1 if array.size else -1)


def test_strides_are_kept(driver: Driver) -> None:
    array = np.arange(12, dtype=np.int32)
    capsule = on_gpu(array)
    (managed, *_) = dlpack._shared[max(dlpack._shared)]
    shape, strides = (ctypes.c_int64 * 2)(3, 2), (ctypes.c_int64 * 2)(4, 2)
    managed.tensor.ndim, managed.tensor.shape, managed.tensor.strides = 2, shape, strides
    assert dlpack.from_capsule(capsule).tolist() == [[0, 2], [4, 6], [8, 10]]


def test_a_model_may_answer_with_one(driver: Driver) -> None:
    tensor = Tensor.from_dlpack("y", on_gpu(np.arange(4, dtype=np.float32), device=0))
    assert tensor.is_cpu()
    assert tensor.as_numpy().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("failing", CALLS[:6])
def test_a_call_that_fails_is_named_and_nothing_is_kept(
    monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    driver = Driver(failing)
    monkeypatch.setattr(cuda_memory, "_driver", lambda: driver)
    with pytest.raises(TritonModelException, match=f"{failing} failed with CUDA error 700"):
        Tensor.from_dlpack("y", on_gpu(np.arange(4)))
    assert dlpack._shared == {}
    done = CALLS.index(failing)
    undone = CALLS[6:] if done > 3 else CALLS[7:] if done == 3 else []
    assert driver.calls == [*CALLS[: done + 1], *undone]


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_memory, "_DRIVER", "libno_such_driver.so.1")
    cuda_memory._driver.cache_clear()
    with pytest.raises(ValueError, match="cannot be read: libno_such_driver"):
        dlpack.from_capsule(on_gpu(np.arange(4)))
    cuda_memory._driver.cache_clear()
