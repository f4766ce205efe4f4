"""What becomes of everything in a request and an answer that is no tensor's content: one function for each.

Each is given the caller and the target and judges whether what the caller says reaches the model, or what the
model says the caller. Where the target has no place for something, most of it is dropped: it is part of no
answer, and the servers of those dialects do without it. A sequence whose id does not fit is refused, because
its requests would be taken for those of another one, or of none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

from interlingua.schemas import ErrorCode
from interlingua.translator.fidelity.parties import Party, refusal, reported
from interlingua.translator.fidelity.verdict import Outcome, Verdict

Feature = Callable[[Party, Party], Verdict]

_CARRIED = Verdict(Outcome.CARRIED)
_UNSAID = Verdict(Outcome.ABSENT)
_BY_ORDER = "they stand in the model's order"


def _dropped(party: Party, note: str = "") -> Verdict:
    return Verdict(Outcome.DROPPED, by=party.name, note=note)


def _done_here(note: str) -> Verdict:
    return Verdict(Outcome.HERE, note=note)


def _input_names(caller: Party, target: Party) -> Verdict:
    for party in (caller, target):
        if not party.capability.input_names:
            return Verdict(Outcome.CARRIED, by=party.name, note=_BY_ORDER)
    return _CARRIED


def _output_names(caller: Party, target: Party) -> Verdict:
    for party in (caller, target):
        if not party.capability.output_names:
            return Verdict(Outcome.CARRIED, by=party.name, note=_BY_ORDER)
    return _CARRIED


def _scalars(caller: Party, target: Party) -> Verdict:
    for party in (caller, target):
        if not party.capability.scalars:
            code = refusal(party) if party is caller else reported(caller, refusal(party))
            return Verdict(Outcome.REFUSED, code=code, by=party.name)
    return _CARRIED


def _versions(caller: Party, target: Party) -> Verdict:
    if not caller.capability.versions:
        return _UNSAID
    if not target.capability.versions:
        return Verdict(Outcome.REFUSED, code=reported(caller, ErrorCode.UNREPRESENTABLE), by=target.name)
    if caller.capability.joined_versions and not target.capability.version_lists:
        return Verdict(Outcome.REFUSED, code=reported(caller, ErrorCode.NOT_FOUND), by=target.name)
    return _CARRIED


def _answer_versions(caller: Party, target: Party) -> Verdict:
    if not caller.capability.answer_versions:
        return _UNSAID
    return _CARRIED if target.capability.answer_versions else _dropped(target)


def _answer_parameters(caller: Party, target: Party) -> Verdict:
    if not target.capability.answer_parameters:
        return _UNSAID
    return _CARRIED if caller.capability.answer_parameters else _dropped(caller)


def _ids(caller: Party, target: Party, kind: Literal["number", "text"]) -> Verdict:
    if caller.capability.ids not in ("text", kind):
        return _UNSAID
    if target.capability.ids in ("text", kind):
        return _CARRIED
    return _dropped(target, "the answer has it all the same")


def _parameters(caller: Party, target: Party, of: type) -> Verdict:
    if not _any_parameter(caller, of):
        return _UNSAID
    return _CARRIED if _any_parameter(target, of) else _dropped(target)


def _any_parameter(party: Party, of: type) -> bool:
    """Whether a parameter of this type may have any name."""
    return of in party.capability.parameters and party.capability.parameter_names is None


def _named_parameters(caller: Party, target: Party) -> Verdict:
    """Text parameters of the names that one of both has a place for."""
    places = [party for party in (caller, target) if party.capability.parameter_names is not None]
    if not places or not caller.capability.parameters:
        return _UNSAID
    names = frozenset.intersection(*(party.capability.parameter_names or frozenset() for party in places))
    for party in (caller, target):
        if str not in party.capability.parameters or not names:
            return _dropped(party)
    return Verdict(Outcome.CARRIED, note=", ".join(f"'{name}'" for name in sorted(names)))


def _requested_outputs(caller: Party, target: Party) -> Verdict:
    if not caller.capability.requested_outputs:
        return _UNSAID
    # where answers have no names, all of them are asked for: not every server minds which
    if target.capability.requested_outputs and target.capability.output_names:
        return _CARRIED
    return _done_here("the target gives all of them, those not asked for are left out")


def _classification(caller: Party, target: Party) -> Verdict:
    if not caller.capability.classification:
        return _UNSAID
    return _done_here("classes are ranked from the raw output")


def _sequences(caller: Party, target: Party, of: type) -> Verdict:
    if of not in caller.capability.sequences:
        return _UNSAID
    kinds = target.capability.sequences
    if of in kinds:
        return _CARRIED
    if kinds:
        return Verdict(Outcome.REFUSED, code=reported(caller, ErrorCode.UNREPRESENTABLE), by=target.name)
    return _dropped(target, "no model of it keeps one")


def _priorities(caller: Party, target: Party) -> Verdict:
    if not caller.capability.priorities:
        return _UNSAID
    return _CARRIED if target.capability.priorities else _dropped(target)


def _maps(caller: Party, target: Party) -> Verdict:
    if not caller.capability.maps:
        return _UNSAID
    if target.capability.maps:
        return _CARRIED
    return Verdict(Outcome.CARRIED, by=target.name, note="each entry is a tensor")


def _streams(caller: Party, target: Party) -> Verdict:
    if not caller.capability.streams:
        return _UNSAID
    if not target.capability.streams:
        if not target.dialect:
            return Verdict(Outcome.ABSENT, by=target.name, note="its models answer once")
        return Verdict(Outcome.REFUSED, by=target.name, note="of a model that answers once there is a stream")
    for party in (caller, target):
        if party.capability.streams == "flat":
            note = "in a flat form, without shapes and datatypes"
            return Verdict(Outcome.CARRIED, by=party.name, note=note)
    return _CARRIED


def _shared_memory(caller: Party, target: Party) -> Verdict:
    if not caller.capability.shared_memory:
        return _UNSAID
    return _done_here("inputs are read and outputs placed here")


FEATURES: Mapping[str, Feature] = {
    "names of inputs": _input_names,
    "names of outputs": _output_names,
    "tensors without dimensions": _scalars,
    "the version asked for": _versions,
    "the version in the answer": _answer_versions,
    "id, a number": partial(_ids, kind="number"),
    "id, any text": partial(_ids, kind="text"),
    "parameters: bool": partial(_parameters, of=bool),
    "parameters: int": partial(_parameters, of=int),
    "parameters: float": partial(_parameters, of=float),
    "parameters: str": partial(_parameters, of=str),
    "parameters with a place of their own": _named_parameters,
    "parameters of the answer": _answer_parameters,
    "requested outputs": _requested_outputs,
    "classification": _classification,
    "sequence, id a number": partial(_sequences, of=int),
    "sequence, id a text": partial(_sequences, of=str),
    "priority and time in the queue": _priorities,
    "a map of scalars": _maps,
    "several answers": _streams,
    "shared memory": _shared_memory,
}
"""Every feature by what it is called, in the order of the pages."""
