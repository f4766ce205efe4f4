"""KServe's REST and gRPC clients before a server: ``oip_kserve_client.py HTTP_ADDRESS GRPC_ADDRESS``.

A process of its own, since KServe's messages clash with those of tritonclient. It ends with an exception
where an answer is wrong.
"""

from __future__ import annotations

import asyncio
import sys

import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest
from kserve.inference_client import RESTConfig

A = np.arange(16, dtype=np.int32)[None]
B = np.full((1, 16), 5, np.int32)


def request(binary: bool) -> InferRequest:
    inputs = []
    for name, array in (("INPUT0", A), ("INPUT1", B)):
        given = InferInput(name, list(array.shape), "INT32")
        given.set_data_from_numpy(array, binary_data=binary)
        inputs.append(given)
    return InferRequest("simple", inputs, request_id="k")


def check(answer: object) -> None:
    outputs = {each.name: each.as_numpy() for each in answer.outputs}  # type: ignore[attr-defined]
    assert (outputs["OUTPUT0"] == A + B).all() and (outputs["OUTPUT1"] == A - B).all()
    assert answer.model_name == "simple" and answer.id == "k"  # type: ignore[attr-defined]


async def rest(url: str) -> None:
    async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
        assert await client.is_server_live(url) is True
        assert await client.is_server_ready(url) is True
        assert await client.is_model_ready(url, "simple") is True
        assert await client.is_model_ready(url, "nothing_like_it") is False
        for binary in (True, False):
            check(await client.infer(url, request(binary), model_name="simple"))


async def rpc(address: str) -> None:
    async with InferenceGRPCClient(address) as client:
        assert await client.is_server_live() is True
        assert await client.is_server_ready() is True
        assert await client.is_model_ready("simple") is True
        assert await client.is_model_ready("nothing_like_it") is False
        for binary in (True, False):
            check(await client.infer(request(binary)))


if __name__ == "__main__":
    asyncio.run(rest(f"http://{sys.argv[1]}"))
    asyncio.run(rpc(sys.argv[2]))
    print("answered")
