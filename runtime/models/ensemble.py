"""The plan of an ensemble: its models, and how their tensors connect.

The tensors of an ensemble have their own names. Each step consumes some and produces others.
``runtime.backends.ensemble`` runs the plan. The names of the fields are those of ``config.pbtxt``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """A model; ``inputs`` and ``outputs`` map its tensors to the ensemble's. An empty ``version`` is the one
    that the model's policy chooses."""

    model: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    version: str = ""


Needed = tuple[Step, tuple[str, ...]]
"""A step that has to run, with the outputs of its model that are needed."""

_ONCE = -1


@dataclass(frozen=True, slots=True)
class EnsemblePlan:
    """The steps of an ensemble, each after those that produce its inputs, and its ``outputs``."""

    steps: tuple[Step, ...]
    outputs: tuple[str, ...] = ()

    def mixture(self, decoupled: Collection[int]) -> str:
        """Why the plan does not work if the models of the steps at these places are ``decoupled``; empty if
        it does. A step runs once for every answer of the decoupled step that it follows, so all its inputs,
        and all outputs of the ensemble, must follow the same one. Triton refuses other plans too."""
        origins: dict[str, int] = {}
        for place, step in enumerate(self.steps):
            found = {origins.get(tensor, _ONCE) for tensor in step.inputs.values()}
            if len(found) > 1:
                return f"step '{step.model}' takes tensors that originate from different decoupled models"
            own = place if place in decoupled else found.pop() if found else _ONCE
            origins |= dict.fromkeys(step.outputs.values(), own)
        if len({origins.get(tensor, _ONCE) for tensor in self.outputs}) > 1:
            return "its outputs originate from different decoupled models"
        return ""

    def needed(self, outputs: Iterable[str]) -> list[Needed]:
        """The steps that have to run for ``outputs``, in their order."""
        wanted = set(outputs)
        found = []
        for step in reversed(self.steps):
            needed_outputs = tuple(name for name, tensor in step.outputs.items() if tensor in wanted)
            if needed_outputs:
                wanted.update(step.inputs.values())
                found.append((step, needed_outputs))
        return found[::-1]


def plan(steps: Sequence[Step], inputs: Iterable[str], outputs: Iterable[str]) -> EnsemblePlan:
    """``steps`` in order, for an ensemble with ``inputs`` and ``outputs``. Raises ``ValueError``, naming
    tensor and step: no steps, a tensor from two sources or from none, steps that wait for each other, a
    tensor or an input without a consumer."""
    if not steps:
        raise ValueError("an ensemble needs at least one step")
    inputs, outputs = tuple(inputs), tuple(outputs)
    givers = dict.fromkeys(inputs, "the ensemble's inputs")
    for number, step in enumerate(steps):
        label = _label(number, step)
        if not step.model:
            raise ValueError(f"step {number} names no model")
        if not step.outputs:
            raise ValueError(f"{label} has no output_map")
        for tensor in step.outputs.values():
            if tensor in givers:
                raise ValueError(f"tensor '{tensor}' comes from {givers[tensor]} and from {label}")
            givers[tensor] = label
    takers = dict.fromkeys(outputs, "the ensemble's outputs")
    for number, step in enumerate(steps):
        takers |= dict.fromkeys(step.inputs.values(), _label(number, step))
    for tensor, taker in takers.items():
        if tensor not in givers:
            raise ValueError(f"tensor '{tensor}', which {taker} takes, comes from nowhere")
    for tensor, giver in givers.items():
        if tensor not in takers:
            raise ValueError(f"tensor '{tensor}' from {giver} is taken by no step and is no output")
    return EnsemblePlan(_ordered(steps, inputs), outputs)


def downstream(first: Needed, waiting: Iterable[Needed]) -> list[Needed]:
    """The steps of ``waiting``, in order, that need outputs of ``first``, directly or not."""
    tensors = set(first[0].outputs.values())
    found = []
    for each in waiting:
        if not tensors.isdisjoint(each[0].inputs.values()):
            tensors.update(each[0].outputs.values())
            found.append(each)
    return found


def _ordered(steps: Sequence[Step], inputs: Iterable[str]) -> tuple[Step, ...]:
    there = set(inputs)
    remaining = list(enumerate(steps))
    ordered: list[Step] = []
    while remaining:
        ready = [(number, step) for number, step in remaining if there.issuperset(step.inputs.values())]
        if not ready:
            names = ", ".join(_label(number, step) for number, step in remaining)
            raise ValueError(f"these wait for each other: {names}")
        for number, step in ready:
            remaining.remove((number, step))
            there.update(step.outputs.values())
            ordered.append(step)
    return tuple(ordered)


def _label(number: int, step: Step) -> str:
    return f"step {number} (model '{step.model}')"
