"""The server's side of the calls that a model makes: finds the called model, and returns its answers.

A call inherits the bounds of the model's current requests: it ends with the last of their deadlines, and when
all of them are cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from interlingua.runtime.python_worker.codes import reported_error
from interlingua.runtime.python_worker.parameters import read_parameters
from interlingua.runtime.target import ServerHooks
from interlingua.schemas import (
    Context,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    RequestedOutput,
    Tensor,
    invalid_tensor,
    unavailable,
)
from interlingua.schemas.messages import Sequence as Place

_log = logging.getLogger(__name__)


Reply = Callable[
    [int, Sequence[Tensor], Mapping[str, Any], tuple[int, str] | None, bool], Coroutine[Any, Any, None]
]
"""Sends the model an answer to a call: its number, tensors, parameters, error, and whether it is the last.
Waits while the model does not read."""


class Outgoing:
    """The running calls of one worker. ``contexts`` are those of its current requests, None if all their
    callers have disconnected."""

    def __init__(
        self, reply: Reply, contexts: Callable[[], Sequence[Context] | None], caller: object
    ) -> None:
        self.hooks: ServerHooks | None = None
        self._reply = reply
        self._contexts = contexts
        self._caller = caller
        self._calls: dict[int, tuple[asyncio.Task[None], Context]] = {}

    def start(self, value: Sequence[Any], inputs: tuple[Tensor, ...]) -> None:
        """Start the call of a message."""
        number = value[0]
        context = self._context()
        task = asyncio.get_running_loop().create_task(self._answer(value, inputs, context))
        self._calls[number] = task, context
        task.add_done_callback(lambda _: self._calls.pop(number, None))

    def stop(self, number: int) -> None:
        """The model needs no more answers to a call."""
        if number in self._calls:
            self._calls[number][0].cancel()

    def cancel(self) -> None:
        """Fail all calls, because the callers of the run have disconnected."""
        for _, context in list(self._calls.values()):
            context.cancel.cancel()

    def close(self) -> None:
        """The process has exited."""
        for task, _ in list(self._calls.values()):
            task.cancel()

    def _context(self) -> Context:
        """The context of a call that starts now."""
        now = self._contexts()
        contexts = now or ()
        deadlines = [context.deadline for context in contexts if context.deadline is not None]
        bound = bool(contexts) and len(deadlines) == len(contexts)
        first = contexts[0] if contexts else Context()
        context = Context(
            max(deadlines) if bound else None,
            traceparent=first.traceparent,
            tracestate=first.tracestate,
            peer=first.peer,
            headers=first.headers,
            server_id=first.server_id,
            request_number=first.request_number,
            caller=self._caller,
            copied=bool(contexts) and all(context.copied for context in contexts),
        )
        if now is None:
            context.cancel.cancel()
        return context

    async def _answer(self, value: Sequence[Any], inputs: tuple[Tensor, ...], context: Context) -> None:
        number, name, *_, decoupled, _ = value
        try:
            if self.hooks is None:
                raise unavailable(f"model '{name}' cannot be called: no server serves the caller")
            if context.cancel.cancelled:
                raise InferenceError(ErrorCode.CANCELLED, "nobody waits for the run that makes this call")
            target = self.hooks.find(name)
            request = _request(value, inputs, context)
            if not decoupled:
                await self._send(number, await target.infer(request))
                return
            async with aclosing(target.stream(request)) as responses:
                async for response in responses:
                    await self._send(number, response)
        except InferenceError as error:
            await self._reply(number, (), {}, reported_error(error), True)
        except Exception as error:
            _log.exception("unexpected error in model call", extra={"facts": {"model": name}})
            failure = InferenceError(ErrorCode.INTERNAL, f"{type(error).__name__}: {error}")
            await self._reply(number, (), {}, reported_error(failure), True)

    async def _send(self, number: int, response: InferResponse) -> None:
        error = None if response.error is None else reported_error(response.error)
        await self._reply(number, response.outputs, response.parameters, error, response.final)


def _request(value: Sequence[Any], inputs: tuple[Tensor, ...], context: Context) -> InferRequest:
    """The request of a message. Raises INVALID_TENSOR for its parameters."""
    _, name, version, id, correlation_id, flags, timeout, text, outputs, decoupled, _ = value
    try:
        parameters = read_parameters(text)
    except ValueError as error:
        raise invalid_tensor(f"a call of model '{name}' has {error}") from error
    return InferRequest(
        name,
        inputs,
        tuple(RequestedOutput(output) for output in outputs) or None,
        "" if version < 0 else str(version),
        id,
        parameters,
        Place(correlation_id, bool(flags & 1), bool(flags & 2)) if correlation_id else None,
        timeout_us=timeout,
        answers="many" if decoupled else "one",
        context=context,
    )
