"""What sends spans to a collector, by the protocol of OTLP. This module imports the extra ``otlp``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import overload

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import SpanExporter
from requests.auth import AuthBase

from interlingua.runtime.upstream.header_file import HeaderFile
from interlingua.translator.config.tracing import Protocol

Headers = Mapping[str, HeaderFile]
"""The files with the values of headers, which may change while the server runs."""


def over_http(url: str, headers: Headers) -> SpanExporter:
    session = requests.Session()
    session.auth = _Authentication(headers)
    return OTLPSpanExporter(endpoint=url, session=session)


def over_grpc(url: str, headers: Headers) -> SpanExporter:
    # imports grpcio
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter

    exporter: SpanExporter = GrpcSpanExporter(endpoint=url, headers=_Metadata(headers) if headers else None)
    return exporter


SENDERS: Mapping[Protocol, Callable[[str, Headers], SpanExporter]] = {
    "http/protobuf": over_http,
    "grpc": over_grpc,
}


class _Authentication(AuthBase):
    """Adds headers to a request."""

    def __init__(self, headers: Headers) -> None:
        self._headers = headers

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers.update({name: file.value() for name, file in self._headers.items()})
        return request


class _Metadata(Sequence[tuple[str, str]]):
    """The metadata of a call, read when the call is made."""

    def __init__(self, headers: Headers) -> None:
        self._headers = headers

    def __len__(self) -> int:
        return len(self._headers)

    @overload
    def __getitem__(self, index: int) -> tuple[str, str]: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[str, str]]: ...

    def __getitem__(self, index: int | slice) -> tuple[str, str] | Sequence[tuple[str, str]]:
        return tuple(self)[index]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((name, file.value()) for name, file in self._headers.items())
