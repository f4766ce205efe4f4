"""What becomes of a tensor, on its way to the model and on its way back.

Contract: the model declares the tensor's datatype, and its signature is known here (from metadata, or stated
in the configuration, see :func:`stated`): so what was widened on the way becomes itself again. What counts is
what the model gets, and what the caller gets to see.
"""

from __future__ import annotations

from interlingua.schemas import Datatype, ErrorCode, Signature
from interlingua.translator.fidelity.ends import End
from interlingua.translator.fidelity.verdict import Outcome, Verdict

FLOATS = frozenset({Datatype.FP16, Datatype.BF16, Datatype.FP32, Datatype.FP64})


def sent(caller: End, target: End, datatype: Datatype) -> Verdict:
    """An input: what the caller has to send for the model to get it. What the caller has no form for is
    refused by its own client, before anything is sent."""
    return (
        _no_models(target, datatype)
        or _refused(caller, datatype)
        or _refused(target, datatype, caller)
        or _arrives(caller, datatype)
    )


def answered(caller: End, target: End, datatype: Datatype) -> Verdict:
    """An output: what the caller gets of it."""
    return (
        _no_models(target, datatype)
        or _refused(target, datatype, target, caller)
        or _refused(caller, datatype, caller)
        or _arrives(caller, datatype)
    )


def binary(caller: End, target: End) -> Verdict:
    """BYTES that are not UTF-8, as an input."""
    if (absent := _no_models(target, Datatype.BYTES)) is not None:
        return absent
    for end, tellers in ((caller, ()), (target, (caller,))):
        if end.capability.text_only:
            return Verdict(Outcome.REFUSED, code=_through(end.refusal, *tellers), by=end.name)
    return Verdict(Outcome.EXACT)


def payloads(caller: End, target: End) -> Verdict:
    """The payload of a NaN, and whether it is signalling."""
    for end in (caller, target):
        if not end.capability.nan_payloads:
            return Verdict(Outcome.DROPPED, by=end.name, note="NaN stays NaN")
    return Verdict(Outcome.EXACT)


def stated(target: End, signature: Signature) -> bool:
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


def _no_models(target: End, datatype: Datatype) -> Verdict | None:
    if target.dialect or target.capability.carries(datatype):
        return None
    return Verdict(Outcome.ABSENT, by=target.name, note="it has no models with such tensors")


def _refused(end: End, datatype: Datatype, *tellers: End) -> Verdict | None:
    """Where ``end`` has no form for ``datatype``: the error that ``tellers`` pass on, one to the next."""
    if end.capability.carries(datatype):
        return None
    return Verdict(Outcome.REFUSED, code=_through(end.refusal, *tellers), by=end.name)


def _through(code: ErrorCode, *tellers: End) -> ErrorCode:
    for teller in tellers:
        code = teller.told(code)
    return code


def _arrives(caller: End, datatype: Datatype) -> Verdict:
    wider = caller.capability.widened.get(datatype)
    if wider is None:
        return Verdict(Outcome.EXACT)
    return Verdict(Outcome.WIDENED, datatype=wider, by=caller.name)
