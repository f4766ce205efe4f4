"""An input is NAME=@file.npy or NAME=JSON, nested as its shape, batch included; an empty NAME means the
model's input at that position. JSON values get the datatype of the model's metadata."""

from __future__ import annotations

import argparse
import sys

HELP = "send one inference request to any server, in any dialect"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``infer``."""
    add = parser.add_argument
    add("--dialect", required=True, metavar="D", help="the server's dialect, such as oip or graphpipe")
    add("--transport", required=True, metavar="T", help="its transport: http, grpc, brpc or tcp")
    add("--url", required=True, metavar="U", help="host:port, http://host:port/prefix or unix:path")
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
    from interlingua.schemas import InferenceError
    from interlingua.translator.cli.ask import ask
    from interlingua.translator.cli.values import RefusedError, as_json, as_text, write_npz

    try:
        response = loop.run(ask(arguments))
        if arguments.npz:
            write_npz(arguments.npz, response)
        else:
            sys.stdout.write(as_json(response) if arguments.json else as_text(response))
    except InferenceError as error:
        sys.stderr.write(f"{error.code.name}: {error.message}\n")
        return 1
    except (RefusedError, OSError) as error:
        sys.stderr.write(f"interlingua infer: {error}\n")
        return 2
    return 0
