"""Whether this build is compiled (docs/adr/compiled.md)."""

from __future__ import annotations

from pathlib import Path

from interlingua.protocols.transport import allowance


def is_compiled() -> bool:
    """Whether the modules of ``tool.interlingua.compiled`` are machine code; a build compiles all or none."""
    return Path(allowance.__file__).suffix != ".py"
