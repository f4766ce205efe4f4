"""Prints every mistake with its line, or what would be served. Connects to nothing, loads no model."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from translator.config import Config
    from translator.config.options import ModelOptions

HELP = "check a configuration without starting anything"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What ``check`` takes."""
    parser.add_argument("-c", "--config", metavar="FILE", required=True, help="the configuration (YAML)")


def run(arguments: argparse.Namespace) -> int:
    """Print the errors of a configuration, one a line, or what it would serve."""
    from translator.config import ConfigError, load

    try:
        config = load(arguments.config)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.writelines(f"{line}\n" for line in _summary(config))
    return 0


def _summary(config: Config) -> Iterator[str]:
    yield f"listeners ({len(config.listeners)}):"
    for listener in config.listeners:
        default = listener.default_model or config.default_model
        ending = f"; default model {default}" if default else ""
        yield f"  {listener.listen} over {listener.transport}: {', '.join(listener.dialects)}{ending}"
    models = dict(_models(config))
    yield f"models ({len(models)}):"
    yield from (f"  {name}: {where}" for name, where in sorted(models.items()))
    if config.routes:
        yield f"routes ({len(config.routes)}):"
    for route in config.routes:
        conditions = route.match.model_dump(exclude_none=True)
        stated = [f"{key} {value}" for key, value in conditions.items() if value != {}]
        parts = [f"{part.to} (weight {part.weight:g})" for part in route.split or ()]
        yield f"  {', '.join(stated)} -> {route.to or ', '.join(parts)}"


def _models(config: Config) -> Iterator[tuple[str, str]]:
    """Every model with where it comes from; of two of one name the later counts, as in the daemon."""
    for repository in config.model_repository:
        for name in repository.models:
            yield name, f"repository {repository.name}"
    for name, model in config.models.items():
        yield name, _backing(config, name, model)


def _backing(config: Config, name: str, model: ModelOptions) -> str:
    if model.upstream is None:
        return f"backend {model.backend}" + (f", {model.path}" if model.path else "")
    upstream = config.upstreams[model.upstream]
    there = f"{upstream.dialect} over {upstream.transport} at {', '.join(upstream.urls)}"
    return f"upstream {model.upstream} ({there}), model {model.remote_model or name} there"
