"""Checks every server of the upstreams, and every model that the configuration expects there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from interlingua.protocols.dialect import Binding
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.address import parse_url
from interlingua.protocols.transport.reach import unreachable
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    ModelMetadata,
    ModelRef,
    ModelState,
    ModelStatus,
    Operation,
    Readiness,
)
from interlingua.translator.config.document import Path
from interlingua.translator.config.members import members_of
from interlingua.translator.config.models import ModelOptions
from interlingua.translator.config.options import Config
from interlingua.translator.config.upstreams import UpstreamOptions
from interlingua.translator.probe.conversation import Conversation, described, detect
from interlingua.translator.probe.signatures import Fault, differences

_LISTED = 12
"""The maximum number of models to list."""


@dataclass(slots=True)
class Probed:
    """One server of an upstream: its name, and its faults, each with the key that it concerns."""

    upstream: str
    url: str
    name: str = ""
    faults: list[Fault] = field(default_factory=list)


async def probe(config: Config, timeout_secs: float) -> list[Probed]:
    """Query every server of ``config`` concurrently; each query may take ``timeout_secs``."""
    probes = [
        # all servers of a members file are at its place in the configuration
        _probe_server(
            name, min(place, len(options.urls) - 1), member.url, options, _models(config, name), timeout_secs
        )
        for name, options in config.upstreams.items()
        for place, member in enumerate(members_of(options))
    ]
    return list(await asyncio.gather(*probes))


def _models(config: Config, upstream: str) -> Mapping[str, ModelOptions]:
    return {name: model for name, model in config.models.items() if model.upstream == upstream}


async def _probe_server(
    name: str,
    place: int,
    text: str,
    options: UpstreamOptions,
    models: Mapping[str, ModelOptions],
    timeout_secs: float,
) -> Probed:
    url = parse_url(text, options.transport)
    binding = DIALECTS[options.dialect].bindings[options.transport]
    found, here = Probed(name, text), ("upstreams", name, "urls", place)
    if reason := await unreachable(url.address, timeout_secs):
        found.faults.append((here, f"{text} cannot be reached: {reason}"))
        return found
    remotes = {ours: _remote(ours, model, binding) for ours, model in models.items()}
    some = next(iter(remotes.values()), "")
    async with Conversation(url, binding, timeout_secs) as server:
        try:
            found.name = await server.introduce(some)
        except InferenceError as error:
            others = await detect(url, timeout_secs, some)
            if not others and models and await server.is_silent(some):
                found.faults += _undeclared(models, text)
                return found
            found.faults.append((_at_fault(here, binding, others), _other(text, binding, others, error)))
            return found
        flavor = found.name.partition(" ")[0] if options.flavor == "auto" else options.flavor
        server.use(binding.flavored(flavor))
        ready = await _ready(server, Operation.READY, None)
        if not ready.ready:
            found.faults.append((here, f"{text} is not ready{_because(ready.reason)}"))
        for ours, model in models.items():
            async for path, words in _faults(server, model, remotes[ours], binding):
                found.faults.append((("models", ours, *path), f"{words} (at {text})"))
    return found


def _undeclared(models: Mapping[str, ModelOptions], text: str) -> Iterator[Fault]:
    """The faults of models whose server reports no metadata, which may be correct."""
    for name, model in models.items():
        if model.signature is None:
            words = f"the server reports no metadata of its model: declare its signature (at {text})"
            yield ("models", name, "upstream"), words


def _remote(name: str, model: ModelOptions, binding: Binding) -> str:
    """The model's name there, as the daemon sends it."""
    default = name if binding.capability.model_name else ""
    return default if model.remote_model is None else model.remote_model


