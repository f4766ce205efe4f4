"""The Open Inference Protocol, version 2: as Triton, KServe, MLServer and OpenVINO Model Server speak it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from interlingua.protocols.dialect import Binding, Dialect
from interlingua.protocols.oip.capability import OVER_GRPC, OVER_HTTP
from interlingua.protocols.oip.client import (
    GRPC_CALLS,
    GRPC_KSERVE_CALLS,
    GRPC_MLSERVER_CALLS,
    HTTP_CALLS,
    HTTP_JSON_CALLS,
)
from interlingua.protocols.oip.codec import DIALECT_NAME
from interlingua.protocols.oip.flavors import QUIRKS, flavored_http_endpoints, grpc_endpoints
from interlingua.protocols.oip.manifest import MANIFEST
from interlingua.protocols.oip.server import GRPC_ENDPOINTS, http_endpoints, http_unmatched

_GRPC = Binding(
    DIALECT_NAME,
    "grpc",
    OVER_GRPC,
    GRPC_ENDPOINTS,
    GRPC_CALLS,
    contracts=(("interlingua.schemas.oip", "grpc_service.desc"), ("interlingua.schemas.oip", "health.desc")),
)

_HTTP_FLAVOR_CALLS = {"mlserver": HTTP_JSON_CALLS}
_GRPC_FLAVOR_CALLS = {"kserve": GRPC_KSERVE_CALLS, "mlserver": GRPC_MLSERVER_CALLS}


def _http(nonfinite: bool = False) -> Binding:
    """The dialect over HTTP; ``nonfinite`` as for ``http_endpoints``."""
    endpoints = http_endpoints(nonfinite)
    binding = Binding(
        DIALECT_NAME, "http", OVER_HTTP, endpoints, HTTP_CALLS, unmatched=http_unmatched, prefixes=("/v2",)
    )
    flavors = {
        name: replace(
            binding,
            endpoints=flavored_http_endpoints(endpoints, quirks),
            calls=_HTTP_FLAVOR_CALLS.get(name, HTTP_CALLS),
        )
        for name, quirks in QUIRKS.items()
    }
    return replace(binding, flavors=flavors)


def _configured(section: None, listener: Any) -> Dialect:
    if listener.nonfinite_json != "token":
        return DIALECT
    return replace(DIALECT, bindings={**DIALECT.bindings, "http": _http(nonfinite=True)})


DIALECT = Dialect.of(
    _http(),
    replace(
        _GRPC,
        flavors={
            name: replace(
                _GRPC,
                endpoints=grpc_endpoints(GRPC_ENDPOINTS, quirks),
                calls=_GRPC_FLAVOR_CALLS.get(name, GRPC_CALLS),
                contracts=(*_GRPC.contracts, *quirks.contracts),
            )
            for name, quirks in QUIRKS.items()
        },
    ),
    manifest=MANIFEST,
    configure=_configured,
)
