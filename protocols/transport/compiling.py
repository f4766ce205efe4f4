"""What modules state for mypyc, which compiles some of them in an optional build; no effect otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # mypyc knows it by this name; it has done its work when a module runs
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**_: Any) -> Any:
        """Options of a compiled class."""
        return lambda cls: cls
