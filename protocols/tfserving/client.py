"""The calls to an upstream: a table for REST, one for its flavor ``kserve``, and one for gRPC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.tfserving import client_grpc, client_http, passthrough_http
from interlingua.protocols.tfserving.passthrough_grpc import PREDICT_CALL
from interlingua.schemas import Operation

Calls = Mapping[Operation, UpstreamCall[Any, Any]]

_PROBES: Calls = {
    Operation.LIVE: client_http.LIVE_CALL,
    Operation.READY: client_http.REACHABLE_CALL,
    Operation.SERVER_METADATA: client_http.SERVER_CALL,
    Operation.MODEL_READY: client_http.READY_CALL,
}

HTTP_CALLS: Calls = {
    **_PROBES,
    Operation.STATUS: client_http.STATUS_CALL,
    Operation.MODEL_METADATA: client_http.METADATA_CALL,
    Operation.INFER: passthrough_http.PREDICT_CALL,
}

KSERVE_CALLS: Calls = {
    **_PROBES,
    Operation.REPOSITORY_INDEX: client_http.LIST_CALL,
    Operation.INFER: client_http.ROWS_CALL,
}

GRPC_CALLS: Calls = {
    Operation.LIVE: client_grpc.ALIVE_CALL,
    Operation.READY: client_grpc.ALIVE_CALL,
    Operation.SERVER_METADATA: client_grpc.SERVER_CALL,
    Operation.MODEL_READY: client_grpc.READY_CALL,
    Operation.STATUS: client_grpc.STATUS_CALL,
    Operation.MODEL_METADATA: client_grpc.METADATA_CALL,
    Operation.INFER: PREDICT_CALL,
}
