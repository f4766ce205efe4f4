"""The verdicts of one path, and the matrix of all paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from interlingua.schemas import Datatype
from interlingua.translator.fidelity.features import FEATURES
from interlingua.translator.fidelity.parties import Party, callers, targets
from interlingua.translator.fidelity.tensors import answered, binary, payloads, sent
from interlingua.translator.fidelity.verdict import Outcome, Verdict

BINARY, PAYLOADS = "BYTES, not UTF-8", "payloads of NaN"

Both = tuple[Verdict, Verdict]
"""For a tensor sent to the model, and for one in the answer."""

_ORDER = tuple(Outcome)


@dataclass(frozen=True)
class Path:
    """Verdicts on ``tensors``, by datatype or special contents, and on everything else, by feature."""

    caller: Party
    target: Party
    tensors: Mapping[str, Both]
    features: Mapping[str, Verdict]

    def worst(self, datatype: Datatype) -> Outcome:
        """The worse outcome of a datatype, sent and answered."""
        return max((verdict.outcome for verdict in self.tensors[datatype.value]), key=_ORDER.index)

    @property
    def verdicts(self) -> Iterator[Verdict]:
        for both in self.tensors.values():
            yield from both
        yield from self.features.values()


def judge(caller: Party, target: Party) -> Path:
    parties = caller, target
    tensors = {kind.value: (sent(*parties, kind), answered(*parties, kind)) for kind in Datatype}
    tensors[BINARY] = binary(*parties), binary(*parties)
    tensors[PAYLOADS] = payloads(*parties), payloads(*parties)
    return Path(caller, target, tensors, {name: feature(*parties) for name, feature in FEATURES.items()})


def matrix() -> dict[tuple[str, str], Path]:
    pairs = product(callers().values(), targets().values())
    return {(caller.name, target.name): judge(caller, target) for caller, target in pairs}
