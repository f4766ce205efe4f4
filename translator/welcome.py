"""The text that ``serve`` prints once it listens: every address with its dialects and a command to paste."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Collection, Iterable, Sequence
from itertools import product

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.address import Address
from interlingua.translator.config.options import Config, ListenerOptions
from interlingua.translator.config.values import carried

Bound = Sequence[tuple[ListenerOptions, Address]]


def welcome(
    config: Config,
    listening: Bound,
    operators: Address | None = None,
    models: Collection[str] = (),
    failed: Collection[str] = (),
) -> str:
    """The text for a terminal. ``operators`` is the address of the admin pages. The commands name the default
    model, one of the configuration or one of the served ``models``, and none that ``failed`` to load. An
    address of several transports has one command per dialect, and later addresses do not repeat it."""
    lines = [f"{config.server.name} is {serving(models, failed)}."]
    if failed:
        lines.append(f"  not loaded: {', '.join(sorted(failed))}")
    python = _python()
    shared: set[str] = set()
    for options, address in listening:
        default = options.default_model or config.default_model
        model = _first((*((default,) if default else ()), *config.models, *models), failed)
        for dialect, transport in product(options.dialects, carried(options.transport)):
            if transport not in DIALECTS[dialect].bindings:
                continue
            place = f"{transport}+unix" if address.path else transport
            lines.append(f"  {dialect:10} {transport:5} {address}")
            line = DIALECTS[dialect].manifest.examples.get(place, "")
            # a message over tcp names no model: the default one answers
            unanswered = default in failed if transport == "tcp" else not model and "{model}" in line
            if line and not unanswered and dialect not in shared:
                lines.append(
                    "      " + line.format(python=python, url=address, path=address.path, model=model)
                )
            if options.transport == "any":
                shared.add(dialect)
    if operators is not None:
        lines.append(f"  {'operators':10} http  {operators}")
        if not operators.path:
            lines.append(f"      http://{operators}/ for people, http://{operators}/metrics for Prometheus")
    return "\n".join(lines) + "\n"


def serving(models: Collection[str], failed: Collection[str]) -> str:
    return f"serving {len(models)} of {len(models) + len(failed)} models" if failed else "serving"


def _first(names: Iterable[str], failed: Collection[str]) -> str:
    """The first of ``names`` that has not ``failed``; empty if all have."""
    found = next((name for name in names if name not in failed), "")
    return found if found or failed else "MODEL"


def _python() -> str:
    """The shortest command for this interpreter in the current directory."""
    if shutil.which("python") == sys.executable:
        return "python"
    near = os.path.relpath(sys.executable)
    return shlex.quote(sys.executable if near.startswith(os.pardir) else near)
