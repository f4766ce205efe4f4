"""What a user would write instead: aiohttp takes requests of TRTIS, tritonclient makes gRPC calls.

The one model is known in advance: no header of TRTIS is parsed.
``python -m benchmarks.bridging.tritonclient_bridge UPSTREAM`` prints the address.
"""

from __future__ import annotations

import asyncio
import sys

import numpy as np
import tritonclient.grpc.aio as triton
from aiohttp import web

from benchmarks.cases import MODEL
from interlingua.protocols.transport import loop


async def application(upstream: str) -> web.Application:
    """The bridge; a connection to ``upstream`` serves all its requests."""
    client = triton.InferenceServerClient(upstream)

    async def infer(request: web.Request) -> web.Response:
        body = np.frombuffer(await request.read(), np.float32).reshape(1, -1)
        tensor = triton.InferInput("INPUT0", list(body.shape), "FP32")
        tensor.set_data_from_numpy(body)
        answer = await client.infer(MODEL, [tensor])
        return web.Response(body=answer.as_numpy("OUTPUT0").tobytes(), headers={"NV-Status": "code: SUCCESS"})

    bridge = web.Application(client_max_size=1 << 30)
    bridge.router.add_post("/api/infer/{model}", infer)
    return bridge


async def main(upstream: str) -> None:
    """Serve until the process is ended."""
    runner = web.AppRunner(await application(upstream), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sys.stdout.write("{}:{}\n".format(*runner.addresses[0][:2]))
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    loop.run(main(sys.argv[1]))
