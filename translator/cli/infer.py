"""An input is NAME=@file.npy or NAME=JSON, nested as its shape, batch included; an empty NAME means the
model's input at that position. JSON values get the datatype of the model's metadata."""

from __future__ import annotations

import argparse
import sys

from interlingua.translator.cli.arguments import add_server

HELP = "send one inference request to any server, in any dialect"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_server(parser)
    add("--model", required=True, metavar="M", help='the model; "" if the server has only one')
    add("--version", default="", metavar="V", help="its version (default: the server chooses)")
    add("--input", action="append", default=[], metavar="NAME=VALUE", dest="inputs", help="an input tensor")
    add("--output", action="append", metavar="NAME", dest="outputs", help="an output (default: all)")
    add("--timeout-secs", type=float, default=60.0, metavar="S", help="for the whole exchange (default: 60)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the answer as one line of JSON")
    form.add_argument("--npz", metavar="FILE", help="write the outputs to an .npz file instead")


def run(arguments: argparse.Namespace) -> int:
    """Send the request and print the answer. Returns 1 if the server returned an error or no answer."""
    from interlingua.protocols.transport import loop
    from interlingua.translator.cli.ask import ask
    from interlingua.translator.cli.values import as_json, as_text, write_npz

    response = loop.run(ask(arguments))
    if arguments.npz:
        write_npz(arguments.npz, response)
    else:
        sys.stdout.write(as_json(response) if arguments.json else as_text(response))
    return 0
