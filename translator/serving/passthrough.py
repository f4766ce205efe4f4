"""Passthrough: a message goes to its upstream, and the answer to the caller, with the tensors undecoded.

It needs a listener's action and a target with the same ``Passthrough``, which rewrites names that differ.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from interlingua.protocols.dialect import Opened
from interlingua.runtime.target import Target
from interlingua.schemas import Context, InferResponse
from interlingua.translator.serving.routing.conditions import RouteKey


async def pass_through(opened: Opened[Any], target: Target, key: RouteKey, context: Context) -> Any:
    """The answer of ``target``, in the caller's form, to the message ``opened``; None if the message needs
    decoding. Raises as ``Target.infer``."""
    action = opened.action
    passthrough = action.passthrough
    heads = None if passthrough is None else passthrough.heads(opened)
    if passthrough is None or heads is None:
        return None
    forward = await target.accept(heads, key.model, key.version, context)
    if forward is None:
        return None
    message = passthrough.call(opened, forward.names)
    if message is None:
        return None
    answer = await target.forward(forward, message, partial(passthrough.answer, opened, forward.names))
    if not isinstance(answer, InferResponse):
        return answer
    # the reply has another form than the caller requested
    if action.decode is None:
        raise TypeError(f"{action.operation.value} has no decoder")
    _, form = action.decode(opened, forward.signature)
    answer.model = key.model
    return action.encode(form, answer)
