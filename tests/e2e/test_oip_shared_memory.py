"""Places that a shared memory object or a region does not have are the caller's mistake, in Triton's words.

``tests/peers/test_shared_memory_beside_triton.py`` holds the table against a real Triton.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from tests.e2e.daemon import Daemon

PAGE = os.sysconf("SC_PAGE_SIZE")
SIZE = 2 * PAGE
INVALID = "failed to register shared memory region 'r': invalid args"
NO_MAPPING = "failed to register shared memory region 'r': unable to process address spaceInvalid argument"
OFFSET = "Invalid offset for shared memory region: 'r'"
END = "Invalid offset + byte size for shared memory region: 'r'"

REGISTERED: dict[str, tuple[int, int, str]] = {
    "beyond the object": (0, SIZE + 1, INVALID),
    "beyond the object, from its second page": (PAGE, PAGE + 1, INVALID),
    "an offset at the end": (SIZE, 8, INVALID),
    "an offset past the end": (2 * SIZE, 8, INVALID),
    "an offset of 2^63": (2**63, 8, INVALID),
    "a size of 2^63": (0, 2**63, INVALID),
    "a size of 2^64 - 1": (0, 2**64 - 1, INVALID),
    "a size of 0": (0, 0, NO_MAPPING),
    "an offset within a page": (16, 8, NO_MAPPING),
}
"""Offset and size of a region in an object of two pages, and the refusal."""

USED: dict[str, tuple[int, int, str]] = {
    "a size of 0": (0, 0, END),
    "beyond the region": (4, 64, END),
    "a size of 2^63 - 1": (0, 2**63 - 1, END),
    "an offset past the end": (64, 64, OFFSET),
    "an offset of 2^63 - 1": (2**63 - 1, 64, OFFSET),
}
"""Offset and size of a tensor in a region of 64 bytes, and the refusal."""


@contextmanager
def shared_object() -> Iterator[str]:
    """The key of an object of ``SIZE`` bytes."""
    path = Path(f"/dev/shm/interlingua_test_oip_{os.getpid()}")
    path.write_bytes(bytes(SIZE))
    try:
        yield f"/{path.name}"
    finally:
        path.unlink()


def registered(http: str, grpc: str, offset: int, size: int) -> list[tuple[Any, str]]:
    """Status and text of both transports for region ``r``, which is removed again."""
    body = {"offset": offset, "byte_size": size}
    with shared_object() as key, triton_grpc.InferenceServerClient(grpc) as client:
        url = f"http://{http}/v2/systemsharedmemory"
        reply = requests.post(f"{url}/region/r/register", json={"key": key, **body}, timeout=30)
        requests.post(f"{url}/unregister", timeout=30)
        try:
            client.register_system_shared_memory("r", key, size, offset)
            told = ("OK", "")
        except InferenceServerException as error:
            told = (error.status(), error.message())
        client.unregister_system_shared_memory()
    return [(reply.status_code, reply.json()["error"] if reply.content else ""), told]


def used(http: str, grpc: str, offset: int, size: int, side: str) -> list[tuple[Any, str]]:
    """The same for a request of ``identity_fp32`` whose input or output is there."""
    answers: list[tuple[Any, str]] = []
    with shared_object() as key, triton_http.InferenceServerClient(http) as client:
        client.register_system_shared_memory("r", key, 64, 0)
        for module, address in ((triton_http, http), (triton_grpc, grpc)):
            given = module.InferInput("INPUT0", [16], "FP32")
            wanted = module.InferRequestedOutput("OUTPUT0")
            if side == "input":
                given.set_shared_memory("r", size, offset)
            else:
                given.set_data_from_numpy(np.zeros(16, np.float32))
                wanted.set_shared_memory("r", size, offset)
            with module.InferenceServerClient(address) as caller:
                try:
                    caller.infer("identity_fp32", [given], outputs=[wanted])
                    answers.append(("OK", ""))
                except InferenceServerException as error:
                    status = error.status()
                    answers.append((int(status) if module is triton_http else status, error.message()))
        client.unregister_system_shared_memory()
    return answers


def refusals(text: str) -> list[tuple[Any, str]]:
    """``text`` over both transports."""
    return [(400, text), ("StatusCode.INVALID_ARGUMENT", text)]


@pytest.mark.parametrize("case", REGISTERED)
def test_a_region_that_its_object_does_not_have(examples: Daemon, case: str) -> None:
    offset, size, text = REGISTERED[case]
    http, grpc = examples.addresses[:2]
    assert registered(http, grpc, offset, size) == refusals(text)


@pytest.mark.parametrize("side", ["input", "output"])
@pytest.mark.parametrize("case", USED)
def test_a_place_that_its_region_does_not_have(examples: Daemon, case: str, side: str) -> None:
    offset, size, text = USED[case]
    http, grpc = examples.addresses[:2]
    assert used(http, grpc, offset, size, side) == refusals(text)
