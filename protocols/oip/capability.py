"""What the Open Inference Protocol carries: every datatype exactly, in its binary form."""

from __future__ import annotations

from protocols.dialect import Capability
from schemas import Datatype

CAPABILITY = Capability(exact=frozenset(Datatype))
