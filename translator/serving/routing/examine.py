"""Examines the models of routes: whether their signatures agree and have the tensors that routes rename.

Oddities are logged once; nothing is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence

from interlingua.runtime.target import Target
from interlingua.schemas import InferenceError, Signature, TensorSpec
from interlingua.translator.serving.routing.route import Route

_AGAIN_SECS = (1.0, 5.0, 15.0, 60.0)
"""The intervals between attempts at an unavailable model; the last one repeats."""

_log = logging.getLogger(__name__)


def oddities(route: Route, signatures: Mapping[str, Signature]) -> Iterator[str]:
    """The oddities of the models of ``route``, as far as their ``signatures`` are known."""
    known = [(name, signatures[name]) for name in route.models if name in signatures]
    for name, signature in known:
        for kind, renames, names in (
            ("input", route.names.inputs, signature.input_names),
            ("output", route.names.outputs, signature.output_names),
        ):
            for theirs in renames.values():
                if theirs not in names:
                    yield f"model '{name}' has no {kind} '{theirs}', which the route renames"
    for name, signature in known[1:]:
        first, model = known[0]
        for kind, here, there in (
            ("input", model.inputs, signature.inputs),
            ("output", model.outputs, signature.outputs),
        ):
            ours, others = _described(here), _described(there)
            for tensor in dict.fromkeys((*ours, *others)):
                if ours.get(tensor) != others.get(tensor):
                    both = f"'{first}' has {ours.get(tensor, 'none')}, '{name}' {others.get(tensor, 'none')}"
                    yield f"models differ in {kind} '{tensor}': {both}"


def _described(specs: Sequence[TensorSpec]) -> dict[str, str]:
    return {spec.name: f"{spec.datatype.value} {list(spec.shape)}" for spec in specs}


class Examiner:
    """Examines ``routes`` to ``models`` in the background, from :meth:`start` to :meth:`stop`: each served
    model that can be odd, once its signature is known."""

    def __init__(self, routes: Sequence[Route], models: Mapping[str, Target]) -> None:
        self._routes = routes
        self._models = models
        self._signatures: dict[str, Signature] = {}
        self._logged: set[tuple[int, str]] = set()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        examined = {
            name
            for route in self._routes
            if len(route.models) > 1 or not route.names.plain
            for name in route.models
            if name in self._models
        }
        self._tasks = [asyncio.create_task(self._examine(name)) for name in sorted(examined)]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def known(self) -> None:
        await asyncio.gather(*self._tasks)

    async def _examine(self, name: str) -> None:
        """Retry until the signature is known, or the model is no longer served."""
        tries = 0
        while (target := self._models.get(name)) is not None:
            try:
                self._signatures[name] = await target.signature()
            except InferenceError:
                await asyncio.sleep(_AGAIN_SECS[min(tries, len(_AGAIN_SECS) - 1)])
                tries += 1
            else:
                self._log_oddities()
                return

    def _log_oddities(self) -> None:
        for number, route in enumerate(self._routes, 1):
            for oddity in oddities(route, self._signatures):
                if (number, oddity) not in self._logged:
                    self._logged.add((number, oddity))
                    _log.warning("suspicious route", extra={"facts": {"route": number, "reason": oddity}})
