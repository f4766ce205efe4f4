"""What the Open Inference Protocol carries: every datatype exactly, in its binary form.

Over HTTP only ``generate_stream`` answers more than once, which has neither shapes nor datatypes. MLServer
and KServe answer 422 to a request that their validation refuses, which is what that status means to us.
"""

from __future__ import annotations

from interlingua.protocols.dialect import Capability
from interlingua.schemas import Datatype, ErrorCode

OVER_HTTP = Capability(
    exact=frozenset(Datatype),
    versions="number",  # to a listener, as to Triton; other servers are asked for any
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
    streams="whole",
    reported_as={
        ErrorCode.MALFORMED: ErrorCode.MODEL_FAILED,
        ErrorCode.TOO_LARGE: ErrorCode.OVERLOADED,
        ErrorCode.BAD_UPSTREAM: ErrorCode.MODEL_FAILED,
        ErrorCode.INTERNAL: ErrorCode.MODEL_FAILED,
    },
)
