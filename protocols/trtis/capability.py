"""What version 1 carries: every datatype but BF16, in its own byte form; BYTES is called STRING.

It has no parameters except those with fields in the IR. Ids, versions and the ids of sequences are numbers;
any other id is dropped, any other version or sequence refused. A scalar travels as a dimension of 1.
"""

from __future__ import annotations

from dataclasses import replace

from interlingua.protocols.dialect import Capability
from interlingua.schemas import Datatype, ErrorCode

OVER_GRPC = Capability(
    exact=frozenset(Datatype) - {Datatype.BF16},
    versions="number",
    ids="number",
    parameters=frozenset(),
    sequences=frozenset({int}),
    folds_batch=True,
    client_classification=False,
    answer_parameters=False,
    reported_as={
        ErrorCode.MALFORMED: ErrorCode.INVALID_TENSOR,
        ErrorCode.UNREPRESENTABLE: ErrorCode.UNSUPPORTED,
        ErrorCode.NOT_FOUND: ErrorCode.UNAVAILABLE,  # unless the message is that of an unknown model
        ErrorCode.UNAUTHENTICATED: ErrorCode.INVALID_TENSOR,
        ErrorCode.FORBIDDEN: ErrorCode.INVALID_TENSOR,
        ErrorCode.TOO_LARGE: ErrorCode.INVALID_TENSOR,
        ErrorCode.OVERLOADED: ErrorCode.UNAVAILABLE,
        ErrorCode.DEADLINE_EXCEEDED: ErrorCode.UNAVAILABLE,
        ErrorCode.CANCELLED: ErrorCode.UNAVAILABLE,
        ErrorCode.BAD_UPSTREAM: ErrorCode.MODEL_FAILED,
        ErrorCode.INTERNAL: ErrorCode.MODEL_FAILED,
    },
)

# a request whose header is unreadable gets an empty response
OVER_HTTP = replace(OVER_GRPC, wordless=frozenset({ErrorCode.MALFORMED}))
