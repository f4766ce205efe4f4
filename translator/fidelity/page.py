"""The matrix as a page of Markdown, docs/fidelity.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from interlingua.schemas import Datatype, ErrorCode
from interlingua.translator.fidelity.ends import End, callers, targets
from interlingua.translator.fidelity.path import Path, matrix
from interlingua.translator.fidelity.verdict import Outcome, Verdict

_HEAD = """\
# Fidelity

What arrives, of everything that a request and its answer may have, on the way from any caller to any target:
a model that runs here, or an upstream. Callers and upstreams are named by dialect and transport.

This page is computed from what each dialect and each backend declares that it carries, and it is what came
out of `tests/e2e/test_matrix.py`, which sends each of these things through two daemons on every one of the
paths below, with the values that go wrong first: infinities, NaN, -0, subnormals, the ends of integers,
strings that are no text, tensors without elements or dimensions. `interlingua fidelity` tells the same, and
of one path in words: `interlingua fidelity --from oip/http --to grps/brpc`.

| in the tables | |
|---|---|
| = | arrives: tensors bit for bit, everything else in the words of the other dialect |
| a datatype | arrives with the same value, in this wider datatype |
| here | the target is not told: it is done here, and the caller sees no difference |
| - | does not arrive; the request is answered without it, which an upstream's model counts |
| no | refused, with an error that names the tensor, parameter or version, and the dialect |
| (nothing) | cannot come up: the caller's dialect has no words for it, or the target no such models |

`sent / answered` stand in one cell where they differ. A widened tensor becomes itself again where the model's
signature declares the narrow type: so it reaches models, and callers who know the signature. What a caller's
dialect cannot say is refused by its own client before anything is sent. An upstream that is `strict` refuses
what it would leave out ([upstreams.md](upstreams.md#what-is-left-out)).
"""

_STATED = """\
An upstream's signature has to be stated in the configuration (`signature`) where the upstream cannot tell it:
of every model, or of those that have a tensor of a datatype, or a batch, that its metadata have no form for.
"""

_NOTES = """\
- *Ids*: the answer has the caller's id in any case. A model that is a function on tensors is told none.
- *Parameters with a place of their own*: GraphPipe's `config`, which is a text.
- *Classes* are ranked here from the raw output, also of upstreams that could: theirs are rounded.
- *A sequence* whose id does not fit is refused, because it would be taken for another one.
- *A map of scalars* is grps' `gmap`. Each entry is a tensor, and the answer a map again; to a grps server the
  map goes as it is. Every map and every datatype but UINT64 arrives.
- *Several answers* come over oip/http in the flat form of `generate_stream`, without shapes and datatypes. A
  model that answers once can be asked for a stream on every path.
- *Shared memory*: inputs are read and outputs placed here; no upstream is told of a region.
"""

_ERRORS = """\
What a client understands of each error, by the status or the code that its dialect has for it; its words
arrive beside it. An error of an upstream is read by the upstream's column and then told by the caller's. That
there is no such model is understood from the words where a dialect has no code for it.
"""


def page() -> str:
    """The whole page."""
    paths = matrix()
    sections = [_HEAD, _summary(paths), "## Datatypes\n", _datatypes(), _stated(), "## Features\n", _NOTES]
    for caller in callers().values():
        row = [paths[caller.name, target] for target in targets()]
        sections += [f"## From {caller.name}\n", _tensors(row), _features(row)]
    sections += ["## Errors\n", _ERRORS, _errors()]
    return "\n".join(sections)


def _summary(paths: dict[tuple[str, str], Path]) -> str:
    """How many datatypes each path carries."""
    rows = []
    for caller in callers():
        cells = []
        for target in targets():
            path = paths[caller, target]
            worst = [path.worst(kind) for kind in Datatype]
            counts = {mark: worst.count(outcome) for mark, outcome in _COUNTED.items()}
            cells.append(", ".join(f"{count} {mark}" for mark, count in counts.items() if count))
        rows.append((caller, *cells))
    said = f"Datatypes by what becomes of them, of {len(Datatype)}:\n"
    return "\n".join(["## The matrix\n", said, _table(("from \\ to", *targets()), rows)])


_COUNTED = {"=": Outcome.EXACT, "wider": Outcome.WIDENED, "no": Outcome.REFUSED}


def _datatypes() -> str:
    """What each end has a form for by itself."""
    ends = {**{end.name: end for end in targets().values()}, **callers()}

    def form(end: End, datatype: Datatype) -> str:
        if datatype in end.capability.exact:
            return "="
        wider = end.capability.widened.get(datatype)
        return wider.value if wider else "no"

    rows = [(kind.value, *(form(end, kind) for end in ends.values())) for kind in Datatype]
    return _table(("", *ends), rows)


def _stated() -> str:
    ends = [end for end in targets().values() if end.dialect]
    rows = []
    for end in ends:
        said = end.capability
        lacking = [kind.value for kind in Datatype if kind not in said.exact]
        batches = [] if said.batch_limits else ["with batches"]
        rows.append((end.name, "all" if not said.signatures else ", ".join([*lacking, *batches])))
    return "\n".join([_STATED, _table(("upstream", "models whose signature is to be stated"), rows)])


def _tensors(paths: Sequence[Path]) -> str:
    rows = [(name, *(_both(path.tensors[name]) for path in paths)) for name in paths[0].tensors]
    return _table(("tensor", *(path.target.name for path in paths)), rows)


def _both(both: Sequence[Verdict]) -> str:
    sent, answered = map(_mark, both)
    return sent if sent == answered else f"{sent} / {answered}"


def _features(paths: Sequence[Path]) -> str:
    rows = [(name, *(_mark(path.features[name]) for path in paths)) for name in paths[0].features]
    return _table(("", *(path.target.name for path in paths)), rows)


def _mark(verdict: Verdict) -> str:
    return verdict.datatype.value if verdict.datatype is not None else verdict.outcome.mark


def _errors() -> str:
    ends = callers().values()

    def told(end: End, code: ErrorCode) -> str:
        return "=" if end.told(code) is code else end.told(code).name

    rows = [(code.name, *(told(end, code) for end in ends)) for code in ErrorCode]
    return _table(("error", *callers()), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [_row(head), f"|{'---|' * len(head)}", *map(_row, rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in cells)}|"
