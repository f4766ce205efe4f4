"""Every attack, in the order of the table."""

from __future__ import annotations

from benchmarks.hostile import bodies, connections, floods
from benchmarks.hostile.attack import Attack

_MODULES = (connections, floods, bodies)

ATTACKS: tuple[Attack, ...] = tuple(attack for module in _MODULES for attack in module.ATTACKS)
