"""What GraphPipe carries. It has neither BOOL nor BF16; a BOOL travels as UINT8, equal in value, and
becomes BOOL again where the model's signature says so."""

from __future__ import annotations

from protocols.dialect import Capability
from schemas import Datatype
from schemas.graphpipe import TYPES

CAPABILITY = Capability(
    exact=frozenset(TYPES),
    widened={Datatype.BOOL: Datatype.UINT8},
    model_name=False,  # one model a server; ours tell theirs apart by path
    output_names=False,  # the tensors of an answer stand in the order asked for
    ids=False,
    parameters=False,  # but for the one called "config"
)
