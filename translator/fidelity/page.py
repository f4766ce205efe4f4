"""The matrix as a page of Markdown, docs/fidelity.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from interlingua.schemas import Datatype, ErrorCode
from interlingua.translator.fidelity.parties import Party, callers, reported, targets
from interlingua.translator.fidelity.path import Path, matrix
from interlingua.translator.fidelity.verdict import Outcome, Verdict

_HEAD = """\
# Fidelity

What each path from caller to target preserves of a request and its response. A target is a local model or an
upstream. Callers and upstreams are named by dialect and transport.

This page is computed from the capabilities that each dialect and each backend declares, and is verified by
`tests/e2e/test_matrix.py`, which sends each item through two daemons on every path below, critical values
first: infinities, NaN, -0, subnormals, integer limits, strings that are not UTF-8, tensors without elements
or dimensions. `interlingua fidelity` prints the same; `--from oip/http --to grps/brpc` explains one path.

| in the tables | |
|---|---|
| = | preserved: tensors bit for bit, everything else in the form of the other dialect |
| a datatype | preserved in value, in this wider datatype |
| here | handled by the daemon; the target does not see it, and the caller sees no difference |
| - | dropped; the request is executed without it, and an upstream's model counts it |
| no | refused, with an error that names the tensor, parameter or version, and the dialect |
| (nothing) | impossible: the caller's dialect cannot express it, or the target has no such models |

A cell has `sent / answered` where the two differ. A widened tensor is narrowed again where the model's
signature declares the narrow type, so models and callers that know the signature see the narrow type. The
caller's own client refuses what its dialect cannot express. An upstream with `strict` refuses what it would
drop ([upstreams.md](upstreams.md#dropped-fields)).
"""

_STATED = """\
The configuration must declare an upstream's signature (`signature`) where the upstream cannot describe it:
for every model, or for models with a datatype or a batch that its metadata cannot express.
"""

_NOTES = """\
- *Ids*: the response always has the caller's id. A model that is a function on tensors gets none.
- *Parameters with a place of their own*: GraphPipe's `config`, text, or bytes from GraphPipe to GraphPipe.
- *Classes* are always ranked by the daemon from the raw output, because upstreams round their values.
- *A sequence* whose id does not fit is refused, because it could be confused with another one.
- *A map of scalars* is grps' `gmap`. Each entry becomes a tensor, and the response a map again; a grps
  server gets the map itself. Every map and every datatype but UINT64 is preserved.
- *Several answers* use the flat form of `generate_stream` over oip/http, without shapes and datatypes. Every
  path can request a stream from a model that answers once.
- *Shared memory*: the daemon reads inputs and places outputs; upstreams see no region.
"""

_ERRORS = """\
The meaning that a client derives from the status or code of each error; the message is always preserved. The
upstream's column decodes an upstream error, the caller's column encodes it. Where a dialect has no code for
a missing model, the daemon recognizes the message.
"""


def page() -> str:
    paths = matrix()
    sections = [_HEAD, _summary(paths), "## Datatypes\n", _datatypes(), _stated(), "## Features\n", _NOTES]
    for caller in callers().values():
        row = [paths[caller.name, target] for target in targets()]
        sections += [f"## From {caller.name}\n", _tensors(row), _features(row)]
    sections += ["## Errors\n", _ERRORS, _errors()]
    return "\n".join(sections)


def _summary(paths: dict[tuple[str, str], Path]) -> str:
    rows = []
    for caller in callers():
        cells = []
        for target in targets():
            path = paths[caller, target]
            worst = [path.worst(kind) for kind in Datatype]
            counts = {mark: worst.count(outcome) for mark, outcome in _COUNTED.items()}
            cells.append(", ".join(f"{count} {mark}" for mark, count in counts.items() if count))
        rows.append((caller, *cells))
    lead = f"Datatypes by what becomes of them, of {len(Datatype)}:\n"
    return "\n".join(["## The matrix\n", lead, _table(("from \\ to", *targets()), rows)])


_COUNTED = {"=": Outcome.EXACT, "wider": Outcome.WIDENED, "no": Outcome.REFUSED}


def _datatypes() -> str:
    parties = {**{party.name: party for party in targets().values()}, **callers()}

    def form(party: Party, datatype: Datatype) -> str:
        if datatype in party.capability.exact:
            return "="
        wider = party.capability.widened.get(datatype)
        return wider.value if wider else "no"

    rows = [(kind.value, *(form(party, kind) for party in parties.values())) for kind in Datatype]
    return _table(("", *parties), rows)


def _stated() -> str:
    parties = [party for party in targets().values() if party.dialect]
    rows = []
    for party in parties:
        its = party.capability
        lacking = [kind.value for kind in Datatype if kind not in its.exact]
        batches = [] if its.batch_limits else ["with batches"]
        rows.append((party.name, "all" if not its.signatures else ", ".join([*lacking, *batches])))
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
    def meaning(party: Party, code: ErrorCode) -> str:
        return "=" if reported(party, code) is code else reported(party, code).name

    rows = [(code.name, *(meaning(party, code) for party in callers().values())) for code in ErrorCode]
    return _table(("error", *callers()), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [_row(head), f"|{'---|' * len(head)}", *map(_row, rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in cells)}|"
