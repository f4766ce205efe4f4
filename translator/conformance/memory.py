"""Rules for shared memory: tensors in objects under /dev/shm instead of messages.

They apply if the server supports shared memory and runs on this machine. Every rule removes what it creates
and registers."""

from __future__ import annotations

import ipaddress
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from hypothesis import strategies as st

from interlingua.schemas import (
    InferRequest,
    InferResponse,
    Operation,
    RequestedOutput,
    SharedMemoryRef,
    SharedMemoryRegion,
    Tensor,
)
from interlingua.translator.conformance.check import Draw, Group
from interlingua.translator.conformance.comparison import expect_same
from interlingua.translator.conformance.errors import InapplicableError, ViolationError, expect, skip_if
from interlingua.translator.conformance.exchange import WireExchange
from interlingua.translator.conformance.server import ServerUnderTest
from interlingua.translator.conformance.values import distinct, inputs, usual
from interlingua.translator.conformance.wire import Mistake

REGIONS = Group("shared-memory")
"""Rules for regions; they need no answers of the model."""

PLACES = Group("shared-memory", infers=True)

_FOLDER = Path("/dev/shm")  # noqa: S108 where POSIX shared memory is on Linux
_FILLING = 0xA5
_GAP = 64


@REGIONS(
    "The server registers a region of an existing object, and lists it until it is unregistered.", once=True
)
def registered(server: ServerUnderTest, draw: Draw) -> None:
    _has_memory(server)
    exchange = _control(server, Operation.SHARED_MEMORY_STATUS, None)
    if exchange.error is not None:
        raise InapplicableError(f"the server has no shared memory: {exchange.error.message}")
    with _object(server, 4 * mmap.PAGESIZE) as made:
        whole = SharedMemoryRegion(made.name, made.key, mmap.PAGESIZE, 128)
        exchange = _control(server, Operation.SHARED_MEMORY_REGISTER, whole)
        if exchange.error is not None:
            why = f"an object that is there is not registered: {exchange.error.message}"
            raise ViolationError(
                f"{why} (a server in a container of its own needs the IPC of the host)", exchange
            )
        for name in (None, made.name):
            _expect_listed(server, name, whole, True)
        _control(server, Operation.SHARED_MEMORY_UNREGISTER, made.name)
        _expect_listed(server, None, whole, False)


@REGIONS("A region is registered once: its name is refused until it is unregistered.", once=True)
def registered_twice(server: ServerUnderTest, draw: Draw) -> None:
    with _region(server, 128) as made:
        again = SharedMemoryRegion(made.name, made.key, 0, 64)
        _refuses(server, again, "a region whose name is taken")
        exchange = _control(server, Operation.SHARED_MEMORY_REGISTER, again)
        expect(exchange.error is None, "a name that is free again is refused", exchange)


@REGIONS("A region of an object that does not exist is refused.", once=True)
def object_absent(server: ServerUnderTest, draw: Draw) -> None:
    with _region(server, 128) as made:
        name = f"{made.name}_no_such"
        _refuses(server, SharedMemoryRegion(name, f"/{name}", 0, 64), "an object that is not there")


@REGIONS("A region that ends beyond its object, or has no bytes, is refused.")
def object_too_small(server: ServerUnderTest, draw: Draw) -> None:
    size = mmap.PAGESIZE
    offset, length = draw(st.sampled_from(((0, size + 1), (size, 1), (64, size), (0, 0), (2 * size, 8))))
    with _region(server, size) as made:
        wrong = SharedMemoryRegion(f"{made.name}_wrong", made.key, offset, length)
        _refuses(server, wrong, f"{length} bytes at {offset} of an object of {size}")


@PLACES("Inputs in shared memory mean what they mean in messages.")
def input_tensors(server: ServerUnderTest, draw: Draw) -> None:
    _has_memory(server)
    given = draw(inputs(server.known, usual))
    request = server.request(given)
    right = server.answer(request)
    chosen = [draw(st.booleans()) for _ in given]
    if not any(chosen):
        chosen[0] = True
    gap = draw(st.integers(0, _GAP))
    with _region(server, sum(tensor.nbytes + gap for tensor in given) + 1) as made:
        placed = [
            made.put(tensor, gap) if move else tensor for tensor, move in zip(given, chosen, strict=True)
        ]
        have = server.answer(replace(request, inputs=tuple(placed)))
    expect_same(server, right, have, "with inputs in shared memory the answer differs")


