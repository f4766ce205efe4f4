"""Tensors in shared memory: real objects under /dev/shm, of names that nobody else has."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from interlingua.runtime.shared_memory import SharedMemory, is_used
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    RequestedOutput,
    SharedMemoryRef,
    SharedMemoryRegion,
    Tensor,
    pack_bytes,
)

Make = Callable[[bytes], str]
PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes shared memory objects of given contents; the key of each."""
    made: list[Path] = []

    def one(content: bytes) -> str:
        made.append(Path(f"/dev/shm/interlingua_test_{os.getpid()}_{len(made)}_{os.urandom(4).hex()}"))
        made[-1].write_bytes(content)
        return f"/{made[-1].name}"

    yield one
    for path in made:
        path.unlink(missing_ok=True)


@pytest.fixture
def memory() -> SharedMemory:
    return SharedMemory()


def path_of(key: str) -> Path:
    return Path("/dev/shm") / key.lstrip("/")


def given(region: str, offset: int, size: int, shape=(4,), datatype=Datatype.FP32, **more) -> InferRequest:
    tensor = Tensor("x", datatype, shape, SharedMemoryRef(region, offset, size))
    return InferRequest("m", (tensor,), **more)


def placed(place: SharedMemoryRef | None) -> tuple[RequestedOutput, ...]:
    return (RequestedOutput("y", placement=place), RequestedOutput("z"))


def answer(values: list[float]) -> InferResponse:
    array = np.array(values, np.float32)
    return InferResponse("m", (Tensor.from_numpy("y", array), Tensor.from_numpy("z", array)))


@contextmanager
def refused(code: ErrorCode, said: str) -> Iterator[pytest.ExceptionInfo[InferenceError]]:
    with pytest.raises(InferenceError, match=said) as caught:
        yield caught
    assert caught.value.code is code


# --- what is registered


def test_regions_come_and_go(memory: SharedMemory, make: Make) -> None:
    key = make(bytes(PAGE + 64))
    first, second = SharedMemoryRegion("a", key, 0, 64), SharedMemoryRegion("b", key.lstrip("/"), PAGE, 64)
    memory.register(first)
    memory.register(second)
    assert memory.status() == (first, second)
    assert memory.status("b") == (second,)
    memory.unregister("a")
    memory.unregister("never there")
    assert memory.status() == (second,)
    memory.register(first)
    memory.unregister()
    assert memory.status() == ()
    with refused(ErrorCode.NOT_FOUND, "Unable to find system shared memory region: 'a'"):
        memory.status("a")


def test_a_name_is_taken_until_it_is_unregistered(memory: SharedMemory, make: Make) -> None:
    region = SharedMemoryRegion("r", make(bytes(8)), 0, 8)
    memory.register(region)
    with refused(ErrorCode.ALREADY_EXISTS, "shared memory region 'r' already in manager"):
        memory.register(region)
    memory.unregister("r")
    memory.register(region)


INVALID, NO_MAPPING = "invalid args", "unable to process address spaceInvalid argument"


@pytest.mark.parametrize(
    ("offset", "size", "words"),
    [
        (0, PAGE + 65, INVALID),
        (PAGE + 64, 1, INVALID),
        (PAGE + 65, 0, INVALID),
        (PAGE, 65, INVALID),
        (2**63, 1, INVALID),
        (0, 2**63, INVALID),
        (0, 2**64 - 1, INVALID),
        (2**64, 2**64, INVALID),
        (0, 0, NO_MAPPING),
        (PAGE, 0, NO_MAPPING),
        (16, 8, NO_MAPPING),
        (PAGE - 1, 8, NO_MAPPING),
    ],
)
def test_a_region_is_whole_pages_into_its_object(
    memory: SharedMemory, make: Make, offset: int, size: int, words: str
) -> None:
    key = make(bytes(PAGE + 64))
    with refused(ErrorCode.INVALID_TENSOR, f"failed to register shared memory region 'r': {words}"):
        memory.register(SharedMemoryRegion("r", key, offset, size))
    assert memory.status() == ()


@pytest.mark.parametrize("key", ["", "/", "a/b", "/../etc/passwd", "/a/../../etc", "a\0b"])
def test_keys_that_no_object_can_have(memory: SharedMemory, key: str) -> None:
    with refused(ErrorCode.INVALID_TENSOR, "is not the key of a shared memory object"):
        memory.register(SharedMemoryRegion("r", key, 0, 8))


