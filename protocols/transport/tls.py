"""TLS contexts of listeners and upstreams, made from files and made again when the files change."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from interlingua.protocols.transport.certificates import (
    Certificate,
    NamePatterns,
    alternative_names,
    subject_of,
)
from interlingua.protocols.watched_files import WatchedFiles, reason_of

Version = Literal["1.2", "1.3"]


class Alpn(NamedTuple):
    """The protocols of ALPN (RFC 7301) for a transport, the preferred one first: what a ``listener`` speaks,
    and what a client of an ``upstream`` does."""

    listener: tuple[str, ...] = ()
    upstream: tuple[str, ...] = ()


_BOTH = ("h2", "http/1.1")

ALPN: Mapping[str, Alpn] = {
    "http": Alpn(_BOTH, ("http/1.1",)),
    "grpc": Alpn(("h2",), ("h2",)),
    "brpc": Alpn(_BOTH),
    "tcp": Alpn(),
    "any": Alpn(_BOTH),
}
"""By transport. baidu_std and framed messages have no protocol of ALPN."""

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_CLIENTS = {"none": ssl.CERT_NONE, "request": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True)
class ServerTls:
    """TLS of a listener. ``client`` is whether clients need a certificate, of an authority in ``client_ca``;
    ``ciphers`` are those of TLS 1.2 in OpenSSL's notation, empty for OpenSSL's choice; ``protocols`` are
    those of ALPN (RFC 7301), the preferred one first. A certificate must match a pattern of each list that
    has any: ``match_subjects`` and ``match_subject_alt_names``."""

    cert: str
    key: str
    client_ca: str = ""
    client: Literal["none", "request", "require"] = "none"
    min_version: Version = "1.2"
    ciphers: str = ""
    protocols: tuple[str, ...] = ()
    match_subjects: tuple[str, ...] = ()
    match_subject_alt_names: tuple[str, ...] = ()

    def files(self) -> Sequence[str]:
        """The files that a context is made of."""
        return [path for path in (self.cert, self.key, self.client_ca) if path]

    def accepts(self, certificate: Certificate) -> bool:
        """Whether a client with a verified ``certificate`` is accepted; one without any is."""
        return not certificate or (
            NamePatterns(self.match_subjects).match([subject_of(certificate)])
            and NamePatterns(self.match_subject_alt_names).match(alternative_names(certificate))
        )

    def context(self) -> ssl.SSLContext:
        """A context of what the files have now. Raises ``OSError`` that names the file, and ``SSLError``."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _restrict(made, self.min_version, self.ciphers, self.protocols)
        # one handshake costs more than a request: a client shall not repeat it (RFC 5746 has no bound)
        made.options |= ssl.OP_NO_RENEGOTIATION
        _load(made.load_cert_chain, self.cert, self.key)
        made.verify_mode = _CLIENTS[self.client]
        if self.client_ca:
            _load(made.load_verify_locations, self.client_ca)
        return made


@dataclass(frozen=True, slots=True)
class ClientTls:
    """TLS to an upstream, whose certificate must be for ``server_name``, if that is not empty, else for its
    host. ``ca`` has the authorities, if it is not empty, else the system; ``cert`` and ``key`` identify this
    client."""

    ca: str = ""
    cert: str = ""
    key: str = ""
    server_name: str = ""
    min_version: Version = "1.2"
    protocols: tuple[str, ...] = ()

    def files(self) -> Sequence[str]:
        """The files that a context is made of."""
        return [path for path in (self.ca, self.cert, self.key) if path]

    def context(self) -> ssl.SSLContext:
        """A context of what the files have now. Raises as that of :class:`ServerTls`."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _restrict(made, self.min_version, "", self.protocols)
        if self.ca:
            _load(made.load_verify_locations, self.ca)
        else:
            made.load_default_certs()
        if self.cert:
            _load(made.load_cert_chain, self.cert, self.key or self.cert)
        return made


def _restrict(made: ssl.SSLContext, minimum: Version, ciphers: str, protocols: Sequence[str]) -> None:
    made.minimum_version = _VERSIONS[minimum]
    if ciphers:
        made.set_ciphers(ciphers)
    if protocols:
        made.set_alpn_protocols(list(protocols))


def _load(load: Callable[..., None], *paths: str) -> None:
    """Load files of a context. Raises ``OSError`` and ``SSLError`` that name them."""
    for path in paths:
        with open(path, "rb"):  # ssl does not name the file that it cannot open
            pass
    try:
        load(*paths)
    except ssl.SSLError as error:
        raise ssl.SSLError(f"{' and '.join(paths)} cannot be used: {reason(error)}") from error


class TlsContext:
    """The context of ``options``, as new as their files. Raises ``OSError`` and ``SSLError`` at once for
    files that are not usable."""

    def __init__(self, options: ServerTls | ClientTls) -> None:
        self.options = options
        self._context = WatchedFiles(options.files(), options.context, "certificate", reason)

    def current(self) -> ssl.SSLContext:
        """The context for a new connection."""
        return self._context.current()


def reason(error: Exception) -> str:
    """The text of an error of TLS or of its files, without what repeats it."""
    if isinstance(error, ssl.SSLError):
        short = getattr(error, "reason", None)  # only OpenSSL's own errors have it
        return short.replace("_", " ").lower() if short else str(error.args[-1])
    return reason_of(error)
