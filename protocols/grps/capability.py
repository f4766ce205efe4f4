"""What grps carries: nine types exactly, FP16 as float and narrow integers in 32 bits.

BOOL, UINT16, UINT32 and BF16 travel as the next wider type, which the model's signature reverses; UINT64 has
no wider one and is refused. Strings are text: BYTES that are not UTF-8 are refused by name, except for one
element, which is ``bin_data``, and the entries of a map. JSON has one NaN. Invalid tensors and failing models
share the code 500. A message has only tensors and the name of a model, which a version may be joined to.
"""

from __future__ import annotations

from dataclasses import replace

from interlingua.protocols.dialect import Capability
from interlingua.protocols.grps.tensors import DATATYPES, WIDENED
from interlingua.schemas import ErrorCode

OVER_GRPC = Capability(
    exact=frozenset(DATATYPES.values()),
    widened=WIDENED,
    ids="",
    joined_versions=True,
    parameters=frozenset(),
    sequences=frozenset(),
    priorities=False,
    requested_outputs=False,
    classification=False,
    shared_memory=False,
    streams="whole",
    maps=True,
    answer_versions=False,
    answer_parameters=False,
    text_only=True,
    signatures=False,
    batch_limits=False,
    error_kinds=False,
    reported_as={
        ErrorCode.MALFORMED: ErrorCode.MODEL_FAILED,
        ErrorCode.INVALID_TENSOR: ErrorCode.MODEL_FAILED,
        ErrorCode.UNREPRESENTABLE: ErrorCode.MODEL_FAILED,
        ErrorCode.INTERNAL: ErrorCode.MODEL_FAILED,
    },
)

OVER_HTTP = replace(OVER_GRPC, nan_payloads=False)

# its server has a code for bytes that are not a message
OVER_BRPC = replace(
    OVER_GRPC,
    streams="",
    reported_as={**OVER_GRPC.reported_as, ErrorCode.MALFORMED: ErrorCode.INVALID_TENSOR},
    wordless=frozenset({ErrorCode.MALFORMED}),
)
