"""The numbers of the GraphPipe wire contract; ``graphpipe.fbs`` is the contract itself.

How the tables are read and written belongs to ``protocols.graphpipe``.
"""

from __future__ import annotations

from collections.abc import Mapping

from interlingua.schemas.datatypes import Datatype

INFER_REQUEST = 1
"""The union tag of an ``InferRequest`` in ``Request.req_type``."""

METADATA_REQUEST = 2
"""The union tag of a ``MetadataRequest`` in ``Request.req_type``."""

NULL = 0
"""The ``Type`` of a tensor that has none."""

TYPES: Mapping[Datatype, int] = {
    Datatype.UINT8: 1,
    Datatype.INT8: 2,
    Datatype.UINT16: 3,
    Datatype.INT16: 4,
    Datatype.UINT32: 5,
    Datatype.INT32: 6,
    Datatype.UINT64: 7,
    Datatype.INT64: 8,
    Datatype.FP16: 9,
    Datatype.FP32: 10,
    Datatype.FP64: 11,
    Datatype.BYTES: 12,
}
"""The ``Type`` of each datatype that GraphPipe has; unsigned comes before signed at each width."""
