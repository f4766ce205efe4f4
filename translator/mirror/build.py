"""The mirrors of a configuration's routes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from runtime.target import Target
from translator.config.routes import RouteOptions
from translator.mirror.mirror import Mirror
from translator.routing.names import Names, View


def build(routes: Sequence[RouteOptions], find: Callable[[str], Target]) -> list[Mirror | None]:
    """The mirror of each of ``routes``, None for one that has none; ``find`` finds models by name, and raises
    NOT_FOUND. They are called as what their routes match, those of a name that is taken with their number."""
    taken: set[str] = set()
    mirrors: list[Mirror | None] = []
    for number, route in enumerate(routes, 1):
        if route.mirror is None:
            mirrors.append(None)
            continue
        name = route.match.model
        if name in taken:
            name = f"{name} (route {number})"
        taken.add(name)
        mirrors.append(Mirror(route.mirror, _by_callers_names(route, find), name))
    return mirrors


def _by_callers_names(route: RouteOptions, find: Callable[[str], Target]) -> Callable[[str], Target]:
    """``find``, for models that are asked with the names of tensors that callers of ``route`` use. Versions
    are the mirror's own."""
    names = Names(route.rename.inputs, route.rename.outputs)
    if names.plain:
        return find
    return lambda name: View(find(name), names, name)
