"""The Open Inference Protocol on both of its transports: ids and classes."""

from __future__ import annotations

import string
from typing import Any

from hypothesis import strategies as st

from interlingua.protocols.classification import Ranked
from interlingua.protocols.dialect import UpstreamCall
from interlingua.schemas import Datatype, ErrorCode, InferenceError, InferRequest, Signature, Tensor
from interlingua.translator.conformance.wire import Ranking

EXTENSIONS = {"classes": "classification", "memory": "system_shared_memory"}
"""Optional features, by their names in the list of extensions."""

PLAIN_IDS = st.text(string.ascii_letters + string.digits + "-_.", min_size=1, max_size=12)
"""Ids like those of clients."""

ANY_IDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=12)
"""Any text without control characters."""


def with_classes(call: UpstreamCall[Any, Any]) -> UpstreamCall[Any, Any]:
    """``call`` with outputs requested as classes decoded as such."""

    def encode(request: InferRequest, signature: Signature | None) -> tuple[Any, Any]:
        sent, form = call.encode(request, signature)
        classified = frozenset(output.name for output in request.outputs or () if output.classification)
        return sent, (form, classified, bool(signature and signature.max_batch_size))

    def decode(form: Any, reply: Any) -> Ranking:
        kept, classified, batched = form
        response = call.decode(kept, reply)
        found = {one.name: _entries(one, batched) for one in response.outputs if one.name in classified}
        response.outputs = tuple(one for one in response.outputs if one.name not in classified)
        return Ranking(found, response)

    return UpstreamCall(encode, decode)


def _entries(output: Tensor, batched: bool) -> list[list[Ranked]]:
    """The classes in BYTES of shape [batch, n], or [n] without a batch. Raises BAD_UPSTREAM otherwise."""
    if output.datatype is not Datatype.BYTES or len(output.shape) != 1 + batched:
        raise _no_class(f"output '{output.name}' is {output.datatype.value} {list(output.shape)}")
    each = output.shape[-1]
    ranked = list(map(_ranked, output.elements()))
    return [ranked[at * each : (at + 1) * each] for at in range(output.shape[0] if batched else 1)]


def _ranked(element: bytes) -> Ranked:
    """``value:index`` or ``value:index:label``."""
    value, _, rest = element.decode(errors="backslashreplace").partition(":")
    place, _, label = rest.partition(":")
    try:
        return Ranked(int(place), float(value), label)
    except ValueError:
        raise _no_class(f"{element[:80]!r}") from None


def _no_class(what: str) -> InferenceError:
    return InferenceError(ErrorCode.BAD_UPSTREAM, f"{what}: not 'value:index[:label]'")