@pytest.mark.parametrize("key", ["/never_made_by_anybody", "/..", "/.", "/\ud800", "/" + "n" * 300])
def test_objects_that_cannot_be_opened(memory: SharedMemory, key: str) -> None:
    with refused(ErrorCode.INTERNAL, "Unable to open shared memory region: '/"):
        memory.register(SharedMemoryRegion("r", key, 0, 8))


def test_what_belongs_to_others_is_refused(memory: SharedMemory) -> None:
    with refused(ErrorCode.INVALID_TENSOR, "which is reserved"):
        memory.register(SharedMemoryRegion("r", "/triton_python_backend_shm_region_1", 0, 8))


def test_only_plain_files_are_objects(memory: SharedMemory, make: Make, tmp_path: Path) -> None:
    target, key = tmp_path / "secret", make(b"")
    target.write_bytes(bytes(64))
    path_of(key).unlink()
    path_of(key).symlink_to(target)
    with refused(ErrorCode.INTERNAL, "Unable to open"):
        memory.register(SharedMemoryRegion("r", key, 0, 8))
    path_of(key).unlink()
    os.mkfifo(path_of(key))
    with refused(ErrorCode.INVALID_TENSOR, "failed to register shared memory region 'r': invalid args"):
        memory.register(SharedMemoryRegion("r", key, 0, 8))


def test_nothing_stays_open(memory: SharedMemory, make: Make) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    gc.collect()
    before = descriptors()
    key = make(bytes(64))
    for _ in range(20):
        memory.register(SharedMemoryRegion("r", key, 0, 64))
        request = given("r", 0, 16, outputs=placed(SharedMemoryRef("r", 0, 16)))
        memory.resolve(request).fill(answer([1, 2, 3, 4]))
        del request
        memory.unregister("r")
        with pytest.raises(InferenceError):
            memory.register(SharedMemoryRegion("r", key, 0, 65))
    gc.collect()
    assert descriptors() == before
    assert key[1:] not in Path("/proc/self/maps").read_text()


# --- inputs


@pytest.mark.parametrize("region_offset", [0, PAGE, 2 * PAGE])
def test_an_input_is_read_in_place(memory: SharedMemory, make: Make, region_offset: int) -> None:
    values = np.arange(8, dtype=np.float32)
    key = make(bytes(region_offset) + values.tobytes())
    memory.register(SharedMemoryRegion("r", key, region_offset, 32))
    request = given("r", 8, 16)
    memory.resolve(request)
    (tensor,) = request.inputs
    assert tensor.numpy().tolist() == [2, 3, 4, 5]
    assert tensor.view.readonly
    with path_of(key).open("r+b") as file:
        file.seek(region_offset + 8)
        file.write(np.float32(9).tobytes())
    assert tensor.numpy().tolist() == [9, 3, 4, 5], "a view, no copy"


def test_text_is_copied_before_it_is_checked(memory: SharedMemory, make: Make) -> None:
    packed = pack_bytes([b"one", b"", b"\xff\x00"])
    key = make(packed)
    memory.register(SharedMemoryRegion("r", key, 0, len(packed)))
    request = given("r", 0, len(packed), (3,), Datatype.BYTES)
    memory.resolve(request)
    path_of(key).write_bytes(b"\xff" * len(packed))
    assert request.inputs[0].elements() == [b"one", b"", b"\xff\x00"]
    with refused(ErrorCode.INVALID_TENSOR, "tensor 'x' of datatype BYTES needs 3"):
        memory.resolve(given("r", 0, len(packed), (3,), Datatype.BYTES))


@pytest.mark.parametrize(
    ("offset", "size", "what"),
    [
        (60, 16, "offset + byte size"),
        (0, 2**63, "offset + byte size"),
        (0, 2**64, "offset + byte size"),
        (0, 0, "offset + byte size"),
        (64, 4, "offset"),
        (2**63, 16, "offset"),
        (64, 0, "offset"),
    ],
)
def test_a_tensor_lies_within_its_region(
    memory: SharedMemory, make: Make, offset: int, size: int, what: str
) -> None:
    memory.register(SharedMemoryRegion("r", make(bytes(PAGE + 128)), PAGE, 64))
    words = re.escape(f"Invalid {what} for shared memory region: 'r'")
    with refused(ErrorCode.INVALID_TENSOR, words):
        memory.resolve(given("r", offset, size))
    with refused(ErrorCode.INVALID_TENSOR, words):
        memory.resolve(InferRequest("m", (), placed(SharedMemoryRef("r", offset, size))))


