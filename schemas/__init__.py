"""The canonical tensor IR and the wire contracts of the dialects.

Pure: no I/O, no asyncio, nothing of the other rooms. What belongs here is what every other room
agrees on; what a dialect does with it belongs to ``protocols``.
"""

from schemas.control import IndexQuery, LogSettings, ModelControl, TraceSettings
from schemas.datatypes import Datatype
from schemas.errors import ErrorCode, InferenceError
from schemas.messages import (
    CancelToken,
    Context,
    InferRequest,
    InferResponse,
    ModelMetadata,
    ModelRef,
    Operation,
    Parameter,
    Readiness,
    RequestedOutput,
    Sequence,
    ServerMetadata,
    Signature,
    TensorSpec,
)
from schemas.status import (
    Deployment,
    Duration,
    Latencies,
    Listening,
    Metrics,
    ModelState,
    ModelStatus,
    RequestStatistics,
    ServerState,
    ServerStatus,
    SharedMemoryRegion,
    VersionStatistics,
    VersionStatus,
)
from schemas.tensor import SharedMemoryRef, Tensor, element_count, pack_bytes

__all__ = [
    "CancelToken",
    "Context",
    "Datatype",
    "Deployment",
    "Duration",
    "ErrorCode",
    "IndexQuery",
    "InferRequest",
    "InferResponse",
    "InferenceError",
    "Latencies",
    "Listening",
    "LogSettings",
    "Metrics",
    "ModelControl",
    "ModelMetadata",
    "ModelRef",
    "ModelState",
    "ModelStatus",
    "Operation",
    "Parameter",
    "Readiness",
    "RequestStatistics",
    "RequestedOutput",
    "Sequence",
    "ServerMetadata",
    "ServerState",
    "ServerStatus",
    "SharedMemoryRef",
    "SharedMemoryRegion",
    "Signature",
    "Tensor",
    "TensorSpec",
    "TraceSettings",
    "VersionStatistics",
    "VersionStatus",
    "element_count",
    "pack_bytes",
]
