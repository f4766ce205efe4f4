"""The verdict of a path on everything in a request and an answer except tensor contents, by feature.

Features that a target cannot carry are mostly dropped: no answer depends on them. A sequence whose id does
not fit is refused, because the target would confuse it with another one, or with none."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from interlingua.protocols.dialect import Capability
from interlingua.schemas import ErrorCode
from interlingua.translator.fidelity.parties import Party, refusal, reported
from interlingua.translator.fidelity.verdict import Outcome, Verdict

Feature = Callable[[Party, Party], Verdict]
Has = Callable[[Capability], object]
"""Whether a capability includes the feature."""

_CARRIED = Verdict(Outcome.CARRIED)
_ABSENT = Verdict(Outcome.ABSENT)


def _dropped(note: str = "") -> Callable[[Party], Verdict]:
    return lambda party: Verdict(Outcome.DROPPED, by=party.name, note=note)


def _carried(note: str) -> Callable[[Party], Verdict]:
    return lambda party: Verdict(Outcome.CARRIED, by=party.name, note=note)


def _refused(caller: Party, target: Party, code: ErrorCode = ErrorCode.UNREPRESENTABLE) -> Verdict:
    return Verdict(Outcome.REFUSED, code=reported(caller, code), by=target.name)


def _said(has: Has, otherwise: Callable[[Party], Verdict]) -> Feature:
    """A feature of requests; ``otherwise`` if only the caller has it."""

    def feature(caller: Party, target: Party) -> Verdict:
        if not has(caller.capability):
            return _ABSENT
        return _CARRIED if has(target.capability) else otherwise(target)

    return feature


def _answered(has: Has, otherwise: Callable[[Party], Verdict]) -> Feature:
    """A feature of answers; ``otherwise`` if only the target has it."""
    return lambda caller, target: _said(has, otherwise)(target, caller)


def _handled(has: Has, note: str) -> Feature:
    """A feature of callers that the daemon handles."""
    here = Verdict(Outcome.HERE, note=note)
    return lambda caller, target: here if has(caller.capability) else _ABSENT


def _names(has: Has) -> Feature:
    def feature(caller: Party, target: Party) -> Verdict:
        lacking = [party for party in (caller, target) if not has(party.capability)]
        return _carried("they are in the model's order")(lacking[0]) if lacking else _CARRIED

    return feature


def _scalars(caller: Party, target: Party) -> Verdict:
    if not caller.capability.scalars:
        return Verdict(Outcome.REFUSED, code=refusal(caller), by=caller.name)
    return _CARRIED if target.capability.scalars else _refused(caller, target, refusal(target))


def _versions(caller: Party, target: Party) -> Verdict:
    if not caller.capability.versions:
        return _ABSENT
    if not target.capability.versions:
        return _refused(caller, target)
    if caller.capability.joined_versions and not target.capability.version_lists:
        return _refused(caller, target, ErrorCode.NOT_FOUND)
    return _CARRIED


def _ids(kind: str) -> Feature:
    return _said(lambda its: its.ids in ("text", kind), _dropped("the answer has it anyway"))


def _parameters(of: type) -> Feature:
    """Parameters of a type, with any name."""
    return _said(lambda its: of in its.parameters and its.parameter_names is None, _dropped())


def _named_parameters(caller: Party, target: Party) -> Verdict:
    """Text parameters with the names that the caller or the target is limited to."""
    limited = [party for party in (caller, target) if party.capability.parameter_names is not None]
    if not limited or not caller.capability.parameters:
        return _ABSENT
    names = frozenset.intersection(*(party.capability.parameter_names or frozenset() for party in limited))
    for party in (caller, target):
        if str not in party.capability.parameters or not names:
            return _dropped()(party)
    return Verdict(Outcome.CARRIED, note=", ".join(f"'{name}'" for name in sorted(names)))


def _requested_outputs(caller: Party, target: Party) -> Verdict:
    # if answers have no names, all outputs are requested: not every server heeds the selection
    if target.capability.requested_outputs and target.capability.output_names:
        return _said(lambda its: its.requested_outputs, _dropped())(caller, target)
    note = "the target returns all of them, the others are removed here"
    return _handled(lambda its: its.requested_outputs, note)(caller, target)


def _sequences(of: type) -> Feature:
    def feature(caller: Party, target: Party) -> Verdict:
        if of not in caller.capability.sequences:
            return _ABSENT
        if of in target.capability.sequences:
            return _CARRIED
        if target.capability.sequences:
            return _refused(caller, target)
        return _dropped("none of its models keeps one")(target)

    return feature


def _streams(caller: Party, target: Party) -> Verdict:
    if not caller.capability.streams:
        return _ABSENT
    if not target.capability.streams:
        if not target.dialect:
            return Verdict(Outcome.ABSENT, by=target.name, note="its models answer once")
        return Verdict(Outcome.REFUSED, by=target.name, note="a model that answers once can be streamed")
    flat = [party for party in (caller, target) if party.capability.streams == "flat"]
    return _carried("in a flat form, without shapes and datatypes")(flat[0]) if flat else _CARRIED


FEATURES: Mapping[str, Feature] = {
    "names of inputs": _names(lambda its: its.input_names),
    "names of outputs": _names(lambda its: its.output_names),
    "tensors without dimensions": _scalars,
    "the requested version": _versions,
    "the version in the answer": _said(lambda its: its.answer_versions, _dropped()),
    "id, a number": _ids("number"),
    "id, any text": _ids("text"),
    "parameters: bool": _parameters(bool),
    "parameters: int": _parameters(int),
    "parameters: float": _parameters(float),
    "parameters: str": _parameters(str),
    "parameters with a place of their own": _named_parameters,
    "parameters of a tensor": _answered(lambda its: its.tensor_parameters, _dropped()),
    "parameters of the answer": _answered(lambda its: its.answer_parameters, _dropped()),
    "requested outputs": _requested_outputs,
    "classification": _handled(lambda its: its.classification, "classes are ranked from the raw output"),
    "sequence, id a number": _sequences(int),
    "sequence, id a text": _sequences(str),
    "priority and time in the queue": _said(lambda its: its.priorities, _dropped()),
    "a map of scalars": _said(lambda its: its.maps, _carried("each entry is a tensor")),
    "several answers": _streams,
    "shared memory": _handled(lambda its: its.shared_memory, "inputs are read and outputs placed here"),
}
"""Every feature by its name, in page order."""