def test_the_size_is_the_one_that_the_shape_needs(memory: SharedMemory, make: Make) -> None:
    memory.register(SharedMemoryRegion("r", make(bytes(64)), 0, 64))
    with refused(
        ErrorCode.INVALID_TENSOR,
        "input byte size mismatch for input 'x' for model 'm'. Expected 16, got 12",
    ):
        memory.resolve(given("r", 0, 12))
    with refused(
        ErrorCode.INVALID_TENSOR, "input byte size mismatch for input 'x' for model 'm'. Expected 0, got 4"
    ):
        memory.resolve(given("r", 0, 4, (0, 7)))


def test_an_unregistered_region(memory: SharedMemory) -> None:
    for request in (given("nope", 0, 16), InferRequest("m", (), placed(SharedMemoryRef("nope", 0, 16)))):
        with refused(ErrorCode.NOT_FOUND, "Unable to find shared memory region: 'nope'") as caught:
            memory.resolve(request)
        assert caught.value.details == {"shared_memory_region": "nope"}


def test_an_object_that_was_shrunk_is_not_touched(memory: SharedMemory, make: Make) -> None:
    key = make(bytes(4 * PAGE))
    memory.register(SharedMemoryRegion("r", key, 0, 4 * PAGE))
    os.truncate(path_of(key), PAGE)
    with refused(ErrorCode.INVALID_TENSOR, "the object behind shared memory region 'r' has become smaller"):
        memory.resolve(given("r", 3 * PAGE, 16))


def test_views_outlive_their_region(memory: SharedMemory, make: Make) -> None:
    key = make(np.arange(4, dtype=np.float32).tobytes())
    memory.register(SharedMemoryRegion("r", key, 0, 16))
    request = given("r", 0, 16)
    memory.resolve(request)
    memory.unregister("r")
    path_of(key).unlink()
    gc.collect()
    assert request.inputs[0].numpy().tolist() == [0, 1, 2, 3]


# --- outputs


def test_outputs_are_written_into_their_place(memory: SharedMemory, make: Make) -> None:
    key = make(b"." * (PAGE + 90))
    memory.register(SharedMemoryRegion("r", key, PAGE, 60))
    asked = placed(SharedMemoryRef("r", 20, 30))
    request = InferRequest("m", (), asked)
    placement = memory.resolve(request)
    assert request.outputs == placed(None), "a target is told nothing of places"
    assert asked == placed(SharedMemoryRef("r", 20, 30)), "nor is the codec's own memory changed"
    response = answer([1, 2])
    placement.fill(response)
    assert path_of(key).read_bytes() == b"." * (PAGE + 20) + np.float32([1, 2]).tobytes() + b"." * 62
    assert response.outputs[0].data == SharedMemoryRef("r", 20, 8), "as large as what was written"
    assert response.outputs[1].numpy().tolist() == [1, 2]


def test_a_place_that_is_too_small(memory: SharedMemory, make: Make) -> None:
    key = make(b"." * 64)
    memory.register(SharedMemoryRegion("r", key, 0, 64))
    placement = memory.resolve(InferRequest("m", (), placed(SharedMemoryRef("r", 0, 8))))
    with refused(
        ErrorCode.INTERNAL,
        r"shared memory size specified with the request for output 'y' \(8 bytes\) should be at least 16 "
        "bytes to hold the results",
    ):
        placement.fill(answer([1, 2, 3, 4]))
    assert path_of(key).read_bytes() == b"." * 64


