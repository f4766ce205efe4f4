"""What ``serve`` prints once it listens: which dialect where, and a line to paste for each."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Collection, Iterable, Sequence

from interlingua.protocols.transport.address import Address
from interlingua.translator.config.options import Config, ListenerOptions

Bound = Sequence[tuple[ListenerOptions, Address]]


def _grpc(dialect: str, method: str, asked: str, answered: str, member: str) -> str:
    """A call with no more than what this program brings along: ``asked`` has the model in ``member``."""
    return (
        f'{{python}} -c "import grpc; from interlingua.schemas.{dialect} import MESSAGES as M; '
        f"call = grpc.insecure_channel('{{url}}').unary_unary('/{method}'); "
        f"ask = M['{asked}']({member}='{{model}}').SerializeToString(); "
        f"print(M['{answered}'].FromString(call(ask)))\""
    )


_LINES = {
    ("oip", "http"): "curl -s http://{url}/v2/models/{model}",
    ("oip", "http+unix"): "curl -s --unix-socket {path} http://localhost/v2/models/{model}",
    ("oip", "grpc"): _grpc(
        "oip",
        "inference.GRPCInferenceService/ModelMetadata",
        "inference.ModelMetadataRequest",
        "inference.ModelMetadataResponse",
        "name",
    ),
    ("graphpipe", "http"): "curl -s http://{url}/graphpipe/{model}",
    ("graphpipe", "http+unix"): "curl -s --unix-socket {path} http://localhost/graphpipe/{model}",
    ("graphpipe", "tcp"): (
        "{python} -c \"import socket; s = socket.create_connection(('{url.host}', {url.port})); "
        "s.sendall(bytes.fromhex("
        "'200000001000000008000c0008000400040004000c000000080000000200000010000000')); "
        'print(s.recv(65536))"'
    ),
    ("trtis", "http"): "curl -s http://{url}/api/status/{model}",
    ("trtis", "http+unix"): "curl -s --unix-socket {path} http://localhost/api/status/{model}",
    ("trtis", "grpc"): _grpc(
        "trtis",
        "nvidia.inferenceserver.GRPCService/Status",
        "nvidia.inferenceserver.StatusRequest",
        "nvidia.inferenceserver.StatusResponse",
        "model_name",
    ),
    ("grps", "http"): (
        "curl -s http://{url}/grps/v1/metadata/model -H 'Content-Type: application/json' "
        '-d \'{{"str_data": "{model}"}}\''
    ),
    ("grps", "http+unix"): "curl -s --unix-socket {path} http://localhost/grps/v1/metadata/server",
    ("grps", "grpc"): _grpc(
        "grps",
        "grps.protos.v1.GrpsService/ModelMetadata",
        "grps.protos.v1.GrpsMessage",
        "grps.protos.v1.GrpsMessage",
        "str_data",
    ),
    ("grps", "brpc"): "curl -s http://{url}/GrpsBrpcService/CheckReadiness",
}
"""A line to paste, by dialect and transport, with `+unix` where that goes over a unix socket. Each works
where this program is installed, without any client. The bytes for GraphPipe over tcp ask for the metadata."""


def welcome(
    config: Config,
    listening: Bound,
    operators: Address | None = None,
    models: Collection[str] = (),
    failed: Collection[str] = (),
) -> str:
    """The text for a terminal, with real addresses in it; ``operators`` is that of theirs. The lines ask for
    a default model, else for one of the configuration, else for one of ``models``, which are served; never
    for one of ``failed``, which could not be loaded."""
    lines = [f"{config.server.name} is {serving(models, failed)}."]
    if failed:
        lines.append(f"  not loaded: {', '.join(sorted(failed))}")
    python = _python()
    for options, address in listening:
        default = options.default_model or config.default_model
        model = _first((*((default,) if default else ()), *config.models, *models), failed)
        place = f"{options.transport}+unix" if address.path else options.transport
        for dialect in options.dialects:
            lines.append(f"  {dialect:10} {options.transport:5} {address}")
            line = _LINES.get((dialect, place), "")
            # a message over tcp names no model: the default one answers
            unanswered = default in failed if options.transport == "tcp" else not model and "{model}" in line
            if line and not unanswered:
                lines.append(
                    "      " + line.format(python=python, url=address, path=address.path, model=model)
                )
    if operators is not None:
        lines.append(f"  {'operators':10} http  {operators}")
        if not operators.path:
            lines.append(f"      http://{operators}/ for people, http://{operators}/metrics for Prometheus")
    return "\n".join(lines) + "\n"


def serving(models: Collection[str], failed: Collection[str]) -> str:
    """How many of its models a server serves, in words."""
    return f"serving {len(models)} of {len(models) + len(failed)} models" if failed else "serving"


def _first(names: Iterable[str], failed: Collection[str]) -> str:
    """The first of ``names`` that is there; empty where all have ``failed``."""
    found = next((name for name in names if name not in failed), "")
    return found if found or failed else "MODEL"


def _python() -> str:
    """This interpreter, in as few letters as a shell in this directory finds it by."""
    if shutil.which("python") == sys.executable:
        return "python"
    near = os.path.relpath(sys.executable)
    return shlex.quote(sys.executable if near.startswith(os.pardir) else near)
