"""Prints every error with its line, or a summary of the configuration, and the models that cannot be loaded,
judged by their files and the installed engines. --load loads every model; --probe queries the servers of the
upstreams for their metadata."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from interlingua.translator.cli.arguments import RefusedError, positive

if TYPE_CHECKING:
    from interlingua.translator.config import Config
    from interlingua.translator.config.models import ModelOptions
    from interlingua.translator.config.routes import RouteOptions

HELP = "check a configuration without starting the daemon"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-c", "--config", metavar="FILE", required=True, help="the configuration (YAML)")
    add("--load", action="store_true", help="load every model, with the time and memory that serving takes")
    add("--probe", action="store_true", help="check every server of the upstreams")
    add("--timeout-secs", type=positive, default=5.0, metavar="S", help="for each probe (default: 5)")
    add("--json", action="store_true", help="print the results of --probe as one line of JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the errors of a configuration, one per line, or its summary. Returns 1 if a model cannot be
    loaded or a probe finds an error."""
    from interlingua.translator.config import load

    if arguments.json and not arguments.probe:
        raise RefusedError("--json needs --probe")
    config = load(arguments.config)
    if not arguments.json:
        sys.stdout.writelines(f"{line}\n" for line in _summary(config))
    return _look(arguments, config)


def _look(arguments: argparse.Namespace, config: Config) -> int:
    import orjson

    from interlingua.protocols.transport import loop
    from interlingua.translator.config.composition import ComposedFile
    from interlingua.translator.config.document import Problem, dotted
    from interlingua.translator.config.exposure import exposed
    from interlingua.translator.config.identities import unused_credentials
    from interlingua.translator.probe.models import unloadable
    from interlingua.translator.probe.upstreams import probe

    read = ComposedFile.of_file(arguments.config, os.environ)

    def problems_of(faults: Iterable[tuple[tuple[str | int, ...], str]]) -> list[Problem]:
        found = [read.problem(path, text) for path, text in faults]
        return sorted(found, key=lambda problem: problem.line)

    def as_json(problems: list[Problem]) -> list[dict[str, Any]]:
        return [
            {"file": each.source, "line": each.line, "key": dotted(each.path), "text": each.text}
            for each in problems
        ]

    if not arguments.json and (warnings := problems_of((*exposed(config), *unused_credentials(config)))):
        sys.stdout.flush()
        sys.stderr.write(f"{read.error(warnings)}\n")
    wrong = problems_of(loop.run(unloadable(config, load=arguments.load)))
    models = as_json(wrong)
    found = loop.run(probe(config, arguments.timeout_secs)) if arguments.probe else []
    problems = {id(server): problems_of(server.faults) for server in found}
    if arguments.json:
        document = [
            {
                "upstream": server.upstream,
                "url": server.url,
                "name": server.name,
                "problems": as_json(problems[id(server)]),
            }
            for server in found
        ]
        found_all = {"servers": document, "models": models}
        sys.stdout.write(orjson.dumps(found_all, option=orjson.OPT_APPEND_NEWLINE).decode())
    elif arguments.probe:
        sys.stdout.write(f"servers ({len(found)}):\n")
        for server in found:
            count = len(server.faults)
            state = f"{count} problem{'s' if count > 1 else ''}" if count else "as stated"
            name = f" ({server.name})" if server.name else ""
            sys.stdout.write(f"  {server.upstream} at {server.url}{name}: {state}\n")
    wrong += [problem for server in found for problem in problems[id(server)]]
    if wrong and not arguments.json:
        sys.stdout.flush()
        sys.stderr.write(f"{read.error(wrong)}\n")
    return 1 if wrong else 0


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
    yield from (f"  {_route(route)}" for route in config.routes)
    if config.tap is not None:
        yield f"tap: {', '.join(config.tap.models)} to {config.tap.path}"
    if config.admin is not None:
        yield f"admin: {config.admin.listen}"


def _models(config: Config) -> Iterator[tuple[str, str]]:
    """Every model with its source; of two with one name the later wins, as in the daemon."""
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
    remote = name if model.remote_model is None else model.remote_model
    return (
        f"upstream {model.upstream} ({there}), {f'model {remote}' if remote else 'its default model'} there"
    )


def _route(route: RouteOptions) -> str:
    conditions = route.match.model_dump(exclude_none=True)
    stated = [f"{key} {value}" for key, value in conditions.items() if value != {}]
    parts = [f"{part.to} (weight {part.weight:g})" for part in route.split or ()]
    text = f"{', '.join(stated)} -> {route.to or ', '.join(parts)}"
    if route.fallback is not None:
        text += f"; fallback {route.fallback}"
    if route.mirror is not None:
        text += f"; mirror {route.mirror.to} ({route.mirror.percent:g} %)"
    return text
