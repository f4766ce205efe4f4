"""A parser that suggests the nearest command or option for one that does not exist."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile
from typing import Any, NoReturn

from interlingua.translator.cli.colours import painted


class SuggestingParser(argparse.ArgumentParser):
    """``commands`` are those of a parser with subcommands, which reads only the words before the command."""

    def __init__(self, *arguments: Any, commands: Collection[str] = (), **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._commands = commands

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As of the base class; first refuse options and commands that do not exist."""
        words = list(sys.argv[1:] if args is None else args)
        for option in self._unknown_options(words):
            self.error(_unknown("option", option, self._options()))
        command = next((word for word in words if not word.startswith("-")), None)
        if self._commands and command is not None and command not in self._commands:
            self.error(_unknown("command", command, self._commands))
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        """Print usage and message; exit with 2."""
        self.print_usage(sys.stderr)
        self.exit(2, f"{painted(f'{self.prog}: error:', 'red', sys.stderr)} {message}\n")

    def _options(self) -> list[str]:
        return [name for action in self._actions for name in action.option_strings if name.startswith("--")]

    def _unknown_options(self, words: Sequence[str]) -> Iterator[str]:
        known = self._options()
        for word in takewhile(self._is_ours, words):
            name = word.partition("=")[0]
            # argparse takes a word with a space for a value, and the beginning of an option for the option
            if name.startswith("--") and " " not in word and not any(each.startswith(name) for each in known):
                yield name

    def _is_ours(self, word: str) -> bool:
        return word != "--" and not (self._commands and not word.startswith("-"))


def _unknown(kind: str, word: str, choices: Collection[str]) -> str:
    from interlingua.translator.config.wording import unknown

    return unknown(kind, word, choices)
