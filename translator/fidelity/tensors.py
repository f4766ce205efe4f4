"""The verdict of a path on tensors, sent and answered.

The model declares the datatype, and the daemon knows its signature (from metadata or configuration, see
:func:`stated`), so it narrows a widened tensor again. The verdict is about what the model gets and what the
caller sees."""

from __future__ import annotations

from interlingua.schemas import Datatype, ErrorCode, Signature
from interlingua.translator.fidelity.parties import Party, refusal, reported
from interlingua.translator.fidelity.verdict import Outcome, Verdict


def sent(caller: Party, target: Party, datatype: Datatype) -> Verdict:
    """An input. The caller's own client refuses what the dialect cannot carry."""
    return (
        _no_models(target, datatype)
        or _refused(caller, datatype)
        or _refused(target, datatype, caller)
        or _arrives(caller, datatype)
    )


def answered(caller: Party, target: Party, datatype: Datatype) -> Verdict:
    return (
        _no_models(target, datatype)
        or _refused(target, datatype, target, caller)
        or _refused(caller, datatype, caller)
        or _arrives(caller, datatype)
    )


def binary(caller: Party, target: Party) -> Verdict:
    """BYTES that are not UTF-8, as an input."""
    if (absent := _no_models(target, Datatype.BYTES)) is not None:
        return absent
    for party, reporters in ((caller, ()), (target, (caller,))):
        if party.capability.text_only:
            return Verdict(Outcome.REFUSED, code=_through(refusal(party), *reporters), by=party.name)
    return Verdict(Outcome.EXACT)


def payloads(caller: Party, target: Party) -> Verdict:
    """The payload of a NaN, and its signalling bit."""
    for party in (caller, target):
        if not party.capability.nan_payloads:
            return Verdict(Outcome.DROPPED, by=party.name, note="NaN stays NaN")
    return Verdict(Outcome.EXACT)


def stated(target: Party, signature: Signature) -> bool:
    """Whether the configuration must declare ``signature`` because ``target`` cannot describe all of it."""
    its = target.capability
    if not target.dialect:
        return False
    datatypes = {spec.datatype for spec in (*signature.inputs, *signature.outputs)}
    unlimited = signature.max_batch_size > 0 and not its.batch_limits
    return not its.signatures or not datatypes <= its.exact or unlimited


def _no_models(target: Party, datatype: Datatype) -> Verdict | None:
    if target.dialect or target.capability.carries(datatype):
        return None
    return Verdict(Outcome.ABSENT, by=target.name, note="it has no models with such tensors")


def _refused(party: Party, datatype: Datatype, *reporters: Party) -> Verdict | None:
    """A refusal if ``party`` cannot carry ``datatype``; ``reporters`` pass its error on, one to the next."""
    if party.capability.carries(datatype):
        return None
    return Verdict(Outcome.REFUSED, code=_through(refusal(party), *reporters), by=party.name)


def _through(code: ErrorCode, *reporters: Party) -> ErrorCode:
    for reporter in reporters:
        code = reported(reporter, code)
    return code


def _arrives(caller: Party, datatype: Datatype) -> Verdict:
    wider = caller.capability.widened.get(datatype)
    if wider is None:
        return Verdict(Outcome.EXACT)
    return Verdict(Outcome.WIDENED, datatype=wider, by=caller.name)