@PLACES("Outputs in shared memory are what they are in messages, and nothing else is written.")
def output_tensors(server: ServerUnderTest, draw: Draw) -> None:
    _has_memory(server)
    given = draw(inputs(server.known, usual))
    request = server.request(given)
    right = {tensor.name: tensor for tensor in server.answer(request).outputs}
    names = [spec.name for spec in server.known.outputs if spec.name in right]
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    gap = draw(st.integers(0, _GAP))
    size = sum(right[name].nbytes + 2 * gap for name in chosen)
    with _region(server, size + 1) as made:
        places = {name: made.take(right[name].nbytes + gap, gap) for name in chosen}
        outputs = tuple(RequestedOutput(name, placement=places.get(name)) for name in names)
        response = _answered(server, replace(request, outputs=outputs))
        whole = made.read(0, made.size)
    answered = {tensor.name: tensor for tensor in response.outputs}
    expect(set(answered) == set(names), f"outputs {sorted(answered)}, requested {sorted(names)}", server.last)
    found, written = [], bytearray(bytes([_FILLING]) * len(whole))
    for name in names:
        tensor, size = right[name], right[name].nbytes
        if name in places:
            start = places[name].offset
            tensor = replace(answered[name], data=memoryview(whole[start : start + size]))
            written[start : start + size] = whole[start : start + size]
        else:
            tensor = answered[name]
        found.append(tensor)
    answer = InferResponse(response.model, tuple(found), response.version)
    expect_same(server, replace(answer, outputs=tuple(right.values())), answer, "in shared memory")
    expect(written == whole, "bytes outside the outputs in shared memory have changed", server.last)


@PLACES("A region that is not registered, or no longer, is refused.")
def region_absent(server: ServerUnderTest, draw: Draw) -> None:
    _has_memory(server)
    given = distinct(server.known, 1)
    side, gone = draw(st.sampled_from(("input", "output"))), draw(st.booleans())
    size = _largest(server, given)
    with _region(server, size) as made:
        if gone:
            _control(server, Operation.SHARED_MEMORY_UNREGISTER, made.name)
        name = made.name if gone else f"{made.name}_no_such"
        place = SharedMemoryRef(name, 0, given[0].nbytes if side == "input" else size)
        exchange = _pointed(server, given, side, place)
        server.refuses(exchange, Mistake.ANY, f"an {side} in a region that is not there")


@PLACES("A place that is not inside of its region is refused.")
def outside_region(server: ServerUnderTest, draw: Draw) -> None:
    _has_memory(server)
    given = distinct(server.known, 1)
    side = draw(st.sampled_from(("input", "output")))
    size = _largest(server, given)
    # a placement may exceed the output: some servers check only the bytes written
    needed = given[0].nbytes if side == "input" else _first_output(server, given).nbytes
    with _region(server, size) as made:
        offset = size - needed + draw(st.sampled_from((1, 64, size, 2**31, 2**62)))
        exchange = _pointed(server, given, side, SharedMemoryRef(made.name, offset, needed))
        server.refuses(exchange, Mistake.ANY, f"{needed} bytes at {offset} of a region of {size}")


@PLACES("An input whose place does not have the size of its shape is refused.")
def input_size(server: ServerUnderTest, draw: Draw) -> None:
    _has_memory(server)
    given = distinct(server.known, 1)
    right = given[0].nbytes
    wrong = right + draw(st.sampled_from((-1, 1, 8)))
    with _region(server, right + _GAP) as made:
        made.put(given[0], 0)
        exchange = _pointed(server, given, "input", SharedMemoryRef(made.name, 0, wrong))
        server.refuses(exchange, Mistake.ANY, f"{wrong} bytes for the {right} of '{given[0].name}'")


@PLACES("An output that is larger than its place is refused.")
def output_size(server: ServerUnderTest, draw: Draw) -> None:
    _has_memory(server)
    given = distinct(server.known, 1)
    first = _first_output(server, given)
    size = first.nbytes - draw(st.integers(1, max(first.nbytes - 1, 1)))
    skip_if(size < 1, "the output has no bytes to spare")
    with _region(server, first.nbytes + _GAP) as made:
        output = RequestedOutput(first.name, placement=SharedMemoryRef(made.name, 0, size))
        exchange = server.infer(replace(server.request(given), outputs=(output,)))
        server.refuses(exchange, Mistake.ANY, f"{size} bytes for the {first.nbytes} of '{first.name}'")
        beyond = made.read(size, made.size)
    expect(set(beyond) <= {_FILLING}, "bytes after the place of an output have changed", exchange)


class _Made:
    """A region of ``size`` bytes, allocated up to ``_end``."""

    def __init__(self, name: str, size: int, memory: mmap.mmap) -> None:
        self.name = name
        self.key = f"/{name}"
        self.size = size
        self._memory = memory
        self._end = 0

    def take(self, size: int, gap: int) -> SharedMemoryRef:
        """Allocate ``size`` bytes after a ``gap``."""
        start = self._end + gap
        self._end = start + size
        return SharedMemoryRef(self.name, start, size)

    def put(self, tensor: Tensor, gap: int) -> Tensor:
        """``tensor`` with its bytes copied here."""
        place = self.take(tensor.nbytes, gap)
        self._memory[place.offset : place.offset + place.size] = bytes(tensor.view)
        return replace(tensor, data=place)

    def read(self, start: int, end: int) -> bytes:
        return self._memory[start:end]


