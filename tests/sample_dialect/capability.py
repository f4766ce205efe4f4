"""What the sample carries: every tensor exactly, and of a request nothing else."""

from __future__ import annotations

from interlingua.protocols.dialect import Capability
from interlingua.schemas import Datatype

CAPABILITY = Capability(
    exact=frozenset(Datatype),
    versions="",
    version_lists=True,
    ids="",
    parameters=frozenset(),
    sequences=frozenset(),
    priorities=False,
    requested_outputs=False,
    classification=False,
    shared_memory=False,
    answer_versions=False,
    answer_parameters=False,
)
