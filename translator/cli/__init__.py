"""The ``interlingua`` command: one module per subcommand, listed here.

A command module imports nothing heavy until it runs, so that ``--help`` is fast. Exit codes:
0 success, 1 a check failed or a server returned an error, 2 wrong usage or configuration.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from interlingua.runtime.ray_serve.leaving import leave
from interlingua.translator.cli import (
    check,
    completion,
    conformance,
    convert,
    fidelity,
    infer,
    init,
    mirror,
    reload,
    replay,
    schema,
    serve,
    top,
)
from interlingua.translator.cli.arguments import NoAnswerError, RefusedError
from interlingua.translator.cli.colours import painted
from interlingua.translator.cli.parser import SuggestingParser

COMMANDS = {
    "serve": serve,
    "init": init,
    "reload": reload,
    "check": check,
    "schema": schema,
    "infer": infer,
    "top": top,
    "conformance": conformance,
    "replay": replay,
    "convert": convert,
    "mirror": mirror,
    "fidelity": fidelity,
    "completion": completion,
}
"""Subcommands by name. Each has HELP, ``add_arguments(parser)`` and ``run(arguments) -> exit code``."""

INTERRUPTED, UNREAD = 130, 141
"""A shell's exit codes of a process ended by SIGINT and by SIGPIPE."""

# Only `serve` sets up a log; the other commands print their errors.
logging.getLogger("interlingua").addHandler(logging.NullHandler())


def parser() -> argparse.ArgumentParser:
    top = SuggestingParser(
        prog="interlingua",
        commands=COMMANDS,
        description="A daemon that connects any model-inference client with any model server.",
        epilog="Exit codes: 0 success, 1 a check failed or a server returned an error, 2 wrong usage or "
        "configuration.",
    )
    top.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = top.add_subparsers(metavar="COMMAND", required=True, parser_class=SuggestingParser)
    for name, module in COMMANDS.items():
        command = commands.add_parser(name, help=module.HELP, description=module.HELP, epilog=module.__doc__)
        command.formatter_class = argparse.RawDescriptionHelpFormatter
        module.add_arguments(command)
        command.set_defaults(run=module.run, command=name)
    return top


class _Version(argparse.Action):
    """Looks up the version only on request: that reads files."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        from interlingua.translator.compiled import is_compiled

        build = " (compiled)" if is_compiled() else ""
        sys.stdout.write(f"interlingua {version('interlingua')}{build}\n")
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (default: that of the process) and return the exit code. Raises
    ``SystemExit`` for ``--help`` and for wrong usage, as argparse does."""
    if "_ARGCOMPLETE" in os.environ:
        from interlingua.translator.cli.completing import complete

        complete(parser())
    arguments = parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # the reader, such as `| head`, has closed the pipe: flushing at exit must not fail again
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nowhere, stream.fileno())
        return UNREAD
    except (RefusedError, NoAnswerError, OSError) as error:
        sys.stderr.write(f"{painted(f'interlingua {arguments.command}:', 'red', sys.stderr)} {error}\n")
        return 1 if isinstance(error, NoAnswerError) else 2
    except Exception as error:
        return _failed(error)
    leave(code)
    return code


def _failed(error: Exception) -> int:
    """Print an error of a server or of the configuration; raise any other error."""
    from interlingua.schemas import InferenceError
    from interlingua.translator.config.document import ConfigError

    if isinstance(error, InferenceError):
        sys.stderr.write(f"{painted(f'{error.code.name}:', 'red', sys.stderr)} {error.message}\n")
        return 1
    if isinstance(error, ConfigError):
        sys.stderr.write(f"{error}\n")
        return 2
    raise error
