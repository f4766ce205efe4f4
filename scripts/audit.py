"""Searches the advisories for the packages of an environment, with pip-audit.

    python scripts/audit.py ENVIRONMENT [OPTIONS OF pip-audit ...]

Exits with 0 if there are none, with 1 if there are some, and with 2 if no source of advisories could be
asked.
It runs in the environment of pip-audit, which has nothing of ours.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CLEAN, FOUND, UNKNOWN = 0, 1, 2


def summary(report: str, errors: str) -> tuple[int, str]:
    """The exit status, and what to print about it: ``report`` is pip-audit's, in JSON; empty if it has failed
    with ``errors``."""
    if not report.strip():
        reason = errors.strip().rpartition("\n")[2] or "no reason given"
        return UNKNOWN, f"no source of advisories could be asked, so nothing is known: {reason}"
    packages = json.loads(report)["dependencies"]  # noqa: TID251
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    found = [(package, each) for package in packages for each in package.get("vulns", ())]
    lines = [
        f"{package['name']} {package['version']}: {each['id']}, "
        f"fixed in {', '.join(each['fix_versions']) or 'no version'}"
        for package, each in found
    ]
    lines.append(f"{len(packages) - len(skipped)} packages, {len(found)} advisories")
    if skipped:
        lines.append(f"not asked about: {', '.join(skipped)}")
    return FOUND if found else CLEAN, "\n".join(lines)


def audit(environment: Path, options: list[str]) -> tuple[int, str]:
    """Run pip-audit on the packages that are installed in ``environment``."""
    (packages,) = environment.glob("lib/python3*/site-packages")
    command = [sys.executable, "-m", "pip_audit", "--path", str(packages), "--format", "json"]
    command += ["--progress-spinner", "off", *options]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return summary(ran.stdout, ran.stderr)


if __name__ == "__main__":
    status, text = audit(Path(sys.argv[1]), sys.argv[2:])
    sys.stdout.write(f"{text}\n")
    sys.exit(status)
