"""One model on several devices, as one instance: every run takes a device that is free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from operator import itemgetter
from queue import SimpleQueue

from interlingua.runtime.backends import Instance
from interlingua.schemas import Tensor


class Spread:
    """An ``Instance`` made of one per device. ``devices`` names one for each concurrent run, the same one
    several times for several runs; ``load`` returns the instance on a device. A run without a free device
    waits. Runs use the devices in turn while all are free. Raises the errors of ``load``, with nothing left
    loaded."""

    bounded = False

    def __init__(self, devices: Sequence[str], load: Callable[[str], Instance]) -> None:
        self._instances: dict[str, Instance] = {}
        try:
            for device in dict.fromkeys(devices):
                self._instances[device] = load(device)
        except Exception:
            self.close()
            raise
        self.signature = next(iter(self._instances.values())).signature
        self.count = len(self._instances)
        self._free: SimpleQueue[Instance] = SimpleQueue()
        for device in _in_turn(devices):
            self._free.put(self._instances[device])

    def run(self, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> tuple[Tensor, ...]:
        """Run on the device that has been free for longest. Raises the instance's errors."""
        instance = self._free.get()
        try:
            return instance.run(inputs, outputs)
        finally:
            self._free.put(instance)

    def close(self) -> None:
        for instance in self._instances.values():
            instance.close()


def _in_turn(devices: Sequence[str]) -> list[str]:
    """``devices`` with equal ones as far apart as possible: each once, each a second time …"""
    seen = Counter[str]()
    turns: list[tuple[int, str]] = []
    for device in devices:
        turns.append((seen[device], device))
        seen[device] += 1
    return [device for _, device in sorted(turns, key=itemgetter(0))]
