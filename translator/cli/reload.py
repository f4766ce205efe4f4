"""The daemon reads its file again and applies all of it, or nothing; docs/operations.md has the rules. Prints
what has changed, or why nothing has. Exit codes: 0 reloaded, 1 refused or no answer, 2 wrong usage."""

from __future__ import annotations

import argparse
import http.client
import socket
import ssl
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from interlingua.translator.cli.arguments import RefusedError, positive

if TYPE_CHECKING:
    from interlingua.protocols.transport.address import Address

HELP = "reload the configuration of a running daemon"

_PATH = "/reload"
_ANSWERS = (200, 422)
"""Those with a document."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "-c", "--config", metavar="FILE", help="the file of the daemon, with its admin address"
    )
    where.add_argument("--admin", metavar="URL", help="the admin address, such as http://127.0.0.1:8002")
    add("--ca", metavar="FILE", help="with an https URL: the authorities (default: the system's)")
    add("--timeout-secs", type=positive, default=300.0, metavar="S", help="for the answer (default: 300)")
    add("--json", action="store_true", help="print the answer as one line of JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the answer of the daemon. Returns 1 if it has refused the reload, or does not answer."""
    import orjson

    from interlingua.translator.reload.outcome import lines

    connection = _of_config(arguments) if arguments.config else _of_url(arguments)
    try:
        connection.request("POST", _PATH, headers={"Content-Length": "0"})
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException) as error:
        sys.stderr.write(f"interlingua reload: no answer from the admin address: {error}\n")
        return 1
    finally:
        connection.close()
    if answer.status not in _ANSWERS:
        sys.stderr.write(
            f"interlingua reload: status {answer.status}: {body.decode(errors='replace').strip()}\n"
        )
        return 1
    document: dict[str, Any] = orjson.loads(body)
    shown = [orjson.dumps(document).decode()] if arguments.json else lines(document)
    stream = sys.stdout if document["reloaded"] or arguments.json else sys.stderr
    stream.writelines(f"{line}\n" for line in shown)
    return 0 if document["reloaded"] else 1


def _of_config(arguments: argparse.Namespace) -> http.client.HTTPConnection:
    """A connection to the admin address in the file."""
    from interlingua.protocols.transport.address import parse_address
    from interlingua.translator.config import load

    options = load(arguments.config).admin
    if options is None:
        raise RefusedError(f"{arguments.config} has no admin address; send SIGHUP to the daemon instead")
    address = parse_address(options.listen)
    if not address.path and not address.port:
        raise RefusedError("the admin address has port 0: state it with --admin")
    if options.tls is None:
        return _connection(address, None, arguments.timeout_secs)
    # the certificate itself is known, so its name does not matter
    context = ssl.create_default_context(cafile=options.tls.cert)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return _connection(address, context, arguments.timeout_secs)


def _of_url(arguments: argparse.Namespace) -> http.client.HTTPConnection:
    from interlingua.protocols.transport.address import Address, parse_address

    if arguments.admin.startswith("unix:"):
        return _connection(parse_address(arguments.admin), None, arguments.timeout_secs)
    url = urlsplit(arguments.admin if "://" in arguments.admin else f"http://{arguments.admin}")
    if url.scheme not in ("http", "https") or not url.hostname:
        raise RefusedError(f"'{arguments.admin}' is not a URL such as http://127.0.0.1:8002")
    context = ssl.create_default_context(cafile=arguments.ca) if url.scheme == "https" else None
    port = url.port or (443 if context is not None else 80)
    return _connection(Address(url.hostname, port), context, arguments.timeout_secs)


def _connection(
    address: Address, context: ssl.SSLContext | None, timeout: float
) -> http.client.HTTPConnection:
    if address.path:
        return _UnixConnection(address.path, timeout)
    # a daemon that listens on every interface is on this machine, too
    host = "127.0.0.1" if address.host in ("", "0.0.0.0") else "::1" if address.host == "::" else address.host
    if context is not None:
        return http.client.HTTPSConnection(host, address.port, timeout=timeout, context=context)
    return http.client.HTTPConnection(host, address.port, timeout=timeout)


class _UnixConnection(http.client.HTTPConnection):
    """A connection over the unix socket at ``path``."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
