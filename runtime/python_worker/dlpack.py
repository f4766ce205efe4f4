"""DLPack capsules from and to NumPy arrays, for every datatype that DLPack knows.

NumPy's own exchange refuses bfloat16 and bare capsules, which models for Triton use. The structures are those
of DLPack 0.x, as PyTorch, JAX and CuPy have them. Tensors from a GPU are copied to the host; exported ones
are on the host.
"""

from __future__ import annotations

import ctypes
import itertools
import weakref
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from interlingua.runtime.python_worker.cuda_memory import to_host

_CPU_DEVICES = (1, 3)
"""The CPU, and memory of the CPU that a GPU can read."""

_CUDA_DEVICES = (2, 13)
"""Memory of a GPU, and memory that moves between a GPU and the host."""

_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_BFLOAT = 4
_KINDS = {code: kind for kind, code in _CODES.items()}


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _ManagedTensor(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_ManagedTensor))
_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)

_ManagedTensor._fields_ = (("tensor", _Tensor), ("manager", ctypes.c_void_p), ("deleter", _Deleter))


def _capsule_function(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new = _capsule_function("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_is_valid = _capsule_function("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_pointer = _capsule_function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_set_name = _capsule_function("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
# a capsule that is being destroyed must not be counted as an object again
_is_valid_at = _capsule_function("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_pointer_at = _capsule_function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)

# a capsule keeps the addresses of these two strings
_NAME = ctypes.c_char_p(b"dltensor")
_USED = ctypes.c_char_p(b"used_dltensor")

_keys = itertools.count(1)
_shared: dict[int, tuple[Any, ...]] = {}
"""The structures of our capsules and what they point to, until their consumers release them."""


def _release(managed: Any) -> None:
    _shared.pop(managed.contents.manager, None)


def _destroy(capsule: int) -> None:
    # a consumed capsule has another name, and its consumer frees the tensor
    if _is_valid_at(capsule, _NAME):
        managed = ctypes.cast(_pointer_at(capsule, _NAME), ctypes.POINTER(_ManagedTensor))
        _shared.pop(managed.contents.manager, None)


_DELETER = _Deleter(_release)
_DESTRUCTOR = _Destructor(_destroy)


def to_capsule(array: NDArray[Any]) -> Any:
    """A capsule over ``array``, which must be C-contiguous. Raises ``TypeError`` for a dtype that DLPack
    lacks."""
    code = _BFLOAT if array.dtype == ml_dtypes.bfloat16 else _CODES.get(array.dtype.kind)
    if code is None:
        raise TypeError(f"DLPack has no {array.dtype}")
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    key = next(_keys)
    managed = _ManagedTensor()
    managed.tensor.data = array.ctypes.data
    managed.tensor.device_type = _CPU_DEVICES[0]
    managed.tensor.ndim = array.ndim
    managed.tensor.dtype = _DataType(code, array.dtype.itemsize * 8, 1)
    managed.tensor.shape = shape
    managed.manager = key
    managed.deleter = _DELETER
    _shared[key] = (managed, shape, array)
    return _new(ctypes.addressof(managed), _NAME, ctypes.cast(_DESTRUCTOR, ctypes.c_void_p))


def from_capsule(source: Any) -> NDArray[Any]:
    """An array over the tensor in ``source``, a capsule or an object with ``__dlpack__``; over a copy if it
    is on a GPU. Raises ``TypeError`` for other objects and for a dtype that NumPy lacks, and ``ValueError``
    for inaccessible memory and a capsule that was used before."""
    capsule = source.__dlpack__() if hasattr(source, "__dlpack__") else source
    if type(capsule).__name__ != "PyCapsule":
        raise TypeError(f"a {type(source).__name__} is no DLPack tensor")
    if not _is_valid(capsule, _NAME):
        raise ValueError("this DLPack capsule was used before")
    address = _pointer(capsule, _NAME)
    managed = ctypes.cast(address, ctypes.POINTER(_ManagedTensor))
    tensor = managed.contents.tensor
    on_gpu = tensor.device_type in _CUDA_DEVICES
    if not on_gpu and tensor.device_type not in _CPU_DEVICES:
        raise ValueError(f"the tensor is on DLPack device {tensor.device_type}, not in memory of the CPU")
    dtype = _dtype(tensor.dtype)
    shape = tuple(tensor.shape[: tensor.ndim])
    # strides count elements; none are those of C
    strides = [step * dtype.itemsize for step in tensor.strides[: tensor.ndim]] if tensor.strides else None
    _set_name(capsule, _USED)
    if 0 in shape:
        _let_go(address)
        return np.empty(shape, dtype)
    extent = dtype.itemsize + sum(
        step * (size - 1) for step, size in zip(strides or _steps(shape, dtype.itemsize), shape, strict=True)
    )
    start = tensor.data + tensor.byte_offset
    if on_gpu:
        try:
            copy = to_host(start, extent, tensor.device_id)
        finally:
            _let_go(address)
        return np.ndarray(shape, dtype, copy, strides=strides)
    memory = (ctypes.c_uint8 * extent).from_address(start)
    weakref.finalize(memory, _let_go, address).atexit = False
    return np.ndarray(shape, dtype, memory, strides=strides)


def _steps(shape: tuple[int, ...], itemsize: int) -> list[int]:
    steps: list[int] = []
    for size in reversed(shape):
        steps.insert(0, itemsize)
        itemsize *= size
    return steps


def _let_go(address: int) -> None:
    managed = ctypes.cast(address, ctypes.POINTER(_ManagedTensor))
    if managed.contents.deleter:
        managed.contents.deleter(managed)


def _dtype(datatype: _DataType) -> np.dtype[Any]:
    if datatype.lanes != 1:
        raise TypeError("NumPy has no vectors as elements")
    if datatype.code == _BFLOAT and datatype.bits == 16:
        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    kind = _KINDS.get(datatype.code)
    if kind is None or datatype.bits % 8:
        raise TypeError(f"NumPy has no DLPack type {datatype.code} of {datatype.bits} bits")
    return np.dtype(f"{kind}{datatype.bits // 8}")
