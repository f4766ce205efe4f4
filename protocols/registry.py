"""The dialects that this program speaks: one line each.

Everything that goes over all dialects (listeners, upstreams, the any-to-any properties) goes over
this table.
"""

from __future__ import annotations

from interlingua.protocols.dialect import Dialect
from interlingua.protocols.graphpipe import DIALECT as GRAPHPIPE
from interlingua.protocols.grps import DIALECT as GRPS
from interlingua.protocols.oip import DIALECT as OIP
from interlingua.protocols.trtis import DIALECT as TRTIS

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (OIP, GRAPHPIPE, TRTIS, GRPS)}
