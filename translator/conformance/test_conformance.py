"""Every check of the kit as a test; ``plugin`` says of which server."""

from __future__ import annotations

import pytest

from interlingua.translator.conformance.check import Check
from interlingua.translator.conformance.kit import Effort, Verdict, run
from interlingua.translator.conformance.report import as_details
from interlingua.translator.conformance.subject import Subject

__all__ = ["test_conformance"]


def test_conformance(
    conformance_subject: Subject, conformance_check: Check, conformance_effort: Effort
) -> None:
    """The server keeps to one rule."""
    outcome = run(conformance_check, conformance_subject, conformance_effort)
    if outcome.verdict is Verdict.SKIPPED:
        pytest.skip(outcome.reason)
    if outcome.verdict.bad:
        pytest.fail(as_details(outcome), pytrace=False)
