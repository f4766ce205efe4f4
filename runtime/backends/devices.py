"""The devices of this machine: the CPU, and the GPUs of CUDA's driver.

The driver is called directly, because engines are imported only when a model needs them; it heeds
``CUDA_VISIBLE_DEVICES``. Whether an engine can use a GPU is for the engine to say.
"""

from __future__ import annotations

import ctypes
import logging
from functools import cache
from itertools import cycle, islice
from pathlib import Path

from interlingua.runtime.model_config.config import LoadError

_DRIVER = "libcuda.so.1"

_log = logging.getLogger(__name__)


@cache
def cuda_count() -> int:
    """The number of GPUs; 0 without a driver."""
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        return 0
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


def devices() -> tuple[str, ...]:
    """The devices for models, as configurations name them."""
    return ("cpu", *(f"cuda:{number}" for number in range(cuda_count())))


def placed(where: Path, device: str) -> str:
    """The device for the model at ``where``, whose own configuration states ``device``, empty for none.
    Repositories move between machines: without any GPU, a model for a GPU runs on the CPU, with a warning.
    Raises ``LoadError`` for an unknown GPU."""
    if not device or (f"{device}:0" if device == "cuda" else device) in devices():
        return device
    if cuda_count():
        raise LoadError(f"{where}: there is no device '{device}' here, only {', '.join(devices())}")
    _log.warning("no GPU, model runs on the CPU", extra={"facts": {"model": where.name}})
    return "cpu"


def all_placed(
    where: Path, device: str, devices: tuple[str, ...], instances: int
) -> tuple[str, tuple[str, ...]]:
    """The device of all instances, or one for each if the model's own configuration states different
    ``devices``, which so many ``instances`` share, 0 for one each. Raises as :func:`placed` does."""
    if not devices:
        return placed(where, device), ()
    there = {each: placed(where, each) for each in dict.fromkeys(devices)}
    found = tuple(there[each] for each in devices)
    if instances:
        found = tuple(islice(cycle(dict.fromkeys(found)), instances))
    return (found[0], ()) if len(set(found)) == 1 else ("", found)
