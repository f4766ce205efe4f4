"""What TensorFlow Serving carries: every datatype over gRPC, and no field of a request besides its tensors.

JSON has no form for BF16, one NaN for all, and no choice of outputs. A version may be a label.
"""

from __future__ import annotations

from dataclasses import replace

from interlingua.protocols.dialect import Capability
from interlingua.schemas import Datatype, ErrorCode

OVER_GRPC = Capability(
    exact=frozenset(Datatype),
    shared_memory=False,
    ids="",
    parameters=frozenset(),
    sequences=frozenset(),
    priorities=False,
    classification=False,
    answer_parameters=False,
    batch_limits=False,
    version_lists=False,
    reported_as={
        ErrorCode.MALFORMED: ErrorCode.MODEL_FAILED,
        ErrorCode.TOO_LARGE: ErrorCode.OVERLOADED,
        ErrorCode.BAD_UPSTREAM: ErrorCode.MODEL_FAILED,
        ErrorCode.INTERNAL: ErrorCode.MODEL_FAILED,
    },
)

OVER_HTTP = replace(
    OVER_GRPC,
    exact=frozenset(Datatype) - {Datatype.BF16},
    nan_payloads=False,
    requested_outputs=False,
    answer_versions=False,
    reported_as={
        ErrorCode.MALFORMED: ErrorCode.INVALID_TENSOR,
        ErrorCode.UNREPRESENTABLE: ErrorCode.INVALID_TENSOR,
        ErrorCode.INTERNAL: ErrorCode.MODEL_FAILED,
    },
)
