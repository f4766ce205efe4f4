"""Completes a command line for a shell, by argcomplete: the script of ``interlingua completion`` runs this
program with ``_ARGCOMPLETE`` in its environment.

Nothing is shown if names cannot be found: an error would appear in the middle of what a person types.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import argcomplete

SERVER = "127.0.0.1:8000"
"""Where model names come from if the command line has no --url: the first port of ``interlingua serve``."""

CONFIGURATIONS = ("interlingua.yaml", "config.yaml", "bridge.yaml")
"""Where they come from if no server answers, in the current folder."""

_TIMEOUT_SECS = 1.0
"""For each call; where no server listens, the answer is immediate."""


def complete(parser: argparse.ArgumentParser) -> None:
    """Write the completions of the shell's command line, and end the process."""
    for name, command in _commands(parser):
        for action in command._actions:
            for option in action.option_strings:
                completer = _COMPLETERS.get((name, option)) or _COMPLETERS.get(("", option))
                if completer is not None:
                    action.completer = completer  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser, always_complete_options="long")


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _models(parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    url = getattr(parsed_args, "url", None) or SERVER
    dialect, transport = (getattr(parsed_args, name, None) for name in ("dialect", "transport"))
    # no names after any failure: see the module
    with contextlib.suppress(Exception):
        return asyncio.run(_served(url, dialect, transport))
    with contextlib.suppress(Exception):
        return _configured()
    return []


async def _served(url: str, dialect: str | None, transport: str | None) -> list[str]:
    """The models that the server at ``url`` lists. Raises any error if there is none."""
    from interlingua.protocols.transport.address import parse_url
    from interlingua.schemas import Operation
    from interlingua.translator.config.bindings import binding_of
    from interlingua.translator.probe.conversation import Conversation
    from interlingua.translator.probe.recognition import recognize

    listing = Operation.REPOSITORY_INDEX
    if dialect and transport:
        binding = binding_of(dialect, transport)
    else:
        found = await recognize(url, _TIMEOUT_SECS, dialect=dialect, transport=transport, operation=listing)
        if found is None:
            raise LookupError(url)
        binding = found
    async with Conversation(parse_url(url, binding.transport), binding, _TIMEOUT_SECS) as server:
        return [each.name for each in await server.call(listing)]


def _configured() -> list[str]:
    """The models of a configuration in the current folder. Raises any error if there is none."""
    from interlingua.translator.config import load

    path = next(name for name in CONFIGURATIONS if Path(name).is_file())
    config = load(path)
    return [*config.models, *(name for each in config.model_repository for name in each.models)]


def _dialects(**_: Any) -> list[str]:
    from interlingua.protocols.registry import DIALECTS

    return list(DIALECTS)


def _transports(parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    from interlingua.protocols.registry import DIALECTS

    dialect = DIALECTS.get(getattr(parsed_args, "dialect", None) or "")
    chosen = DIALECTS.values() if dialect is None else [dialect]
    return list(dict.fromkeys(transport for each in chosen for transport in each.bindings))


def _bindings(**_: Any) -> list[str]:
    from interlingua.protocols.registry import bindings

    return list(bindings())


def _ends(**_: Any) -> list[str]:
    from interlingua.translator.fidelity.parties import targets

    return list(targets())


_COMPLETERS: dict[tuple[str, str], Callable[..., list[str]]] = {
    ("", "--model"): _models,
    ("", "--dialect"): _dialects,
    ("", "--transport"): _transports,
    ("", "--from"): _bindings,
    ("", "--to"): _bindings,
    ("fidelity", "--to"): _ends,
}
"""What completes the value of an option, by command, empty for every command; files by default."""
