"""Regions of POSIX shared memory that clients have registered, and the tensors in them.

A client on this machine writes its inputs to an object under ``/dev/shm`` and sends region, offset and size
instead of bytes; outputs return the same way. Inputs are views on the mapping, outputs are copied once to
their place. Codecs carry references; this module resolves them. The caller decides who may use shared memory.

A mapping is freed with the last view on it, so a region that is unregistered while a request runs stays
readable for that request. Sizes are checked before access: a client that has shrunk its object gets an error,
where the process would get a signal.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import weakref
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    SharedMemoryRef,
    SharedMemoryRegion,
    Tensor,
    element_count,
    invalid_tensor,
)
from interlingua.schemas.errors import SHARED_MEMORY_REGION

FOLDER = "/dev/shm"  # noqa: S108 where POSIX shared memory is on Linux, no temporary file of ours
RESERVED_PREFIX = "triton_python_backend_shm_region_"
"""The prefix of keys that Triton's Python backend reserves."""


MAX_REGIONS = 1024
"""The default limit on the number of regions."""

MAX_BYTES = 16 << 30
"""The default limit on their size together."""

_internal = partial(InferenceError, ErrorCode.INTERNAL)
_overloaded = partial(InferenceError, ErrorCode.OVERLOADED)


def is_used(request: InferRequest) -> bool:
    """Whether an input of ``request`` is in shared memory, or an output is to be."""
    for tensor in request.inputs:
        if isinstance(tensor.data, SharedMemoryRef):
            return True
    outputs = request.outputs
    return outputs is not None and any(output.placement is not None for output in outputs)


class SharedMemory:
    """The registered regions by name, one table for the whole server: at most ``max_regions`` (each holds a
    file descriptor) of ``max_bytes`` together."""

    def __init__(self, max_regions: int = MAX_REGIONS, max_bytes: int = MAX_BYTES) -> None:
        self._regions: dict[str, _Region] = {}
        self._max_regions = max_regions
        self._max_bytes = max_bytes

    def limit(self, max_regions: int, max_bytes: int) -> None:
        """Hold other limits from now on; regions beyond them stay."""
        self._max_regions, self._max_bytes = max_regions, max_bytes

    def register(self, region: SharedMemoryRegion) -> None:
        """Open and map ``region``. Raises ALREADY_EXISTS for a used name, INVALID_TENSOR for an invalid key
        and a place that the object does not have, INTERNAL for an object that cannot be opened, OVERLOADED
        above a limit."""
        if region.name in self._regions:
            raise InferenceError(
                ErrorCode.ALREADY_EXISTS, f"shared memory region '{region.name}' already in manager"
            )
        if len(self._regions) >= self._max_regions:
            raise _overloaded(f"{self._max_regions} shared memory regions exist, as max_regions permits")
        mapped = _Region(region)
        nbytes = sum(each.described.byte_size for each in self._regions.values()) + region.byte_size
        if nbytes > self._max_bytes:
            limit = f"more than max_bytes permits ({self._max_bytes})"
            raise _overloaded(f"shared memory regions would have {nbytes} bytes, {limit}")
        self._regions[region.name] = mapped

    def unregister(self, name: str | None = None) -> None:
        """Remove region ``name``, or all. An unknown region is ignored."""
        if name is None:
            self._regions.clear()
        else:
            self._regions.pop(name, None)

    def status(self, name: str | None = None) -> tuple[SharedMemoryRegion, ...]:
        """Region ``name``, or all. Raises NOT_FOUND."""
        if name is None:
            return tuple(region.described for region in self._regions.values())
        if name not in self._regions:
            raise _unknown(name, "Unable to find system shared memory region")
        return (self._regions[name].described,)

    def resolve(self, request: InferRequest) -> Placement:
        """Replace every reference in ``request`` by its bytes, and remove the places of its outputs, which no
        target needs. Raises NOT_FOUND for an unknown region, INVALID_TENSOR for a place outside of it, for an
        object that has shrunk, and for an input of the wrong size."""
        request.inputs = tuple(
            self._resolved(tensor, tensor.data, request.model)
            if isinstance(tensor.data, SharedMemoryRef)
            else tensor
            for tensor in request.inputs
        )
        places: dict[str, tuple[_Region, SharedMemoryRef]] = {}
        for output in request.outputs or ():
            if output.placement is not None:
                places[output.name] = (self._region(output.placement), output.placement)
        if places and request.outputs:
            request.outputs = tuple(replace(output, placement=None) for output in request.outputs)
        return Placement(places)

    def _resolved(self, tensor: Tensor, place: SharedMemoryRef, model: str) -> Tensor:
        data = self._region(place).view(place)
        if tensor.datatype is Datatype.BYTES:
            # a copy, so that what is checked here is what is read later, whatever the client writes
            return Tensor.checked(tensor.name, tensor.datatype, tensor.shape, bytes(data))
        expected = element_count(tensor.shape, tensor.name) * tensor.datatype.itemsize
        if expected != place.size:
            raise invalid_tensor(
                f"input byte size mismatch for input '{tensor.name}' for model '{model}'. "
                f"Expected {expected}, got {place.size}"
            )
        return Tensor(tensor.name, tensor.datatype, tensor.shape, data)

    def _region(self, place: SharedMemoryRef) -> _Region:
        region = self._regions.get(place.region)
        if region is None:
            raise _unknown(place.region, "Unable to find shared memory region")
        region.check(place)
        return region