@contextmanager
def _object(server: ServerUnderTest, size: int) -> Iterator[_Made]:
    """A shared memory object full of ``_FILLING``; on exit also unregisters the region of its name."""
    name = f"conformance_{server.fresh()}"
    path = _FOLDER / name
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    except OSError as error:
        raise InapplicableError(f"cannot create files in {_FOLDER}: {error.strerror}") from error
    try:
        os.fchmod(descriptor, 0o666)  # the server may run as another user
        os.write(descriptor, bytes([_FILLING]) * size)
        with mmap.mmap(descriptor, size) as memory:
            yield _Made(name, size, memory)
    finally:
        last = server.last
        os.close(descriptor)
        path.unlink()
        _control(server, Operation.SHARED_MEMORY_UNREGISTER, name)
        server.last = last


@contextmanager
def _region(server: ServerUnderTest, size: int) -> Iterator[_Made]:
    """An object and a region over all of it. Raises ``InapplicableError`` if registration fails."""
    _has_memory(server)
    with _object(server, size) as made:
        whole = SharedMemoryRegion(made.name, made.key, 0, size)
        exchange = _control(server, Operation.SHARED_MEMORY_REGISTER, whole)
        if exchange.error is not None:
            raise InapplicableError(f"no region can be registered: {exchange.error.message}")
        yield made


def _has_memory(server: ServerUnderTest) -> None:
    """Raise ``InapplicableError`` unless the server has shared memory on this machine."""
    skip_if(not server.wire.memory, "the dialect has no shared memory")
    skip_if(not server.has("memory"), "the server does not list system_shared_memory")
    skip_if(not _on_this_machine(server), "the server is not on this machine")
    skip_if(not _FOLDER.is_dir(), f"this machine has no {_FOLDER}")


def _on_this_machine(server: ServerUnderTest) -> bool:
    address = server.address
    if address.path or address.host == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.host).is_loopback
    except ValueError:
        return False


def _control(server: ServerUnderTest, operation: Operation, argument: object) -> WireExchange:
    return server.exchange(server.wire.memory[operation], argument)


def _expect_listed(
    server: ServerUnderTest, name: str | None, region: SharedMemoryRegion, there: bool
) -> None:
    """Require that the status of region ``name`` (None: all) has ``region``, if ``there``, or omits it."""
    exchange = _control(server, Operation.SHARED_MEMORY_STATUS, name)
    expect(exchange.error is None, "the status of a region was refused", exchange)
    found = {one.name: one for one in exchange.result}.get(region.name)
    if not there:
        expect(found is None, "the status contains a region that was unregistered", exchange)
        return
    # servers differ in the leading slash of a key
    same = found is not None and replace(found, key=f"/{found.key.lstrip('/')}") == region
    expect(same, f"the region {region} is reported as {found}", exchange)


def _refuses(server: ServerUnderTest, region: SharedMemoryRegion, what: str) -> None:
    """Raise ``ViolationError`` unless ``region`` is refused; unregister its name."""
    exchange = _control(server, Operation.SHARED_MEMORY_REGISTER, region)
    _control(server, Operation.SHARED_MEMORY_UNREGISTER, region.name)
    server.answered(exchange)
    expect(exchange.error is not None, f"{what} was not refused", exchange)


def _answered(server: ServerUnderTest, request: InferRequest) -> InferResponse:
    exchange = server.infer(request)
    good = server.wire.succeeded(exchange) and exchange.error is None
    text = exchange.error.message if exchange.error is not None else ""
    expect(good, f"a request with outputs in shared memory was refused: {text}", exchange)
    response: InferResponse = exchange.result
    return response


def _pointed(
    server: ServerUnderTest, given: tuple[Tensor, ...], side: str, place: SharedMemoryRef
) -> WireExchange:
    """Send a request with the first input, or the first output, at ``place``."""
    request = server.request(given)
    if side == "input":
        request.inputs = (replace(given[0], data=place), *given[1:])
    else:
        request.outputs = (RequestedOutput(server.known.outputs[0].name, placement=place),)
    return server.infer(request)


def _first_output(server: ServerUnderTest, given: tuple[Tensor, ...]) -> Tensor:
    name = server.known.outputs[0].name
    outputs = server.answer(server.request(given)).outputs
    return next(tensor for tensor in outputs if tensor.name == name)


def _largest(server: ServerUnderTest, given: tuple[Tensor, ...]) -> int:
    """A size that fits the first input and every output."""
    answer = server.answer(server.request(given))
    return max(given[0].nbytes, *(tensor.nbytes for tensor in answer.outputs), 64)
