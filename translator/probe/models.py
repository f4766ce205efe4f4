"""Local models that cannot be loaded, according to their files or to a trial."""

from __future__ import annotations

import asyncio

from interlingua.runtime.repository.files import Progress, examine_model, load_models, needed_models
from interlingua.translator.assembly import local_models
from interlingua.translator.config.document import Path
from interlingua.translator.config.options import Config

Fault = tuple[Path, str]
"""A key of the configuration, and its fault."""


async def unloadable(config: Config, *, load: bool = False, progress: Progress | None = None) -> list[Fault]:
    """The faults of local models. Without ``load`` no engine starts and no model runs."""
    return await asyncio.to_thread(_examined, config) if not load else await _loaded(config, progress)


def _examined(config: Config) -> list[Fault]:
    faults: list[Fault] = []
    places = local_models(config)
    known = {source.name for source, _ in places} | config.models.keys()
    for source, place in places:
        reasons = examine_model(source)
        reasons += [
            f"{source.path}: a step uses model '{name}', which does not exist"
            for name in needed_models(source)
            if name not in known
        ]
        faults += [(place, _named(source.name, place, reason)) for reason in reasons]
    return faults


async def _loaded(config: Config, progress: Progress | None) -> list[Fault]:
    places = {source.name: (source, place) for source, place in local_models(config)}
    loaded = await asyncio.to_thread(load_models, [source for source, _ in places.values()], progress)
    reasons = {name: [str(error)] for name, error in loaded.failed.items()}
    for name, model in loaded.models.items():
        reasons[name] = list(model.failed.values())
        await model.close()
    return [
        (places[name][1], _named(name, places[name][1], reason))
        for name, texts in reasons.items()
        for reason in texts
    ]


def _named(model: str, place: Path, reason: str) -> str:
    """``reason``, with the model's name unless ``place`` has it."""
    text = f"cannot be loaded: {reason}"
    return text if place[0] == "models" else f"model '{model}' {text}"
