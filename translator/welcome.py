"""What ``serve`` prints once it listens: which dialect where, and a line to paste for each."""

from __future__ import annotations

from collections.abc import Sequence

from protocols.transport.address import Address
from translator.config.options import Config, ListenerOptions

Bound = Sequence[tuple[ListenerOptions, Address]]

_LINES = {
    ("oip", "http"): "curl -s http://{url}/v2/models/{model}",
    ("oip", "grpc"): (
        'python -c "import tritonclient.grpc as t; '
        "print(t.InferenceServerClient('{url}').get_model_metadata('{model}'))\""
    ),
    ("graphpipe", "http"): (
        'python -c "from graphpipe import remote; '
        "print(remote.get_input_names('http://{url}/graphpipe/{model}'))\""
    ),
    ("graphpipe", "http+unix"): "curl -s --unix-socket {path} http://localhost/graphpipe/{model}",
    ("oip", "http+unix"): "curl -s --unix-socket {path} http://localhost/v2/models/{model}",
    ("trtis", "http"): "curl -s http://{url}/api/status/{model}",
    ("trtis", "http+unix"): "curl -s --unix-socket {path} http://localhost/api/status/{model}",
    ("trtis", "grpc"): (
        "python -c \"import grpc; from schemas.trtis import MESSAGES as M; p = 'nvidia.inferenceserver.'; "
        "call = grpc.insecure_channel('{url}').unary_unary(f'/{{p}}GRPCService/Status'); "
        "ask = M[p + 'StatusRequest'](model_name='{model}').SerializeToString(); "
        "print(M[p + 'StatusResponse'].FromString(call(ask)))\""
    ),
    ("grps", "http"): (
        "curl -s http://{url}/grps/v1/metadata/model -H 'Content-Type: application/json' "
        '-d \'{{"str_data": "{model}"}}\''
    ),
    ("grps", "http+unix"): "curl -s --unix-socket {path} http://localhost/grps/v1/metadata/server",
    ("grps", "grpc"): (
        "python -c \"import grpc; from schemas.grps import MESSAGES as M; p = 'grps.protos.v1.'; "
        "call = grpc.insecure_channel('{url}').unary_unary(f'/{{p}}GrpsService/ModelMetadata'); "
        "ask = M[p + 'GrpsMessage'](str_data='{model}').SerializeToString(); "
        "print(M[p + 'GrpsMessage'].FromString(call(ask)).str_data)\""
    ),
    ("graphpipe", "tcp"): (
        "python -c \"import socket; s = socket.create_connection(('{url.host}', {url.port})); "
        "s.sendall(bytes.fromhex('200000001000000008000c0008000400040004000c000000080000000200000010000000')); "
        'print(s.recv(65536))"'
    ),
    ("grps", "brpc"): "curl -s http://{url}/GrpsBrpcService/CheckReadiness",
}
"""A line to paste, by dialect and transport, with `+unix` where that goes over a unix socket. The bytes for
GraphPipe over tcp ask for the metadata."""


def welcome(config: Config, listening: Bound, operators: Address | None = None) -> str:
    """The text for standard output, with real addresses in it; ``operators`` is that of theirs."""
    lines = [f"{config.server.name} is serving."]
    for options, address in listening:
        model = options.default_model or config.default_model or next(iter(config.models), "MODEL")
        place = f"{options.transport}+unix" if address.path else options.transport
        for dialect in options.dialects:
            lines.append(f"  {dialect:10} {options.transport:5} {address}")
            line = _LINES.get((dialect, place))
            if line is not None:
                lines.append("      " + line.format(url=address, path=address.path, model=model))
    if operators is not None:
        lines.append(f"  {'operators':10} http  {operators}")
        if not operators.path:
            lines.append(f"      http://{operators}/ for people, http://{operators}/metrics for Prometheus")
    return "\n".join(lines) + "\n"
