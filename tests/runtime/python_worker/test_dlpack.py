"""Arrays go through DLPack capsules and back, and everything is let go of once."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from interlingua.runtime.python_worker import dlpack
from interlingua.runtime.python_worker.triton_python_backend_utils import Tensor, TritonModelException

DTYPES = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", ml_dtypes.bfloat16]


class Producer:
    """NumPy's own side of the exchange, without what it does for consumers of its own kind."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self) -> Any:
        return self.array.__dlpack__()


@pytest.fixture(autouse=True)
def everything_is_let_go_of() -> Any:
    yield
    gc.collect()
    assert dlpack._shared == {}


@pytest.mark.parametrize("shape", [(), (0, 2), (5,), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_there_and_back(dtype: Any, shape: tuple[int, ...]) -> None:
    array = (np.arange(np.prod(shape, dtype=int)) % 7).astype(dtype).reshape(shape)
    found = dlpack.from_capsule(dlpack.to_capsule(array))
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tolist() == array.tolist()
    if array.size:
        assert np.shares_memory(found, array)


def test_an_array_lives_as_long_as_its_consumer() -> None:
    array = np.arange(1000)
    alive = weakref.ref(array)
    found = dlpack.from_capsule(dlpack.to_capsule(array))
    piece = found[10:20]
    del array, found
    gc.collect()
    assert alive() is not None
    assert piece.tolist() == list(range(10, 20))
    del piece
    gc.collect()
    assert alive() is None


def test_a_capsule_without_a_consumer() -> None:
    array = np.arange(10)
    alive = weakref.ref(array)
    capsule = dlpack.to_capsule(array)
    del array
    assert alive() is not None
    del capsule
    assert alive() is None


def test_from_and_to_numpy_itself() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2]
    found = dlpack.from_capsule(Producer(array))
    assert found.tolist() == array.tolist()
    assert np.shares_memory(found, array)
    tensor = Tensor("x", np.arange(6, dtype=np.int16).reshape(2, 3))
    assert np.from_dlpack(tensor).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert Tensor.from_dlpack("y", tensor).as_numpy().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_what_cannot_go() -> None:
    with pytest.raises(TritonModelException, match="tensor 'x': DLPack has no object"):
        Tensor("x", np.array([b"a"], object)).to_dlpack()
    with pytest.raises(TritonModelException, match="tensor 'y': a int is no DLPack tensor"):
        Tensor.from_dlpack("y", 7)
    capsule = dlpack.to_capsule(np.arange(3))
    dlpack.from_capsule(capsule)
    with pytest.raises(ValueError, match="used before"):
        dlpack.from_capsule(capsule)
