"""The manifest of grps."""

from __future__ import annotations

from interlingua.protocols.grps.settings import GrpsOptions
from interlingua.protocols.grps.whole_request import HEADERS
from interlingua.protocols.manifest import Manifest, grpc_example

MANIFEST = Manifest(
    by_default=True,
    default_flavor="py",
    section=GrpsOptions,
    header_inputs=frozenset({HEADERS}),
    examples={
        "http": (
            "curl -s http://{url}/grps/v1/metadata/model -H 'Content-Type: application/json' "
            '-d \'{{"str_data": "{model}"}}\''
        ),
        "http+unix": "curl -s --unix-socket {path} http://localhost/grps/v1/metadata/server",
        "grpc": grpc_example(
            "grps",
            "grps.protos.v1.GrpsService/ModelMetadata",
            "grps.protos.v1.GrpsMessage",
            "grps.protos.v1.GrpsMessage",
            "str_data",
        ),
        "brpc": "curl -s http://{url}/GrpsBrpcService/CheckReadiness",
    },
)
