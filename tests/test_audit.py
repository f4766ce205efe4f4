"""What `make audit` concludes, from reports of pip-audit 2.10."""

from __future__ import annotations

import json

import pytest

from scripts.audit import CLEAN, FOUND, UNKNOWN, summary

SIX = {"name": "six", "version": "1.16.0", "vulns": []}
OLD = {
    "name": "old",
    "version": "1.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1", "2.0"]}, {"id": "PYSEC-2", "fix_versions": []}],
}
OURS = {"name": "interlingua", "skip_reason": "Dependency not found on the index"}


@pytest.mark.parametrize(
    ("packages", "status", "lines"),
    [
        ([SIX], CLEAN, ["1 packages, 0 advisories"]),
        ([SIX, OURS], CLEAN, ["1 packages, 0 advisories", "not asked about: interlingua"]),
        (
            [SIX, OLD],
            FOUND,
            [
                "old 1.0: PYSEC-1, fixed in 1.1, 2.0",
                "old 1.0: PYSEC-2, fixed in no version",
                "2 packages, 2 advisories",
            ],
        ),
    ],
)
def test_reports(packages: list[object], status: int, lines: list[str]) -> None:
    report = json.dumps({"dependencies": packages, "fixes": []})
    assert summary(report, "Found 2 known vulnerabilities in 1 package\n") == (status, "\n".join(lines))


def test_a_source_that_cannot_be_reached() -> None:
    errors = "Traceback (most recent call last):\n  ...\nrequests.exceptions.ConnectionError: refused\n"
    said = "no source of advisories could be asked, so nothing is known: requests.exceptions.ConnectionError: refused"
    assert summary("", errors) == (UNKNOWN, said)
    assert summary("\n", "")[0] == UNKNOWN