async def _faults(
    server: Conversation, model: ModelOptions, remote: str, binding: Binding
) -> AsyncIterator[Fault]:
    at: Path = ("upstream",) if model.remote_model is None else ("remote_model",)
    if not server.offers(Operation.MODEL_METADATA):
        async for fault in _faults_without_metadata(server, model, remote, at):
            yield fault
        return
    try:
        metadata: ModelMetadata = await server.call(Operation.MODEL_METADATA, ModelRef(remote))
    except InferenceError as error:
        if error.code is ErrorCode.UNSUPPORTED:  # an optional operation
            return
        there = await _listed(server)
        if there is not None and remote not in there:
            yield at, _missing(remote, there)
        elif there is not None and not there[remote]:
            yield at, f"the server has not loaded model '{remote}'"
        else:
            yield at, f"the server reports no metadata of model '{remote}': {_short(error.message)}"
        return
    ready = await _ready(server, Operation.MODEL_READY, ModelRef(remote))
    if not ready.ready:
        yield at, f"model '{remote}' is not ready{_because(ready.reason)}"
    capability = binding.capability
    if capability.signatures and (metadata.signature.inputs or metadata.signature.outputs):
        for fault in differences(model, metadata.signature, capability):
            yield fault


async def _faults_without_metadata(
    server: Conversation, model: ModelOptions, remote: str, at: Path
) -> AsyncIterator[Fault]:
    """The faults of a model on a server whose flavor describes none, such as KServe's."""
    there = await _listed(server)
    if there is not None and remote not in there:
        yield at, _missing(remote, there)
        return
    ready = await _ready(server, Operation.MODEL_READY, ModelRef(remote))
    if not ready.ready:
        yield at, f"model '{remote}' is not ready{_because(ready.reason)}"
    if model.signature is None:
        yield at, f"the server reports no metadata of model '{remote}': declare its signature"


async def _ready(server: Conversation, operation: Operation, argument: ModelRef | None) -> Readiness:
    if not server.offers(operation):
        return Readiness(True)
    try:
        ready: Readiness = await server.call(operation, argument)
    except InferenceError as error:
        return Readiness(error.code is ErrorCode.UNSUPPORTED, error.message)
    return ready


async def _listed(server: Conversation) -> Mapping[str, bool] | None:
    """The server's models and whether each is loaded; None if it does not list them."""
    if not server.offers(Operation.REPOSITORY_INDEX):
        return None
    try:
        models: Sequence[ModelStatus] = await server.call(Operation.REPOSITORY_INDEX)
    except InferenceError:
        return None
    # some servers list only names, some list versions only of loaded models
    versions = any(model.versions for model in models)
    return {
        model.name: not versions or any(version.state is ModelState.READY for version in model.versions)
        for model in models
    }


def _at_fault(here: Path, declared: Binding, others: Sequence[Binding]) -> Path:
    """The key to change: the URL, unless only the dialect or only the transport differs."""
    if any(other.transport == declared.transport for other in others):
        return (*here[:2], "dialect")
    if any(other.dialect == declared.dialect for other in others):
        return (*here[:2], "transport")
    return here


def _other(text: str, declared: Binding, others: Sequence[Binding], error: InferenceError) -> str:
    if others:
        return f"{text} answers {', '.join(map(described, others))}; not {described(declared)}"
    reason = f"{_short(error.message)}; nor any other known dialect"
    return f"{text} does not answer {described(declared)}: {reason}"


def _missing(remote: str, there: Mapping[str, bool]) -> str:
    return f"the server has no model '{remote}'{_names(remote, there)}"


def _names(missing: str, there: Mapping[str, bool]) -> str:
    names = sorted(name for name, loaded in there.items() if loaded)
    if not names:
        return ", and no other that is loaded"
    near = get_close_matches(missing, names, n=1)
    meant = f"; is '{near[0]}' meant?" if near else ""
    more = f", and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{meant} (there are: {', '.join(names[:_LISTED])}{more})"


def _because(reason: str) -> str:
    return f": {_short(reason)}" if reason else ""


def _short(words: str) -> str:
    return " ".join(words.split())[:300]
