"""The mirrors of a configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from interlingua.runtime.target import Target
from interlingua.translator.config.options import Config
from interlingua.translator.config.routes import RouteOptions
from interlingua.translator.mirror.judge import Judge, LocalJudge
from interlingua.translator.mirror.mirror import Mirror
from interlingua.translator.mirror.process import JudgeProcess
from interlingua.translator.mirror.shared import MirrorSlots
from interlingua.translator.serving.routing.names import Names, View

Find = Callable[[str], Target]


def build(
    config: Config,
    find: Find,
    kept: Mapping[int, Mirror | None] | None = None,
    slots: MirrorSlots | None = None,
) -> list[Mirror | None]:
    """The mirror of each route, None where a route has none, those in ``kept`` by number as they are.
    ``find`` looks up local models and raises NOT_FOUND; a separate process sends copies to upstream
    models. ``slots``: several processes share the mirrors."""
    kept = kept or {}
    process = JudgeProcess(config, slots)
    mirrors: list[Mirror | None] = []
    taken: set[str] = {each.report.name for each in kept.values() if each is not None}
    for number, route in enumerate(config.routes):
        if route.mirror is None or number in kept:
            mirrors.append(kept.get(number))
            continue
        model = config.models.get(route.mirror.to)
        shared = None if slots is None else slots.of(number)
        judge: Judge
        if model is not None and model.upstream is not None:
            judge = process.judge_of(number)
        else:
            names = by_callers_names(route, find)
            judge = LocalJudge(route.mirror, names, config.server.shares_files, shared)
        name = route.match.model
        if name in taken:
            name = f"{name} (route {number + 1})"
        taken.add(name)
        mirrors.append(Mirror(route.mirror, judge, name, shared=shared))
    return mirrors


def by_callers_names(route: RouteOptions, find: Find) -> Find:
    """``find`` for the tensor names of ``route``'s callers. Versions are the model's own."""
    names = Names(route.rename.inputs, route.rename.outputs)
    if names.plain:
        return find
    return lambda name: View(find(name), names, name)
