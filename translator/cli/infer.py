"""An input is NAME=VALUE. A value is JSON nested as its shape, batch included; text; or @FILE: .npy, .npz,
an image, JSON, CSV or text, and @- is standard input. An empty NAME means the model's input at that position,
and @FILE alone has all inputs. Values get the datatypes of the model's metadata."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from interlingua.translator.cli.arguments import Pixels, RefusedError, count, pixels, positive

if TYPE_CHECKING:
    from interlingua.schemas import InferResponse

HELP = "send inference requests to any server, in any dialect"

URL = "127.0.0.1:8000"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--url",
        default=URL,
        metavar="U",
        help=f"host:port, http://host:port/prefix or unix:path (default: {URL})",
    )
    add("--dialect", metavar="D", help="the server's dialect, such as oip (default: detected)")
    add("--transport", metavar="T", help="its transport: http, grpc, brpc or tcp (default: detected)")
    add("--model", required=True, metavar="M", help='the model; "" if the server has only one')
    add("--version", default="", metavar="V", help="its version (default: the server chooses)")
    add("--input", action="append", default=[], metavar="NAME=VALUE", dest="inputs", help="an input tensor")
    add("--output", action="append", metavar="NAME", dest="outputs", help="an output (default: all)")
    add("--signature", metavar="FILE", help="signature of the model (YAML), if the server has none")
    add(
        "--pixels",
        type=pixels,
        default=Pixels(),
        metavar="A:B",
        help="black and white of images (default: 0:255)",
    )
    add("--id", default="", metavar="ID", help="the id of the request")
    add("--parameter", action="append", default=[], metavar="K=V", dest="parameters", help="a parameter")
    add("--classes", type=count, default=0, metavar="N", help="the N highest values of each output instead")
    add("--sequence", metavar="ID", help="the id of a sequence; a number, or else text")
    add("--sequence-start", action="store_true", help="this request starts the sequence")
    add("--sequence-end", action="store_true", help="this request ends the sequence")
    add(
        "--header",
        action="append",
        default=[],
        metavar="'K: V'",
        dest="headers",
        help="a header of each call",
    )
    add("--ca", metavar="FILE", help="TLS with these authorities; https URLs need none")
    add("--timeout-secs", type=positive, default=60.0, metavar="S", help="for each request (default: 60)")
    times = parser.add_mutually_exclusive_group()
    times.add_argument("--stream", action="store_true", help="print the responses of a stream as they arrive")
    times.add_argument(
        "-n", type=count, default=1, metavar="N", dest="times", help="send it N times, with timing"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print each answer as one line of JSON")
    form.add_argument("--npz", metavar="FILE", help="write the outputs to an .npz file instead")
    form.add_argument("-o", metavar="FILE", dest="file", help="write it to .npy, .npz, .json or .png instead")


def run(arguments: argparse.Namespace) -> int:
    """Send the requests and print the answers. Returns 1 if the server returned an error or no answer."""
    from interlingua.protocols.transport import loop
    from interlingua.translator.cli.results import check_file

    file = arguments.npz or arguments.file
    if file:
        if arguments.stream:
            raise RefusedError("a stream has any number of answers: a file has one")
        if not arguments.npz:
            check_file(file)
    loop.run(_stream(arguments) if arguments.stream else _repeat(arguments))
    return 0


async def _stream(arguments: argparse.Namespace) -> None:
    from interlingua.translator.cli.exchange import exchange

    async with exchange(arguments) as request:
        async for response in request.stream():
            _print(response, arguments.json)


async def _repeat(arguments: argparse.Namespace) -> None:
    from interlingua.translator.cli.exchange import exchange
    from interlingua.translator.cli.results import as_document, timing_lines, write_file
    from interlingua.translator.cli.values import write_npz

    secs: list[float] = []
    async with exchange(arguments) as request:
        for _ in range(arguments.times):
            began = time.perf_counter()
            response = await request.once()
            secs.append(time.perf_counter() - began)
    if arguments.npz:
        write_npz(arguments.npz, response)
    elif arguments.file:
        write_file(arguments.file, response)
    elif arguments.json and arguments.times > 1:
        sys.stdout.write(as_document(response, secs))
        return
    else:
        _print(response, arguments.json)
    if arguments.times > 1:
        sys.stdout.flush()
        sys.stderr.writelines(f"{line}\n" for line in timing_lines(secs))


def _print(response: InferResponse, json: bool) -> None:
    from interlingua.translator.cli.values import as_json, as_text

    sys.stdout.write(as_json(response) if json else as_text(response))
    sys.stdout.flush()
