"""The routes, mirrors and tap of another configuration. What is equal stays, with its counts, its sequences
and its process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from interlingua.runtime.repository.known_models import KnownModels
from interlingua.translator import mirror
from interlingua.translator.config.options import Config
from interlingua.translator.config.routes import RouteOptions
from interlingua.translator.mirror import Mirror
from interlingua.translator.mirror.shared import MirrorSlots
from interlingua.translator.recording import build as recording
from interlingua.translator.recording.tap import Tap
from interlingua.translator.serving.routing.build import build
from interlingua.translator.serving.routing.route import Route


@dataclass(slots=True)
class TrafficSuccession:
    """What replaces the ``routes`` of ``before``, their mirrors and ``tap``, in the same order as there.
    ``slots`` are those of the mirrors, if several processes share them."""

    before: Config
    config: Config
    routes_before: Sequence[Route]
    tap_before: Tap | None
    slots: MirrorSlots | None = None
    routes: list[Route] = field(default_factory=list)
    mirrors: list[Mirror | None] = field(default_factory=list)
    tap: Tap | None = None

    async def prepare(self, catalog: KnownModels) -> None:
        """Start mirrors, open recordings. Raises ``OSError``."""
        kept = dict(self._kept())
        mirrors = {number: _mirror(route) for number, route in kept.items()}
        self.mirrors = mirror.build(self.config, catalog.find, mirrors, self.slots)
        self.routes = [
            kept.get(number) or build(options, found)
            for number, (options, found) in enumerate(zip(self.config.routes, self.mirrors, strict=True))
        ]
        await asyncio.gather(*(each.start() for each in self._new_mirrors()))
        if self.config.tap == self.before.tap:
            self.tap = self.tap_before
        else:
            # last, because it puts an earlier recording aside
            self.tap = recording.build(self.config)

    @property
    def leaving_mirrors(self) -> list[Mirror]:
        return [
            each for each in map(_mirror, self.routes_before) if each is not None and each not in self.mirrors
        ]

    async def close_old(self) -> None:
        """Finish the copies of mirrors that are gone, and the recording of a tap that is."""
        await asyncio.gather(*(each.close() for each in self.leaving_mirrors))
        if self.tap_before is not None and self.tap_before is not self.tap:
            await asyncio.to_thread(self.tap_before.close)

    async def abort(self) -> None:
        """Close what was prepared."""
        await asyncio.gather(*(each.close() for each in self._new_mirrors()))
        if self.tap is not None and self.tap is not self.tap_before:
            await asyncio.to_thread(self.tap.close)

    def _new_mirrors(self) -> list[Mirror]:
        known = list(map(_mirror, self.routes_before))
        return [each for each in self.mirrors if each is not None and each not in known]

    def _kept(self) -> Iterator[tuple[int, Route]]:
        """The routes that stay, by their number now."""
        left = list(zip(self.before.routes, self.routes_before, strict=True))
        for number, options in enumerate(self.config.routes):
            for pair in left:
                if pair[0] == options and self._has_same_mirror(options):
                    left.remove(pair)
                    yield number, pair[1]
                    break

    def _has_same_mirror(self, route: RouteOptions) -> bool:
        """Whether the copies of ``route`` go where they went."""
        if route.mirror is None:
            return True
        old, new = (_destination(each, route.mirror.to) for each in (self.before, self.config))
        return old == new


def _mirror(route: Route) -> Mirror | None:
    return route.mirror if isinstance(route.mirror, Mirror) else None


def _destination(config: Config, model: str) -> object:
    """The options of an upstream model and of its servers. A local model is looked up for each copy."""
    options = config.models.get(model)
    if options is None or options.upstream is None:
        return None
    upstreams: Mapping[str, object] = config.upstreams
    return options, upstreams[options.upstream]
