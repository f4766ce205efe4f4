"""Interlingua: any model-inference client reaches any model server.

The public API: ``serve`` and ``load_config`` run the daemon; the values of the canonical tensor form
(``Tensor``, ``InferRequest``, ``InferenceError`` and so on) are what its parts exchange;
``conformance.examine`` tests any server and needs the extra ``conformance``.

Every name is imported on first use: the process of a Python model imports this package too, and must not
load the daemon. The four rooms are folders of the repository, reached here through symbolic links.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interlingua.schemas import *  # noqa: F403
    from interlingua.translator.config import load as load_config
    from interlingua.translator.conformance import session as conformance
    from interlingua.translator.daemon import serve

_MEMBERS = {
    "conformance": ("interlingua.translator.conformance.session", ""),
    "load_config": ("interlingua.translator.config", "load"),
    "serve": ("interlingua.translator.daemon", "serve"),
}
"""Public names with the module that defines each, and its name there; no name: the module
itself. Every other public name comes from ``schemas``."""

__all__ = ["conformance", "load_config", "serve"]  # and all of ``interlingua.schemas``: see ``__dir__``


def __getattr__(name: str) -> Any:
    if name in _MEMBERS:
        module, attribute = _MEMBERS[name]
        found = import_module(module)
        return getattr(found, attribute) if attribute else found
    # the import system looks for dunders: those must not load numpy
    if not name.startswith("_"):
        schemas = import_module("interlingua.schemas")
        if name in schemas.__all__:
            return getattr(schemas, name)
    raise AttributeError(f"module 'interlingua' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *import_module("interlingua.schemas").__all__})
