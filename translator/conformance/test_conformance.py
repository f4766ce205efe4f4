"""Every check of the kit as a test; ``plugin`` has the options."""

from __future__ import annotations

import pytest

from interlingua.translator.conformance.check import Check
from interlingua.translator.conformance.kit import CheckStatus, Effort, run
from interlingua.translator.conformance.report import as_details
from interlingua.translator.conformance.server import ServerUnderTest

__all__ = ["test_conformance"]


def test_conformance(
    conformance_server: ServerUnderTest, conformance_check: Check, conformance_effort: Effort
) -> None:
    result = run(conformance_check, conformance_server, conformance_effort)
    if result.status is CheckStatus.SKIPPED:
        pytest.skip(result.reason)
    if result.status.bad:
        pytest.fail(as_details(result), pytrace=False)
