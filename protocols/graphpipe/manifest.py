"""The manifest of GraphPipe."""

from __future__ import annotations

from interlingua.protocols.graphpipe.settings import GraphpipeListenerOptions
from interlingua.protocols.manifest import Manifest

MANIFEST = Manifest(
    by_default=True,
    title="GraphPipe",
    listener=GraphpipeListenerOptions,
    examples={
        "http": "curl -s http://{url}/graphpipe/{model}",
        "http+unix": "curl -s --unix-socket {path} http://localhost/graphpipe/{model}",
        # a request for the metadata, with its size before it
        "tcp": (
            "{python} -c \"import socket; s = socket.create_connection(('{url.host}', {url.port})); "
            "s.sendall(bytes.fromhex("
            "'200000001000000008000c0008000400040004000c000000080000000200000010000000')); "
            'print(s.recv(65536))"'
        ),
    },
)