class Placement:
    """Where the outputs of one request go."""

    def __init__(self, places: Mapping[str, tuple[_Region, SharedMemoryRef]]) -> None:
        self._places = places

    def fill(self, response: InferResponse) -> None:
        """Write the outputs that have a place to it, and replace them in ``response`` by references of the
        written size. Raises INTERNAL for a place that is too small, INVALID_TENSOR if a place is an upper
        limit and the region too small."""
        if self._places:
            response.outputs = tuple(
                self._written(tensor) if tensor.name in self._places else tensor
                for tensor in response.outputs
            )

    def _written(self, tensor: Tensor) -> Tensor:
        region, place = self._places[tensor.name]
        if tensor.nbytes > place.size:
            raise _internal(
                f"shared memory size specified with the request for output '{tensor.name}' "
                f"({place.size} bytes) should be at least {tensor.nbytes} bytes to hold the results"
            )
        written = SharedMemoryRef(place.region, place.offset, tensor.nbytes)
        if place.upper_limit and tensor.nbytes:
            region.check(written)
        region.write(tensor.view, place.offset)
        return replace(tensor, data=written)


class _Region:
    """A mapped region. It begins at a page boundary."""

    def __init__(self, described: SharedMemoryRegion) -> None:
        self.described = described
        self._descriptor = _open(described.key)
        # with the last request that writes here, at the latest
        weakref.finalize(self, os.close, self._descriptor)
        self._end = described.offset + described.byte_size
        self._has_pages = False
        about = os.fstat(self._descriptor)
        refusal = f"failed to register shared memory region '{described.name}'"
        if not stat.S_ISREG(about.st_mode) or self._end > about.st_size:
            raise invalid_tensor(f"{refusal}: invalid args")
        try:
            if not described.byte_size:  # a mapping of all of the object to Python
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            self._mapping = mmap.mmap(
                self._descriptor,
                described.byte_size,
                mmap.MAP_SHARED,
                mmap.PROT_READ | mmap.PROT_WRITE,
                offset=described.offset,
            )
        except (OSError, ValueError) as error:
            # as Triton writes it, without a space
            why = getattr(error, "strerror", error)
            raise invalid_tensor(f"{refusal}: unable to process address space{why}") from error

    def check(self, place: SharedMemoryRef) -> None:
        """Raise INVALID_TENSOR if ``place`` is not inside, or the object has shrunk."""
        if not place.upper_limit:
            what = "offset" if place.offset >= self.described.byte_size else "offset + byte size"
            if what == "offset" or not 0 < place.size <= self.described.byte_size - place.offset:
                raise invalid_tensor(f"Invalid {what} for shared memory region: '{place.region}'")
        self._check_size()

    def view(self, place: SharedMemoryRef) -> memoryview:
        return memoryview(self._mapping)[place.offset : place.offset + place.size].toreadonly()

    def write(self, data: memoryview, offset: int) -> None:
        """Write ``data`` at ``offset`` of the region. Raises INTERNAL, INVALID_TENSOR for a shrunk object."""
        self._check_size()
        if not self._has_pages:
            try:
                # writing a page that there is no memory for would end the process
                os.posix_fallocate(self._descriptor, self.described.offset, self.described.byte_size)
            except OSError as error:
                raise _internal(
                    f"cannot write to shared memory region '{self.described.name}': {error.strerror}"
                ) from error
            self._has_pages = True
        # a memoryview, because it copies right where the input and the output of a request overlap
        memoryview(self._mapping)[offset : offset + len(data)] = data

    def _check_size(self) -> None:
        # touching a page that is no longer there would end the process
        if os.fstat(self._descriptor).st_size < self._end:
            raise invalid_tensor(
                f"the object behind shared memory region '{self.described.name}' has become smaller"
            )


def _open(key: str) -> int:
    name = key.lstrip("/")
    if not name or "/" in name or "\0" in name:
        raise invalid_tensor(f"'{key}' is not the key of a shared memory object")
    if name.startswith(RESERVED_PREFIX):
        raise invalid_tensor(f"the key '{key}' begins with '{RESERVED_PREFIX}', which is reserved")
    try:
        return os.open(f"{FOLDER}/{name}", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, UnicodeEncodeError) as error:
        raise _internal(f"Unable to open shared memory region: '{key}'") from error


def _unknown(name: str, what: str) -> InferenceError:
    return InferenceError(ErrorCode.NOT_FOUND, f"{what}: '{name}'", details={SHARED_MEMORY_REGION: name})
