"""One request for inference on its way: which route takes it, with whose signature it is read, who is asked,
and who instead where that one turns it away.

A request is read once for all who have the same signature. ``exchange`` writes the answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from interlingua.protocols.dialect import Opened
from interlingua.runtime.shared_memory import Placement
from interlingua.runtime.target import Target
from interlingua.runtime.upstream.model import UpstreamModel
from interlingua.schemas import (
    Context,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Operation,
    Signature,
)
from interlingua.translator.serving.observation import Observer, Room, Watch
from interlingua.translator.serving.router import Router
from interlingua.translator.serving.routing.conditions import Head
from interlingua.translator.serving.routing.route import Route

Signatures = Callable[[str], Awaitable[Signature]]
"""Gives the signature of a version. Raises ``InferenceError``."""

_UNFIT = frozenset({ErrorCode.INVALID_TENSOR, ErrorCode.UNREPRESENTABLE})
"""What a request is to a signature that it does not fit."""

Place = Callable[[InferRequest, Context], Placement | None]
"""Finds the inputs of a request that stand in shared memory, and tells where outputs go."""


@dataclass(slots=True)
class Read:
    """A message as it is read with ``signature``: the request, the form of its answer, and where in shared
    memory outputs go."""

    signature: Signature
    request: InferRequest
    form: Any
    placement: Placement | None


class Asking:
    """What ``opened`` asks, by its ``head``: with a passage first :meth:`relay`, which may be all, then
    :meth:`read`, then :meth:`infer` or :meth:`stream`. Each raises ``InferenceError``.

    ``observers`` look on, with ``room`` for streams; ``place`` is called with the request. ``parameters`` are
    added to those of the request. ``watch`` is there when somebody looks on.
    """

    __slots__ = (
        "_candidates",
        "_context",
        "_drawn",
        "_head",
        "_model",
        "_observers",
        "_opened",
        "_parameters",
        "_place",
        "_read",
        "_room",
        "_route",
        "_router",
        "_target",
        "watch",
    )

    def __init__(
        self,
        router: Router,
        opened: Opened[Any],
        head: Head,
        context: Context,
        observers: tuple[Observer, ...],
        place: Place,
        room: Room,
        parameters: Mapping[str, str] | None = None,
    ) -> None:
        self._router = router
        self._opened = opened
        self._head = head
        self._context = context
        self._observers = observers
        self._place = place
        self._parameters = parameters
        self._room = room
        self._candidates = router.candidates(head) if router.routes else ()
        self._route: Route | None = None
        self._drawn = self._model = ""
        self._target: Target
        self._read: Read | None = None
        self.watch: Watch | None = None

    @property
    def told(self) -> Read:
        """The request as whoever is asked now has it."""
        assert self._read is not None, "read before"  # noqa: S101
        return self._read

    async def relay(self) -> Any:
        """The answer, in the caller's form, to a message that may pass to its upstream unread; None for one
        that is to be read."""
        route = self._candidates[0] if self._candidates else None
        if self._observers or self._parameters or (route is not None and not route.passes):
            return None
        model = self._head.model
        if route is not None:
            route.bound(self._context)
            model = self._drawn = route.unkeyed(self._head)
        target = self._router.models.get(model)
        if not isinstance(target, UpstreamModel):
            return None
        try:
            answer = await target.relay(self._opened, self._head.model, self._head.version, self._context)
        except InferenceError as error:
            if route is not None:
                if route.fallback and await self._is_of_a_sequence(route):
                    return None  # which never passes: nobody has been asked for more than the signature
                route.count(model)
                if route.falls_back(model, error, None, unread=False):
                    self._route, self._model = route, route.fallback
                    return None
            raise
        if answer is not None and route is not None:
            route.count(model)
        return answer

    async def read(self) -> None:
        """Read the request, with the signature of the model that is going to be asked."""
        if self._model:  # what was relayed has fallen back
            await self._settle(self._model)
            return
        for route in self._candidates:
            if not route.when.parameters or await self._is_accepted(route):
                await self._by(route)
                return
        self._target = self._router.target(self._head.model, self._head.version)
        await self._read_for(self._head.model, self._head.version, self._target.signature)
        self._show()

    async def infer(self) -> InferResponse:
        """The answer to what was read."""
        try:
            response = await self._target.infer(self.told.request)
        except InferenceError as error:
            await self._fall_back(error)
            response = await self._target.infer(self.told.request)
        if self.watch is not None:
            self.watch.heard(response)
        return response

    async def stream(self) -> AsyncGenerator[InferResponse, None]:
        """The answers to what was read, as they come."""
        while True:
            responses = self._target.stream(self.told.request)
            answered = False
            try:
                async for response in responses:
                    answered = True
                    if self.watch is not None:
                        self.watch.heard(response)
                    yield response
                return
            except InferenceError as error:
                if answered:
                    raise
                await self._fall_back(error)
            finally:
                # to close it is to cancel it; an iterator that is no generator has nothing to close
                if (close := getattr(responses, "aclose", None)) is not None:
                    await close()

    # --- whom to ask

    async def _is_accepted(self, route: Route) -> bool:
        """Whether ``route``, which asks for parameters, takes the request. One that cannot be read as its
        models want it is not for it; where none of them can tell, how others read it will do."""
        others = [model for each in self._candidates if each is not route for model in each.models]
        try:
            read = await self._legible(route, route.models)
            if read is None:
                read = await self._legible(route, dict.fromkeys((*others, self._head.model)))
        except InferenceError:
            return False
        return read is not None and route.when.accepts(read.request)

    async def _by(self, route: Route) -> None:
        """Have ``route`` take the request."""
        route.bound(self._context)
        self._route = route
        sequence = None
        if len(route.models) > 1:
            # whether it is of a sequence decides who is asked
            read = await self._legible(route, route.models)
            sequence = None if read is None else read.request.sequence
        model = route.settled(self._head, sequence, self._drawn)
        try:
            await self._settle(model)
        except InferenceError as error:
            if not route.falls_back(model, error, sequence, unread=True):
                raise
            await self._settle(route.fallback)

    async def _fall_back(self, error: InferenceError) -> None:
        """Go to another model than the one that has answered with ``error``; raise it where that must not
        be."""
        route = self._route
        if route is None or not route.falls_back(
            self._model, error, self.told.request.sequence, unread=False
        ):
            raise self._in_both_dialects(error)
        await self._settle(route.fallback)

    def _in_both_dialects(self, error: InferenceError) -> InferenceError:
        """``error``; one that says what an upstream's dialect has no form for names the caller's too."""
        if error.code is ErrorCode.UNREPRESENTABLE and error.origin:
            error.message += f" (asked in dialect '{self._head.dialect}')"
        return error

    async def _settle(self, model: str) -> None:
        """Read the request for ``model``, to which the route leads."""
        route = self._route
        assert route is not None, "a route leads there"  # noqa: S101
        self._model = model
        self._target = self._seen(route, self._router.target(model, self._head.version))
        read = await self._read_for(
            model,
            route.names.version(self._head.version),
            lambda version: route.timed_signature(self._target, version, self._context),
        )
        if route.datatypes:
            behind = self._router.behind.get(model, "")
            route.convert(read.request, read.signature, self._head.dialect, behind)
        self._show()

    def _seen(self, route: Route, target: Target) -> Target:
        return target if route.names.plain else route.view(target, self._head.model)

    # --- reading

    async def _read_for(self, model: str, theirs: str, signature: Signatures) -> Read:
        """Read the request for ``model``, which goes to its version ``theirs``; ``signature`` gives the
        signature of a version that callers know.

        Behind an upstream another model may have come under that name: a request that cannot be read is not
        refused before the upstream was asked again. Requests that fail for want of a signature count as that
        model's.
        """
        target, version = self._router.models.get(model), self._head.version
        if not isinstance(target, UpstreamModel):
            return self._decoded(await signature(version))
        began = time.monotonic_ns()
        try:
            known = await signature(version)
        except (InferenceError, asyncio.CancelledError) as end:
            target.count_unread(end, theirs, began, self._context)
            raise
        try:
            return self._decoded(known)
        except InferenceError as error:
            if error.code not in _UNFIT:
                raise
            await target.renew_signature(theirs)
            renewed = await signature(version)
            if renewed == known:
                raise
        return self._decoded(renewed)

    async def _is_of_a_sequence(self, route: Route) -> bool:
        try:
            read = await self._legible(route, route.models)
        except InferenceError:
            return False
        return read is not None and read.request.sequence is not None

    async def _legible(self, route: Route, models: Iterable[str]) -> Read | None:
        """The request, as it is read for one of ``models`` whose signature is known; None where none is."""
        signature = None
        if route.reader:
            with suppress(InferenceError):
                signature = await self._signature(route, route.reader)
        if signature is None:
            signature = await self._first_known(route, models)
        return None if signature is None else self._decoded(signature)

    async def _first_known(self, route: Route, models: Iterable[str]) -> Signature | None:
        """The signature of whichever of ``models`` tells first: one that is slow to tell must not keep the
        others waiting. Later requests ask the same one."""
        asked = {asyncio.ensure_future(self._signature(route, model)): model for model in models}
        waiting = set(asked)
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task, model in asked.items():
                    if task in done:
                        with suppress(InferenceError):
                            signature = task.result()
                            route.reader = model if model in route.models else ""
                            return signature
        finally:
            for task in waiting:
                task.cancel()
            # a failure of one that is not needed belongs to nobody
            await asyncio.gather(*asked, return_exceptions=True)
        return None

    async def _signature(self, route: Route, model: str) -> Signature:
        target = self._seen(route, self._router.target(model, self._head.version))
        return await route.timed_signature(target, self._head.version, self._context)

    def _decoded(self, signature: Signature) -> Read:
        """The request, as it is read with ``signature``."""
        read = self._read
        if read is not None and read.signature == signature:
            return read
        opened, head = self._opened, self._head
        decode = opened.action.decode
        assert decode is not None, "an action for inference has a decoder"  # noqa: S101
        began = time.monotonic_ns()
        request, form = decode(opened, signature)
        request.model, request.context = head.model, self._context
        if opened.action.operation is Operation.INFER_STREAM and not opened.action.collects:
            request.answers = "many"
        if self._parameters:
            request.parameters = {**request.parameters, **self._parameters}
        if opened.joined:
            request.version = head.version
        placement = self._place(request, self._context)
        # to find inputs in shared memory is to decode them, as to place outputs there is to encode them
        self._context.timings["decode"] = time.monotonic_ns() - began
        self._read = Read(signature, request, form, placement)
        return self._read

    def _show(self) -> None:
        """Let whoever wants to look on: what has been read is what will be asked."""
        if self.watch is not None:
            self.watch.goes_to(self._target.name)
            return
        observers = self._observers
        if self._route is None:
            if not observers:
                return
        elif self._route.mirror is not None:
            observers = (*observers, self._route.mirror)
        if observers:
            head, read = self._head, self.told
            room = self._room if self._opened.action.operation is Operation.INFER_STREAM else None
            self.watch = Watch.over(
                observers,
                read.request,
                head.dialect,
                head.listener,
                self._target.name,
                room,
                read.signature.max_batch_size,
            )
