"""Save it, and name it in the first line of a configuration file, "# yaml-language-server: $schema=FILE":
editors then complete options, show what they mean, and mark mistakes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from interlingua.translator.cli.arguments import RefusedError

HELP = "print the JSON Schema of the configuration file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", help="write it here (default: standard output)")


def run(arguments: argparse.Namespace) -> int:
    """Print it, or write it to the file."""
    import orjson

    from interlingua.translator.config.json_schema import json_schema

    text = orjson.dumps(json_schema(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    if arguments.output is None:
        sys.stdout.write(text.decode())
    else:
        try:
            Path(arguments.output).write_bytes(text)
        except OSError as error:
            raise RefusedError(f"'{arguments.output}' cannot be written: {error.strerror}") from None
    return 0
