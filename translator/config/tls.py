"""The options of TLS: of listeners and the admin address, and of upstreams."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from interlingua.protocols.section import Section, Text
from interlingua.protocols.transport.tls import ClientTls, ServerTls, Version, reason


class ListenerTlsOptions(Section):
    """TLS of a listener or of the admin address. The files are PEM; changed ones are used for new connections
    within a second."""

    cert: Text
    """The file with the certificate, and those that lead to its authority."""
    key: Text
    """The file with the private key, which has no password."""
    client_ca: Text | None = None
    """The file with the authorities of clients' certificates."""
    client: Literal["none", "request", "require"] = "none"
    """Whether clients present a certificate: never, if they have one, always. One of another authority is
    refused."""
    match_subject_alt_names: tuple[Text, ...] = ()
    """The clients whose certificates are accepted, by a DNS name, URI, IP address or mail address in the
    certificate; `*` is any text, as in `spiffe://example.org/*`. Others are closed after the handshake. The
    default is every client of `client_ca`."""
    match_subjects: tuple[Text, ...] = ()
    """The same by the subject, such as `CN=trainer,O=Example`. With both lists both must match."""
    min_version: Version = "1.2"
    """The oldest version of TLS."""
    ciphers: Text | None = None
    """The ciphers of TLS 1.2, in OpenSSL's notation. The default is OpenSSL's."""

    @model_validator(mode="after")
    def _usable(self) -> ListenerTlsOptions:
        if (self.client == "none") != (self.client_ca is None):
            raise ValueError("client_ca and client: request or require go together")
        if self.client_ca is None and (self.match_subject_alt_names or self.match_subjects):
            raise ValueError("match_subject_alt_names and match_subjects need client_ca")
        _try(self.build(()))
        return self

    def build(self, protocols: tuple[str, ...]) -> ServerTls:
        """What the transport takes; ``protocols`` are those of ALPN."""
        return ServerTls(
            self.cert,
            self.key,
            self.client_ca or "",
            self.client,
            self.min_version,
            self.ciphers or "",
            protocols,
            self.match_subjects,
            self.match_subject_alt_names,
        )


class UpstreamTlsOptions(Section):
    """TLS to the servers of an upstream. The files are PEM; changed ones are used for new connections within
    a second."""

    ca: Text | None = None
    """The file with the authorities of the servers' certificates. The default is the system's."""
    cert: Text | None = None
    """The file with the certificate of this client."""
    key: Text | None = None
    """The file with its private key. The default is the file of `cert`."""
    server_name: Text | None = None
    """The name that certificates must be for. The default is the host in the URL."""
    min_version: Version = "1.2"
    """The oldest version of TLS."""

    @model_validator(mode="after")
    def _usable(self) -> UpstreamTlsOptions:
        if self.key is not None and self.cert is None:
            raise ValueError("key needs cert")
        _try(self.build(()))
        return self

    def build(self, protocols: tuple[str, ...]) -> ClientTls:
        """What the transport takes; ``protocols`` are those of ALPN."""
        return ClientTls(
            self.ca or "",
            self.cert or "",
            self.key or "",
            self.server_name or "",
            self.min_version,
            protocols,
        )


def _try(options: ServerTls | ClientTls) -> None:
    try:
        options.context()
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise ValueError(reason(error)) from error
