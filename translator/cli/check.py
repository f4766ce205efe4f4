"""Prints every error with its line, or a summary of the configuration, and the models that cannot be loaded,
judged by their files and the installed engines. --load loads every model; --probe queries the servers of the
upstreams for their metadata."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interlingua.translator.cli.arguments import positive
from interlingua.translator.cli.colours import painted

if TYPE_CHECKING:
    from interlingua.translator.config import Config
    from interlingua.translator.config.composition import ComposedFile
    from interlingua.translator.config.document import Problem
    from interlingua.translator.probe.upstreams import Probed

HELP = "check a configuration without starting the daemon"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-c", "--config", metavar="FILE", required=True, help="the configuration (YAML)")
    add("--load", action="store_true", help="load every model, with the time and memory that serving takes")
    add("--probe", action="store_true", help="check every server of the upstreams")
    add("--timeout-secs", type=positive, default=5.0, metavar="S", help="for each probe (default: 5)")
    add("--json", action="store_true", help="print the result as one line of JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the errors of a configuration, one per line, or its summary. Returns 1 if a model cannot be
    loaded or a probe finds an error."""
    from interlingua.translator.cli.check_summary import lines
    from interlingua.translator.config import ConfigError, load

    try:
        config = load(arguments.config)
    except ConfigError as error:
        if not arguments.json:
            raise
        _print_json({"errors": list(map(_problem, error.problems))})
        return 2
    if arguments.json:
        found = _look(arguments, config)
        _print_json(found.document(config))
    else:
        sys.stdout.writelines(f"{line}\n" for line in lines(config))
        sys.stdout.flush()
        found = _look(arguments, config)
        found.show(arguments.probe)
    return 1 if found.wrong else 0


@dataclass(frozen=True, slots=True)
class _Found:
    """What ``check`` finds in a valid configuration: problems of local models and of each server of the
    upstreams, and warnings."""

    read: ComposedFile
    warnings: list[Problem]
    models: list[Problem]
    servers: list[tuple[Probed, list[Problem]]]

    @property
    def wrong(self) -> list[Problem]:
        return self.models + [problem for _, problems in self.servers for problem in problems]

    def document(self, config: Config) -> dict[str, Any]:
        """As values of JSON."""
        from interlingua.translator.cli.check_summary import document

        servers = [
            {
                "upstream": server.upstream,
                "url": server.url,
                "name": server.name,
                "problems": list(map(_problem, problems)),
            }
            for server, problems in self.servers
        ]
        return {
            "errors": [],
            "warnings": list(map(_problem, self.warnings)),
            "models": list(map(_problem, self.models)),
            "servers": servers,
            "serves": document(config),
        }

    def show(self, probed: bool) -> None:
        """As text: the servers if they were ``probed``, and the problems."""
        if probed:
            sys.stdout.write(f"servers ({len(self.servers)}):\n")
        for server, problems in self.servers:
            count = len(problems)
            state = f"{count} problem{'s' if count > 1 else ''}" if count else "as stated"
            shown = painted(state, "red" if count else "green", sys.stdout)
            name = f" ({server.name})" if server.name else ""
            sys.stdout.write(f"  {server.upstream} at {server.url}{name}: {shown}\n")
        sys.stdout.flush()
        for problems in (self.warnings, self.wrong):
            if problems:
                sys.stderr.write(f"{self.read.error(problems)}\n")


def _look(arguments: argparse.Namespace, config: Config) -> _Found:
    from interlingua.protocols.transport import loop
    from interlingua.translator.config.composition import ComposedFile
    from interlingua.translator.config.exposure import exposed
    from interlingua.translator.config.identities import unused_credentials
    from interlingua.translator.config.renamed import accepted_names
    from interlingua.translator.probe.models import unloadable
    from interlingua.translator.probe.upstreams import probe
    from interlingua.translator.progress import LoadingProgress

    read = ComposedFile.of_file(arguments.config, os.environ)

    def problems_of(faults: Iterable[tuple[tuple[str | int, ...], str]]) -> list[Problem]:
        found = [read.problem(path, text) for path, text in faults]
        return sorted(found, key=lambda problem: problem.line)

    former = [(name.path, name.warning) for name in accepted_names(read.data)]
    with LoadingProgress(sys.stderr) as progress:
        models = loop.run(unloadable(config, load=arguments.load, progress=progress))
    servers = loop.run(probe(config, arguments.timeout_secs)) if arguments.probe else []
    return _Found(
        read,
        problems_of((*exposed(config), *unused_credentials(config), *former)),
        problems_of(models),
        [(server, problems_of(server.faults)) for server in servers],
    )


def _problem(problem: Problem) -> dict[str, Any]:
    from interlingua.translator.config.document import dotted

    return {
        "file": problem.source,
        "line": problem.line,
        "key": dotted(problem.path),
        "text": problem.text,
    }


def _print_json(document: dict[str, Any]) -> None:
    import orjson

    sys.stdout.write(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE).decode())
