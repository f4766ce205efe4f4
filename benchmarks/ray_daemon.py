"""A daemon whose deployments answer Serve's HTTP proxy, too: the body of a request is the only input, raw.

``python -m benchmarks.ray_daemon FILE`` serves the configuration FILE; `benchmarks.ray` starts it."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from ray import serve
from starlette.requests import Request
from starlette.responses import Response

from interlingua.runtime.ray_serve import deployment
from interlingua.runtime.ray_serve.replica import Replica
from interlingua.schemas import InferRequest, RequestedOutput, Tensor
from interlingua.translator.cli import main


class HttpReplica(Replica):
    """A replica that the proxy can call."""

    async def __call__(self, request: Request) -> Response:
        body = await request.body()
        version = next(iter(self._models.values())).version("")
        (declared,), (output,) = version.signature.inputs, version.signature.outputs
        array = np.frombuffer(body, declared.datatype.dtype)
        tensor = Tensor.from_numpy(declared.name, array, declared.datatype)
        inference = InferRequest(self._name, (tensor,), (RequestedOutput(output.name),))
        answer = await version.answer(inference, (output.name,))
        return Response(bytes(answer.outputs[0].view), media_type="application/octet-stream")


def with_routes() -> None:
    """Have deployments use :class:`HttpReplica`, at a route with the name of the application."""
    run_many = serve.run_many

    def run(targets: list[Any], **options: Any) -> Any:
        routed = [serve.RunTarget(each.target, each.name, f"/{each.name}") for each in targets]
        return run_many(routed, **options)

    deployment.Replica = HttpReplica
    serve.run_many = run


if __name__ == "__main__":
    with_routes()
    sys.exit(main(["serve", "-c", sys.argv[1]]))
