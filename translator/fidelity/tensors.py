"""What becomes of a tensor, on its way to the model and on its way back.

Contract: the model declares the tensor's datatype, and its signature is known here (from metadata, or stated
in the configuration, see :func:`stated`): so what was widened on the way becomes itself again. What counts is
what the model gets, and what the caller gets to see.
"""

from __future__ import annotations

from interlingua.schemas import Datatype, ErrorCode, Signature
from interlingua.translator.fidelity.parties import Party, refusal, reported
from interlingua.translator.fidelity.verdict import Outcome, Verdict

FLOATS = frozenset({Datatype.FP16, Datatype.BF16, Datatype.FP32, Datatype.FP64})


def sent(caller: Party, target: Party, datatype: Datatype) -> Verdict:
    """An input: what the caller has to send for the model to get it. What the caller has no form for is
    refused by its own client, before anything is sent."""
    return (
        _no_models(target, datatype)
        or _refused(caller, datatype)
        or _refused(target, datatype, caller)
        or _arrives(caller, datatype)
    )


def answered(caller: Party, target: Party, datatype: Datatype) -> Verdict:
    """An output: what the caller gets of it."""
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
    for party, tellers in ((caller, ()), (target, (caller,))):
        if party.capability.text_only:
            return Verdict(Outcome.REFUSED, code=_through(refusal(party), *tellers), by=party.name)
    return Verdict(Outcome.EXACT)


def payloads(caller: Party, target: Party) -> Verdict:
    """The payload of a NaN, and whether it is signalling."""
    for party in (caller, target):
        if not party.capability.nan_payloads:
            return Verdict(Outcome.DROPPED, by=party.name, note="NaN stays NaN")
    return Verdict(Outcome.EXACT)


def stated(target: Party, signature: Signature) -> bool:
    """Whether a configuration has to state ``signature``, because ``target`` cannot tell all of it."""
    said = target.capability
    if not target.dialect:
        return False
    datatypes = {spec.datatype for spec in (*signature.inputs, *signature.outputs)}
    return (
        not said.signatures
        or not datatypes <= said.exact
        or (signature.max_batch_size > 0 and not said.batch_limits)
    )


def _no_models(target: Party, datatype: Datatype) -> Verdict | None:
    if target.dialect or target.capability.carries(datatype):
        return None
    return Verdict(Outcome.ABSENT, by=target.name, note="it has no models with such tensors")


def _refused(party: Party, datatype: Datatype, *tellers: Party) -> Verdict | None:
    """Where ``party`` has no form for ``datatype``: the error that ``tellers`` pass on, one to the next."""
    if party.capability.carries(datatype):
        return None
    return Verdict(Outcome.REFUSED, code=_through(refusal(party), *tellers), by=party.name)


def _through(code: ErrorCode, *tellers: Party) -> ErrorCode:
    for teller in tellers:
        code = reported(teller, code)
    return code


def _arrives(caller: Party, datatype: Datatype) -> Verdict:
    wider = caller.capability.widened.get(datatype)
    if wider is None:
        return Verdict(Outcome.EXACT)
    return Verdict(Outcome.WIDENED, datatype=wider, by=caller.name)
