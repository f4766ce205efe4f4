"""Version 1 clients keep their tensors in POSIX shared memory, over HTTP and over gRPC."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton_http
from google.protobuf import text_format

from tests.e2e.daemon import Daemon
from tests.e2e.trtis_clients import clients_of, refused
from tests.standins.trtis_client import ClientFailure, Shared, Top, TrtisError
from tests.standins.trtis_contract import message, pack, unpack
from tests.standins.trtis_grpc_client import TrtisGrpc
from tests.standins.trtis_http_client import TrtisHttp

A = np.arange(32, dtype=np.int32).reshape(2, 16)
SUMS = {"INPUT0": A, "INPUT1": A}


@pytest.fixture(scope="module")
def clients(v1: Daemon) -> Iterator[dict[str, Any]]:
    with clients_of(v1) as both:
        yield both


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest, clients: dict[str, Any]) -> Any:
    return clients[request.param]


@contextmanager
def shared_object(size: int) -> Iterator[tuple[str, mmap.mmap]]:
    """A POSIX shared memory object of this test alone, and what is in it."""
    key = f"/v1_{os.getpid()}_{time.monotonic_ns()}"
    path = Path("/dev/shm") / key[1:]
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    try:
        os.ftruncate(descriptor, size)
        with mmap.mmap(descriptor, size) as view:
            yield key, view
    finally:
        os.close(descriptor)
        path.unlink()


@contextmanager
def registered(client: Any, region: str, size: int = 4096, offset: int = 0) -> Iterator[mmap.mmap]:
    with shared_object(size) as (key, view):
        client.register(region, key, size - offset, offset)
        try:
            yield view
        finally:
            client.unregister(region)


def test_tensors_in_shared_memory_in_and_out(client: Any) -> None:
    with (
        registered(client, "all of it")
        if isinstance(client, TrtisGrpc)
        else registered(client, "in_out") as view
    ):
        region = "all of it" if isinstance(client, TrtisGrpc) else "in_out"
        view[64 : 64 + A.nbytes] = A.tobytes()
        given = {"INPUT0": Shared(region, A.nbytes, 64, (16,)), "INPUT1": A}
        asked = {"OUTPUT1": None, "OUTPUT0": Shared(region, A.nbytes, 1024)}
        answer = client.infer("simple", given, asked, batch_size=2)
        assert answer.outputs["OUTPUT0"] == ([16], A.nbytes)
        assert (answer.outputs["OUTPUT1"] == 0).all()
        assert view[1024 : 1024 + A.nbytes] == (A + A).tobytes()
        # everything there, and a place larger than the output
        given = dict.fromkeys(("INPUT0", "INPUT1"), Shared(region, A.nbytes, 64, (16,)))
        answer = client.infer("simple", given, {"OUTPUT0": Shared(region, 1000, 2048)}, batch_size=2)
        assert answer.outputs == {"OUTPUT0": ([16], A.nbytes)}
        assert view[2048 : 2048 + A.nbytes] == (A + A).tobytes()
        assert view[2048 + A.nbytes : 3048] == bytes(1000 - A.nbytes)


def test_an_output_may_declare_more_bytes_than_its_region_has(client: Any) -> None:
    """perf_client 1.9 to 1.12 declares 102,400 bytes of a region of 64; the original server does not check it."""
    with shared_object(64) as (key, view):
        client.register("of_64_bytes", key, 64)
        try:
            asked = {"OUTPUT0": Shared("of_64_bytes", 102_400)}
            answer = client.infer("simple", {"INPUT0": A[:1], "INPUT1": A[:1]}, asked)
            assert answer.outputs["OUTPUT0"] == ([16], 64)
            assert view[:64] == (A[:1] + A[:1]).tobytes()
            with refused("INVALID_ARG", "Invalid offset + byte size for shared memory region: 'of_64_bytes'"):
                client.infer("simple", SUMS, asked)
        finally:
            client.unregister("of_64_bytes")


def test_a_region_may_begin_within_its_object(client: Any) -> None:
    with registered(client, "later", 8192, 4096) as view:
        given = np.arange(6, dtype=np.float32)
        view[4096 + 8 : 4096 + 32] = given.tobytes()
        answer = client.infer("identity_fp32", {"INPUT0": Shared("later", 24, 8, (6,))}, ["OUTPUT0"])
        assert (answer.outputs["OUTPUT0"] == given).all()


def test_strings_and_classes_with_shared_memory(client: Any) -> None:
    with registered(client, "strings") as view:
        packed = pack(np.array([b"one", b"", b"\xff\0"], object))
        view[: len(packed)] = packed

        def tell(header: Any) -> None:
            header.input[0].batch_byte_size = len(packed)

        answer = client.infer(
            "identity_bytes",
            {"INPUT0": Shared("strings", len(packed), 0, (3,))},
            {"OUTPUT0": Shared("strings", 512, 1024)},
            change=tell,
        )
        assert answer.outputs["OUTPUT0"] == ([3], len(packed))
        got = unpack(view[1024 : 1024 + len(packed)], "TYPE_STRING", [3])
        assert got.tolist() == [b"one", b"", b"\xff\0"]
        row = np.array([3, 1, 2, 5, 4], np.float32)
        view[: row.nbytes] = row.tobytes()
        answer = client.infer("classy", {"DATA": Shared("strings", 20, 0, (5,))}, {"PROB": Top(1)})
        assert answer.outputs["PROB"] == [[(3, 5.0, "dog")]]


def test_regions_are_listed(client: Any) -> None:
    client.unregister_all()
    assert client.regions() == {}
    with shared_object(8192) as (key, _):
        client.register("one", key, 1000, 4096)
        client.register("two", key, 4096)
        found = client.regions()
        assert set(found) == {"one", "two"}
        assert found["one"].system_shared_memory.shared_memory_key == key
        assert (found["one"].system_shared_memory.offset, found["one"].byte_size) == (4096, 1000)
        client.unregister("one")
        assert set(client.regions()) == {"two"}
        client.unregister_all()
        assert client.regions() == {}


def test_a_region_named_all_is_a_region(client: Any) -> None:
    with shared_object(64) as (key, _):
        client.register("all", key, 64)
        client.register("other", key, 64)
        client.unregister("all")
        assert set(client.regions()) == {"other"}
        client.unregister("other")


def test_regions_as_text(v1: Daemon) -> None:
    client = TrtisHttp(v1.addresses[0])
    with registered(client, "seen"):
        text = client.exchange("GET", "/api/sharedmemorycontrol/status").body.decode()
    parsed = text_format.Parse(text, message("SharedMemoryStatus"))
    assert [region.name for region in parsed.shared_memory_region] == ["seen"]


def test_regions_serve_every_dialect_and_transport(clients: dict[str, Any], v1: Daemon) -> None:
    with registered(clients["grpc"], "common") as view:
        view[:64] = A[0].tobytes()
        given = dict.fromkeys(("INPUT0", "INPUT1"), Shared("common", 64, 0, (16,)))
        assert (
            clients["http"].infer("simple", given, ["OUTPUT0"], batch_size=1).outputs["OUTPUT0"] == 2 * A[0]
        ).all()
        inputs = [triton_http.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
        for each in inputs:
            each.set_shared_memory("common", 64)
        wanted = triton_http.InferRequestedOutput("OUTPUT1", binary_data=True)
        wanted.set_shared_memory("common", 64, 256)
        with triton_http.InferenceServerClient(v1.addresses[0]) as triton:
            triton.infer("simple", inputs, outputs=[wanted])
        assert view[256:320] == bytes(64)


def test_what_is_wrong_with_shared_memory(client: Any) -> None:
    with shared_object(4096) as (key, _):
        client.register("region", key, 4096)
        try:
            with refused("ALREADY_EXISTS", "shared memory region 'region' already in manager"):
                client.register("region", key, 64)
            small = {"INPUT0": Shared("region", 60, 0, (16,)), "INPUT1": A[:1]}
            words = (
                "unexpected size 60 for input"
                if isinstance(client, TrtisGrpc)
                else "unexpected shared-memory size"
            )
            with refused("INVALID_ARG", words):
                client.infer("simple", small, ["OUTPUT0"], batch_size=1)
            ones = {name: array[:1] for name, array in SUMS.items()}
            with refused("INTERNAL", "shared memory size specified with the request for output"):
                client.infer("simple", ones, {"OUTPUT0": Shared("region", 60, 0)})
        finally:
            client.unregister("region")
    with shared_object(8192) as (key, _):
        for size, offset in ((8193, 0), (8, 8192), (0, 0), (8, 16)):
            with refused("INVALID_ARG", "failed to register shared memory region 'off'"):
                client.register("off", key, size, offset)
        for size, offset in ((8, 2**63), (2**63, 0)):
            if isinstance(client, TrtisGrpc):
                with refused("INVALID_ARG", "failed to register shared memory region 'off'"):
                    client.register("off", key, size, offset)
            else:  # version 1 refuses a path with such a number without a status
                with pytest.raises(ClientFailure, match="did not return status"):
                    client.register("off", key, size, offset)
    with refused("INTERNAL", "Unable to open shared memory region: '/nothing_like_it'"):
        client.register("lost", "/nothing_like_it", 64)
    with refused("INVALID_ARG", "failed to register CUDA shared memory region: 'gpu', GPUs not supported"):
        client.register_cuda("gpu", bytes(64), 64)
    client.unregister("never_registered")


def test_no_read_goes_beyond_a_region(client: Any) -> None:
    with registered(client, "bounds", 128):
        for offset in (65, 128, 2**40, 2**64 - 1):
            given = {"INPUT0": Shared("bounds", 64, offset, (16,)), "INPUT1": A[:1]}
            with pytest.raises(TrtisError) as caught:
                client.infer("simple", given, ["OUTPUT0"], batch_size=1)
            assert caught.value.code in ("INVALID_ARG", "INTERNAL")
            ones = {name: array[:1] for name, array in SUMS.items()}
            with pytest.raises(TrtisError):
                client.infer("simple", ones, {"OUTPUT0": Shared("bounds", 64, offset)})
        with shared_object(64) as (key, _), pytest.raises(TrtisError):
            client.register("too_long", key, 65)
    assert client.health("live")


def test_unregistering_while_a_region_is_in_use(client: Any) -> None:
    """What was read keeps its bytes; afterwards the region is unknown."""
    with shared_object(4096) as (key, view):
        view[:64] = A[0].tobytes()
        client.register("gone", key, 4096)
        given = dict.fromkeys(("INPUT0", "INPUT1"), Shared("gone", 64, 0, (16,)))
        for _ in range(3):
            client.infer("simple", given, ["OUTPUT0"], batch_size=1)
        client.unregister("gone")
        with refused("NOT_FOUND", "Unable to find shared memory region: 'gone'"):
            client.infer("simple", given, ["OUTPUT0"], batch_size=1)
