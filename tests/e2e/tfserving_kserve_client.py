"""KServe's REST client with version 1 before a server: ``tfserving_kserve_client.py HTTP_ADDRESS``.

A process of its own, since KServe's messages clash with those of tritonclient. It ends with an exception
where an answer is wrong.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable

import httpx
import pytest
from kserve import InferenceRESTClient
from kserve.inference_client import RESTConfig

EVENT = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "test", "ce-type": "request"}


async def refused(work: Awaitable[object], status: int) -> None:
    with pytest.raises(httpx.HTTPStatusError) as caught:
        await work
    assert caught.value.response.status_code == status, caught.value
    assert caught.value.response.json()["error"]


async def rest(url: str) -> None:
    async with InferenceRESTClient(RESTConfig(protocol="v1")) as client:
        assert await client.is_server_live(url) is True
        assert await client.is_model_ready(url, "identity_fp32") is True
        assert await client.is_model_ready(url, "nothing_like_it") is False
        data = {"instances": [0.5, -1.25]}
        assert await client.infer(url, data, model_name="identity_fp32") == {"predictions": data["instances"]}
        rows = [{"INPUT0": list(range(16)), "INPUT1": [1] * 16}] * 2
        answer = await client.infer(url, {"instances": rows}, model_name="simple")
        sums = {"OUTPUT0": list(range(1, 17)), "OUTPUT1": list(range(-1, 15))}
        assert answer == {"predictions": [sums, sums]}
        headers: dict[str, str] = {}
        answer = await client.infer(url, data, "identity_fp32", EVENT, headers)
        assert answer == {"predictions": data["instances"]}
        assert headers["ce-type"] == "io.kserve.inference.response", headers
        await refused(client.infer(url, data, "nothing_like_it"), 404)
        await refused(client.explain(url, "identity_fp32", data), 501)


if __name__ == "__main__":
    asyncio.run(rest(f"http://{sys.argv[1]}"))
    print("answered")