def test_an_upper_limit_may_be_larger_than_its_region(memory: SharedMemory, make: Make) -> None:
    key = make(bytes(PAGE + 48))
    memory.register(SharedMemoryRegion("r", key, PAGE, 32))
    asked = RequestedOutput("y", placement=SharedMemoryRef("r", 0, 102_400, upper_limit=True))
    place = memory.resolve(InferRequest("m", (), (asked,)))
    values = np.arange(8, dtype=np.float32)
    response = InferResponse("m", (Tensor.from_numpy("y", values),))
    place.fill(response)
    assert response.outputs[0].data == SharedMemoryRef("r", 0, 32)
    assert path_of(key).read_bytes() == bytes(PAGE) + values.tobytes() + bytes(16)
    one_more = InferResponse("m", (Tensor.from_numpy("y", np.zeros(9, np.float32)),))
    with pytest.raises(InferenceError, match=r"Invalid offset \+ byte size for .* region: 'r'") as caught:
        place.fill(one_more)
    assert caught.value.code is ErrorCode.INVALID_TENSOR
    assert path_of(key).read_bytes() == bytes(PAGE) + values.tobytes() + bytes(16)


def test_an_output_is_written_though_its_region_has_gone(memory: SharedMemory, make: Make) -> None:
    key = make(bytes(8))
    memory.register(SharedMemoryRegion("r", key, 0, 8))
    placement = memory.resolve(InferRequest("m", (), placed(SharedMemoryRef("r", 0, 8))))
    memory.unregister("r")
    gc.collect()
    placement.fill(answer([1, 2]))
    assert path_of(key).read_bytes() == np.float32([1, 2]).tobytes()


def test_an_output_may_be_an_input(memory: SharedMemory, make: Make) -> None:
    """A model that echoes gives back the very view on the input."""
    values = np.arange(3 * PAGE, dtype=np.uint8)
    key = make(values.tobytes() + bytes(2 * PAGE))
    memory.register(SharedMemoryRegion("r", key, 0, 5 * PAGE))
    request = given(
        "r",
        0,
        3 * PAGE,
        (3 * PAGE,),
        Datatype.UINT8,
        outputs=placed(SharedMemoryRef("r", 2 * PAGE, 3 * PAGE)),
    )
    placement = memory.resolve(request)
    placement.fill(InferResponse("m", (request.inputs[0].renamed("y"),)))
    assert path_of(key).read_bytes()[: 2 * PAGE] == values.tobytes()[: 2 * PAGE]
    with refused(ErrorCode.INTERNAL, "still refers to shared memory region 'q'"):
        placement.fill(InferResponse("m", (Tensor("y", Datatype.UINT8, (1,), SharedMemoryRef("q", 0, 1)),)))


def test_a_request_that_uses_none_is_left_alone(memory: SharedMemory) -> None:
    tensor = Tensor.from_numpy("x", np.zeros(2, np.float32))
    for outputs in (None, (), (RequestedOutput("y"),)):
        assert not is_used(InferRequest("m", (tensor,), outputs))
    assert is_used(given("r", 0, 16))
    assert is_used(InferRequest("m", (tensor,), placed(SharedMemoryRef("r", 0, 8))))


# limits


def test_regions_are_limited_in_number(make: Make) -> None:
    memory = SharedMemory(max_regions=2)
    key = make(bytes(8))
    memory.register(SharedMemoryRegion("a", key, 0, 8))
    memory.register(SharedMemoryRegion("b", key, 0, 8))
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(InferenceError, match="2 shared memory regions exist, .* max_regions") as caught:
        memory.register(SharedMemoryRegion("c", key, 0, 8))
    assert caught.value.code is ErrorCode.OVERLOADED
    assert len(os.listdir("/proc/self/fd")) == before
    memory.unregister("a")
    memory.register(SharedMemoryRegion("c", key, 0, 8))
    assert [region.name for region in memory.status()] == ["b", "c"]


def test_regions_are_limited_in_size_together(make: Make) -> None:
    memory = SharedMemory(max_bytes=20)
    key = make(bytes(16))
    memory.register(SharedMemoryRegion("a", key, 0, 16))
    with pytest.raises(InferenceError, match=r"24 bytes, more than max_bytes permits \(20\)") as caught:
        memory.register(SharedMemoryRegion("b", key, 0, 8))
    assert caught.value.code is ErrorCode.OVERLOADED
    memory.register(SharedMemoryRegion("b", key, 0, 4))
    memory.unregister()
    memory.register(SharedMemoryRegion("b", key, 0, 16))
