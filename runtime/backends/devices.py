"""Which devices this machine has for models: the CPU, and the GPUs that CUDA's driver shows.

The driver is asked itself, because engines are imported only when a model needs them; it keeps to
``CUDA_VISIBLE_DEVICES``. Whether an engine can use a GPU is for the engine to say.
"""

from __future__ import annotations

import ctypes
import logging
from functools import cache
from pathlib import Path

from interlingua.runtime.model_config.config import LoadError

_DRIVER = "libcuda.so.1"

_log = logging.getLogger(__name__)


@cache
def cuda_count() -> int:
    """How many GPUs there are; 0 without a driver."""
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        return 0
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


def devices() -> tuple[str, ...]:
    """What a model may run on, as configurations name it."""
    return ("cpu", *(f"cuda:{number}" for number in range(cuda_count())))


def is_there(device: str) -> bool:
    """Whether there is a ``device``: ``cpu``, ``cuda`` or ``cuda:<number>``."""
    return (f"{device}:0" if device == "cuda" else device) in devices()


def placed(where: Path, device: str) -> str:
    """The device for the model at ``where``, whose own configuration asks for ``device``, empty for none.

    Repositories are carried from machine to machine: where there is no GPU at all, a model that asks for one
    runs on the CPU, and the log says so. Raises ``LoadError`` for a GPU beyond those that there are.
    """
    if not device or is_there(device):
        return device
    if cuda_count():
        raise LoadError(f"{where}: there is no device '{device}' here, only {', '.join(devices())}")
    _log.warning("no GPU, model runs on the CPU", extra={"facts": {"model": where.name}})
    return "cpu"
