"""What GraphPipe carries: no BF16; BOOL as UINT8, equal in value, which a signature with BOOL reverses. A
request has tensors, the names of outputs, and one text, or bytes, for the model."""

from __future__ import annotations

from dataclasses import replace

from interlingua.protocols.dialect import Capability
from interlingua.schemas import Datatype, ErrorCode
from interlingua.schemas.graphpipe import TYPES

OVER_HTTP = Capability(
    exact=frozenset(TYPES),
    widened={Datatype.BOOL: Datatype.UINT8},
    model_name=False,  # one model a server; our listeners select it by path
    output_names=False,  # the tensors of an answer are in the order of the request
    ids="",
    version_lists=False,
    parameters=frozenset({str}),
    parameter_names=frozenset({"config"}),
    sequences=frozenset(),
    priorities=False,
    classification=False,
    shared_memory=False,
    answer_versions=False,
    answer_parameters=False,
    batch_limits=False,
    reported_as={
        ErrorCode.MALFORMED: ErrorCode.INVALID_TENSOR,
        ErrorCode.ALREADY_EXISTS: ErrorCode.INVALID_TENSOR,
        ErrorCode.INTERNAL: ErrorCode.MODEL_FAILED,
    },
)

# a message has no model name, and an error has its own code
OVER_TCP = replace(OVER_HTTP, many_models=False, versions="", reported_as={})
