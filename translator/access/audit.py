"""The audit log: one record for every privileged operation, with its caller, and its result."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from interlingua.schemas import ErrorCode, InferenceError
from interlingua.schemas.bounded_text import shortened
from interlingua.translator.access.authorization import Caller
from interlingua.translator.access.classes import OperationClass
from interlingua.translator.access.refusals import RefusalRecords
from interlingua.translator.logs.setup import AUDIT


@dataclass(slots=True)
class AuditEntry:
    """The caller of an operation, as far as it is known; ``admitted``: the listener permits it."""

    caller: Caller = field(default_factory=lambda: Caller(None))
    admitted: bool = False


@contextmanager
def recorded(
    requested: OperationClass,
    operation: str,
    model: str,
    listener: str,
    dialect: str,
    refusals: RefusalRecords,
) -> Iterator[AuditEntry]:
    """Record ``operation`` of the class ``requested``, which the block performs: as allowed, as refused if
    the caller may not request it, or as failed. Of many refusals some are recorded, see ``refusals``."""
    entry = AuditEntry()
    facts: dict[str, Any] = {
        "operation": operation,
        "class": requested,
        **({"model": shortened(model)} if model else {}),
        "listener": listener,
        "dialect": dialect,
    }
    result, reason = "failed", "unexpected error"
    try:
        yield entry
        result = "allowed"
    except InferenceError as error:
        refused = not entry.admitted or error.code is ErrorCode.FORBIDDEN
        result, reason = "refused" if refused else "failed", error.message
        raise
    except BaseException as error:
        reason = type(error).__name__
        raise
    finally:
        facts |= {"result": result, **entry.caller.facts()}
        if result != "allowed":
            facts["reason"] = reason
        suppressed: int | None = 0
        if result == "refused" and not entry.admitted:
            suppressed = refusals.suppressed(facts["caller"])
        if suppressed is not None:
            if suppressed:
                facts["suppressed"] = suppressed
            level = logging.INFO if result == "allowed" else logging.WARNING
            AUDIT.log(level, "privileged operation", extra={"facts": facts})
