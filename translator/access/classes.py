"""The classes of operations: a listener permits callers by class, in its option ``allow``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from interlingua.schemas import Operation

OperationClass = Literal[
    "inference", "metadata", "health", "statistics", "control", "shared_memory", "logging", "server"
]

CLASSES: tuple[OperationClass, ...] = get_args(OperationClass)

PRIVILEGED: frozenset[OperationClass] = frozenset({"control", "shared_memory", "logging", "server"})
"""The classes that change the server or reach beyond the request: only local callers may request them by
default, no web page of another site ever, and the audit log records them."""

WITH_MODEL = frozenset(
    {Operation.MODEL_LOAD, Operation.MODEL_UNLOAD, Operation.MODELS_RELOAD, Operation.TRACE_SETTINGS}
)
"""The privileged operations whose records name a model."""

CLASS_OF: Mapping[Operation, OperationClass] = {
    Operation.INFER: "inference",
    Operation.INFER_STREAM: "inference",
    Operation.LIVE: "health",
    Operation.READY: "health",
    Operation.MODEL_READY: "health",
    Operation.SERVER_METADATA: "metadata",
    Operation.MODEL_METADATA: "metadata",
    Operation.MODEL_CONFIG: "metadata",
    Operation.STATUS: "metadata",
    Operation.REPOSITORY_INDEX: "metadata",
    Operation.DEPLOYMENT: "metadata",
    Operation.STATISTICS: "statistics",
    Operation.METRICS: "statistics",
    Operation.MODEL_LOAD: "control",
    Operation.MODEL_UNLOAD: "control",
    Operation.MODELS_RELOAD: "control",
    Operation.SHARED_MEMORY_REGISTER: "shared_memory",
    Operation.SHARED_MEMORY_UNREGISTER: "shared_memory",
    Operation.SHARED_MEMORY_STATUS: "shared_memory",
    Operation.CUDA_SHARED_MEMORY_REGISTER: "shared_memory",
    Operation.CUDA_SHARED_MEMORY_UNREGISTER: "shared_memory",
    Operation.CUDA_SHARED_MEMORY_STATUS: "shared_memory",
    Operation.TRACE_SETTINGS: "logging",
    Operation.LOG_SETTINGS: "logging",
    Operation.SET_ONLINE: "server",
    Operation.SET_OFFLINE: "server",
}
