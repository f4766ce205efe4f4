"""The dialects that this program speaks: one line each.

Listeners, upstreams, commands and the any-to-any properties all iterate over this table.
"""

from __future__ import annotations

from interlingua.protocols.dialect import Binding, Dialect
from interlingua.protocols.graphpipe import DIALECT as GRAPHPIPE
from interlingua.protocols.grps import DIALECT as GRPS
from interlingua.protocols.oip import DIALECT as OIP
from interlingua.protocols.tfserving import DIALECT as TFSERVING
from interlingua.protocols.trtis import DIALECT as TRTIS

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (OIP, GRAPHPIPE, TRTIS, GRPS, TFSERVING)}


def bindings() -> dict[str, Binding]:
    """Every binding of every dialect, by its name; those of a dialect in the order of their transports."""
    return {
        binding.name: binding
        for dialect in DIALECTS.values()
        for _, binding in sorted(dialect.bindings.items())
    }
