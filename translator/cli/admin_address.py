"""The connection of a command to the admin address of a running daemon."""

from __future__ import annotations

import argparse
import http.client
import socket
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from interlingua.translator.cli.arguments import NoAnswerError, RefusedError

if TYPE_CHECKING:
    from interlingua.protocols.transport.address import Address


def connection_of(arguments: argparse.Namespace, timeout: float) -> http.client.HTTPConnection:
    """A connection, not yet open. Raises ``RefusedError`` and ``ConfigError`` for invalid arguments."""
    return _of_config(arguments, timeout) if arguments.config else _of_url(arguments, timeout)


def answer(
    connection: http.client.HTTPConnection, method: str, path: str, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """Status and body of the answer to a request without a body. Raises ``NoAnswerError``."""
    try:
        connection.request(method, path, headers=headers or {})
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswerError(f"no answer from the admin address: {error}") from error


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
    context = _trusting(options.tls.cert)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return _connection(address, context, timeout)


def _of_url(arguments: argparse.Namespace, timeout: float) -> http.client.HTTPConnection:
    from interlingua.protocols.transport.address import Address, parse_address

    if arguments.admin.startswith("unix:"):
        return _connection(parse_address(arguments.admin), None, timeout)
    try:
        url = urlsplit(arguments.admin if "://" in arguments.admin else f"http://{arguments.admin}")
        host, port = url.hostname, url.port
    except ValueError:
        host = None
    if not host or url.scheme not in ("http", "https"):
        raise RefusedError(f"'{arguments.admin}' is not a URL such as http://127.0.0.1:8002")
    context = _trusting(arguments.ca) if url.scheme == "https" else None
    return _connection(Address(host, port or (443 if context is not None else 80)), context, timeout)


def _trusting(path: str | None) -> ssl.SSLContext:
    """TLS with the certificates of the file at ``path``, by default the system's. Raises ``RefusedError``."""
    try:
        return ssl.create_default_context(cafile=path)
    except OSError as error:
        raise RefusedError(f"'{path}' cannot be read as certificates: {error.strerror}") from error


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
