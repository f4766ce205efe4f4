"""The states of a sequence: outputs that are inputs of the next request.

Contract: the memory of a sequence changes in the thread that runs its requests, one run at a time, and a run
that fails leaves it as it was. Clients get a state only if they request that output by name.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Executor

from interlingua.runtime.models.reshape import Run
from interlingua.runtime.models.shapes import fits
from interlingua.runtime.scheduling.batch import gathered, scattered
from interlingua.runtime.scheduling.queue import Entry, Memory
from interlingua.runtime.scheduling.runners import Ran, ThreadRunner, execution_of
from interlingua.runtime.scheduling.sequence_controls import zeros
from interlingua.runtime.scheduling.sequence_policy import State
from interlingua.schemas import Tensor, model_failed


class States:
    """The ``states`` of a model as tensors. ``batched``: shapes begin with a batch."""

    def __init__(self, states: Sequence[State], batched: bool) -> None:
        self._states = states
        self.joins = not any(-1 in state.shape[int(batched) :] for state in states)
        """Whether all sequences have states of one shape, so that their requests can share a batch."""

    def __bool__(self) -> bool:
        return bool(self._states)

    def initial(self) -> tuple[Tensor, ...]:
        """The inputs of the first request of a sequence."""
        return tuple(state.initial for state in self._states)

    def inputs(self, entries: Sequence[Entry]) -> tuple[Tensor, ...]:
        """The states of the sequences of ``entries``, a row each; zeros for padding rows."""
        return tuple(self._rows(state, entries) for state in self._states)

    def outputs(self, requested: tuple[str, ...]) -> tuple[str, ...]:
        """``requested`` and the states."""
        return (
            *requested,
            *(state.output_name for state in self._states if state.output_name not in requested),
        )

    def keep(self, memory: Memory, outputs: Sequence[Tensor], alone: bool) -> None:
        """Store the states among ``outputs``, one row; ``alone``: they are not part of a larger buffer.
        Raises MODEL_FAILED for an undeclared shape."""
        by_name = {tensor.name: tensor for tensor in outputs}
        kept = {}
        for state in self._states:
            tensor = by_name[state.output_name]
            if not fits(tensor.shape, state.shape):
                raise model_failed(
                    f"state output '{state.output_name}' came in shape {list(tensor.shape)}, declared is "
                    f"{list(state.shape)}"
                )
            data = tensor.view if alone else memoryview(bytes(tensor.view))
            kept[state.input_name] = Tensor(state.input_name, state.datatype, tensor.shape, data)
        memory.update(kept)

    def _rows(self, state: State, entries: Sequence[Entry]) -> Tensor:
        found = [
            None if entry.memory is None else entry.memory.get(state.input_name, state.initial)
            for entry in entries
        ]
        row = next(tensor for tensor in found if tensor is not None)
        if len(found) == 1:
            return row
        padding = zeros(row.name, row.datatype, row.shape)
        data = b"".join([(tensor or padding).view for tensor in found])
        return Tensor(row.name, row.datatype, (len(found), *row.shape[1:]), memoryview(data))


class StatefulRunner(ThreadRunner):
    """A ``ThreadRunner`` of one instance that passes the model its ``states`` and stores them."""

    def __init__(self, run: Run, threads: Executor, states: States) -> None:
        super().__init__(run, threads, 1)
        self._states = states

    def _work(self, entries: list[Entry], run: Run) -> list[Ran]:
        started = time.monotonic_ns()
        inputs = gathered(entries) + self._states.inputs(entries)
        ready = time.monotonic_ns()
        requested = entries[0].outputs
        outputs = run(inputs, self._states.outputs(requested))
        ended = time.monotonic_ns()
        rows = scattered(outputs, entries) if entries[0].rows else [outputs]
        for entry, row in zip(entries, rows, strict=True):
            if entry.memory is not None:
                self._states.keep(entry.memory, row, len(entries) == 1)
        execution = execution_of(entries)
        return [Ran(row[: len(requested)], started, ready, ended, execution) for row in rows]
