"""The connection of a command to the admin address of a running daemon."""

from __future__ import annotations

import argparse
import http.client
import socket
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from interlingua.translator.cli.arguments import RefusedError

if TYPE_CHECKING:
    from interlingua.protocols.transport.address import Address


def add_admin(parser: argparse.ArgumentParser, default: str = "") -> None:
    """The options that state the address; ``default`` is that without any, which is an error if empty."""
    where = parser.add_mutually_exclusive_group(required=not default)
    where.add_argument(
        "-c", "--config", metavar="FILE", help="the file of the daemon, with its admin address"
    )
    shown = f" (default: {default})" if default else ", such as http://127.0.0.1:8002"
    where.add_argument("--admin", metavar="URL", default=default or None, help=f"the admin address{shown}")
    parser.add_argument(
        "--ca", metavar="FILE", help="with an https URL: the authorities (default: the system's)"
    )


def connection_of(arguments: argparse.Namespace, timeout: float) -> http.client.HTTPConnection:
    """A connection, not yet open. Raises ``RefusedError`` and ``ConfigError`` for invalid arguments."""
    return _of_config(arguments, timeout) if arguments.config else _of_url(arguments, timeout)


def _of_config(arguments: argparse.Namespace, timeout: float) -> http.client.HTTPConnection:
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
        return _connection(address, None, timeout)
    # the certificate itself is known, so its name does not matter
    context = ssl.create_default_context(cafile=options.tls.cert)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return _connection(address, context, timeout)


def _of_url(arguments: argparse.Namespace, timeout: float) -> http.client.HTTPConnection:
    from interlingua.protocols.transport.address import Address, parse_address

    if arguments.admin.startswith("unix:"):
        return _connection(parse_address(arguments.admin), None, timeout)
    url = urlsplit(arguments.admin if "://" in arguments.admin else f"http://{arguments.admin}")
    if url.scheme not in ("http", "https") or not url.hostname:
        raise RefusedError(f"'{arguments.admin}' is not a URL such as http://127.0.0.1:8002")
    context = ssl.create_default_context(cafile=arguments.ca) if url.scheme == "https" else None
    port = url.port or (443 if context is not None else 80)
    return _connection(Address(url.hostname, port), context, timeout)


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
