"""KServe's Python server with one model of version 1 that returns its rows: prints its address and serves."""

from __future__ import annotations

import os
import sys
from typing import Any

import uvicorn
from kserve import Model, ModelServer

from benchmarks.cases import MODEL
from benchmarks.peers import free_ports


class Rows(Model):
    """Returns the rows of a request."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.ready = True

    async def predict(self, payload: Any, *rest: Any, **named: Any) -> dict[str, Any]:
        return {"predictions": payload["instances"]}


def main() -> None:
    """Serve on 127.0.0.1 until the process ends."""
    whole = uvicorn.Config.__init__

    def configured(self: Any, app: Any, **options: Any) -> None:
        whole(self, app, **{**options, "host": "127.0.0.1"})

    uvicorn.Config.__init__ = configured  # type: ignore[method-assign]
    (port,) = free_ports(1)
    sys.stdout.write(f"127.0.0.1:{port}\n")
    sys.stdout.flush()
    # a pipe that no process reads would fill up with the server's log
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    ModelServer(http_port=port, enable_grpc=False, workers=1).start([Rows(MODEL)])


if __name__ == "__main__":
    main()
