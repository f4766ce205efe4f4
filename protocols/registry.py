"""The dialects that this program speaks: one line each.

Everything that goes over all dialects (listeners, upstreams, the any-to-any properties) goes over
this table.
"""

from __future__ import annotations

from protocols.dialect import Dialect
from protocols.graphpipe import DIALECT as GRAPHPIPE
from protocols.grps import DIALECT as GRPS
from protocols.oip import DIALECT as OIP
from protocols.trtis import DIALECT as TRTIS

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (OIP, GRAPHPIPE, TRTIS, GRPS)}
