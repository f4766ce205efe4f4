"""Bash: source <(interlingua completion bash) in ~/.bashrc. Zsh: the same with zsh, after compinit, in
~/.zshrc. Fish: interlingua completion fish -o ~/.config/fish/completions/interlingua.fish"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HELP = "print a script that completes commands in a shell"

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=" or ".join(SHELLS))
    parser.add_argument("-o", "--output", metavar="FILE", help="write it here (default: standard output)")


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    import argcomplete

    script = argcomplete.shellcode(["interlingua"], shell=arguments.shell)
    if arguments.output is None:
        sys.stdout.write(script)
    else:
        Path(arguments.output).write_text(script, encoding="utf-8")
    return 0
