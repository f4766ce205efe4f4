"""What version 1 carries: every datatype but BF16, in its own byte form; BYTES is called STRING.

It has no parameters beside those that the IR has fields for. An id is a number, so only such ids are
told to an upstream. A scalar has no form of its own; as a dimension of 1 it comes through all the same.
"""

from __future__ import annotations

from protocols.dialect import Capability
from schemas import Datatype

CAPABILITY = Capability(exact=frozenset(Datatype) - {Datatype.BF16}, ids=False, parameters=False)
