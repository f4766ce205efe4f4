"""What GraphPipe carries. It has neither BOOL nor BF16; a BOOL travels as UINT8, equal in value, and
becomes BOOL again where the model's signature says so. Of a request it has the tensors, the names of the
outputs, and one text for the model."""

from __future__ import annotations

from dataclasses import replace

from interlingua.protocols.dialect import Capability
from interlingua.schemas import Datatype, ErrorCode
from interlingua.schemas.graphpipe import TYPES

OVER_HTTP = Capability(
    exact=frozenset(TYPES),
    widened={Datatype.BOOL: Datatype.UINT8},
    model_name=False,  # one model a server; ours tell theirs apart by path
    output_names=False,  # the tensors of an answer stand in the order asked for
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

# a message has no place for a model's name, and an error has its own code in it
OVER_TCP = replace(OVER_HTTP, many_models=False, versions="", reported_as={})
