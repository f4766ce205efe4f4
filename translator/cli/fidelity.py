"""An end is a dialect over a transport, such as oip/http; --to also accepts a backend, such as python. Lists
all paths, one per line, unless both are given. docs/fidelity.md has the whole matrix."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from interlingua.translator.cli.arguments import RefusedError

if TYPE_CHECKING:
    from interlingua.translator.fidelity.parties import Party

HELP = "show what a path keeps, widens, drops or refuses"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--from", dest="caller", metavar="END", help="the caller, such as oip/http (default: all)")
    add("--to", dest="target", metavar="END", help="the target: an end or a backend (default: all)")
    add("--json", action="store_true", help="print an array with an object for each path")
    add("--check", action="store_true", help="exit with 1 if anything is widened, dropped or refused")


def run(arguments: argparse.Namespace) -> int:
    """Print the paths. Returns 1 with --check if a path loses anything, 2 for an unknown end."""
    from interlingua.translator.fidelity.parties import callers, targets
    from interlingua.translator.fidelity.path import judge
    from interlingua.translator.fidelity.words import as_json, in_brief, in_words

    chosen = [
        judge(caller, target)
        for caller in _chosen(callers(), arguments.caller, "--from")
        for target in _chosen(targets(), arguments.target, "--to")
    ]
    if arguments.json:
        sys.stdout.write(as_json(chosen).decode())
    elif arguments.caller and arguments.target:
        sys.stdout.write(in_words(chosen[0]))
    else:
        sys.stdout.write(in_brief(chosen))
    loses = any(verdict.outcome.loses for path in chosen for verdict in path.verdicts)
    return 1 if arguments.check and loses else 0


def _chosen(ends: dict[str, Party], name: str | None, option: str) -> list[Party]:
    from interlingua.translator.config.wording import unknown

    if name is None:
        return list(ends.values())
    if name not in ends:
        raise RefusedError(f"{option}: {unknown('end', name, ends)}")
    return [ends[name]]
