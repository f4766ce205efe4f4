"""What the Open Inference Protocol carries: every datatype exactly, in its binary form.

Over HTTP only ``generate_stream`` answers more than once, without shapes and datatypes. A status of 422 is a
failed validation, as on MLServer and KServe.
"""

from __future__ import annotations

from interlingua.protocols.dialect import Capability
from interlingua.schemas import Datatype, ErrorCode

OVER_HTTP = Capability(
    exact=frozenset(Datatype),
    tensor_parameters=True,
    versions="number",  # of listeners, as on Triton; other servers take any
    streams="flat",
    reported_as={
        ErrorCode.MALFORMED: ErrorCode.INVALID_TENSOR,
        ErrorCode.UNREPRESENTABLE: ErrorCode.INVALID_TENSOR,
        ErrorCode.ALREADY_EXISTS: ErrorCode.INVALID_TENSOR,
        ErrorCode.INTERNAL: ErrorCode.MODEL_FAILED,
    },
)

OVER_GRPC = Capability(
    exact=frozenset(Datatype),
    tensor_parameters=True,
    streams="whole",
    reported_as={
        ErrorCode.MALFORMED: ErrorCode.MODEL_FAILED,
        ErrorCode.TOO_LARGE: ErrorCode.OVERLOADED,
        ErrorCode.BAD_UPSTREAM: ErrorCode.MODEL_FAILED,
        ErrorCode.INTERNAL: ErrorCode.MODEL_FAILED,
    },
)
