"""Which models of a configuration cannot be loaded: by what their files tell, or by loading them."""

from __future__ import annotations

import asyncio

from interlingua.runtime.repository.files import examine_model, load_models, needed_models
from interlingua.translator.assembly import local_models
from interlingua.translator.config.document import Path
from interlingua.translator.config.options import Config

Fault = tuple[Path, str]
"""What is wrong, and at which place of the configuration."""


async def unloadable(config: Config, *, load: bool = False) -> list[Fault]:
    """What is wrong with the models that run here. Without ``load`` no engine is started, and nothing of a
    model's runs."""
    return await asyncio.to_thread(_examined, config) if not load else await _loaded(config)


def _examined(config: Config) -> list[Fault]:
    faults: list[Fault] = []
    places = local_models(config)
    known = {source.name for source, _ in places} | config.models.keys()
    for source, place in places:
        reasons = examine_model(source)
        reasons += [
            f"{source.path}: a step asks model '{name}', which is not there"
            for name in needed_models(source)
            if name not in known
        ]
        faults += [(place, _named(source.name, place, reason)) for reason in reasons]
    return faults


async def _loaded(config: Config) -> list[Fault]:
    places = {source.name: (source, place) for source, place in local_models(config)}
    loaded = await asyncio.to_thread(load_models, [source for source, _ in places.values()])
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
    """``reason`` with the model's name, where its place does not tell it."""
    told = f"cannot be loaded: {reason}"
    return told if place[0] == "models" else f"model '{model}' {told}"
