"""Writes docs/dialects/oip-compatibility.md: starts every server, runs every check, takes down what holds.

Run it as ``python -m scripts.document_oip_compatibility`` where ``make peers`` has made the environments.
"""

from __future__ import annotations

import sys

from tests.peers.compatibility import COLUMNS, PAGE, everybody, page, rows, why_not


def main() -> int:
    """Rewrite the page; with ``--why`` say on the standard output what each server failed with."""
    table: dict[tuple[str, str], dict[str, bool]] = {}
    with everybody() as found:
        for name, kind in rows():
            reasons = {who: why_not(name, kind, found[who]) for who in COLUMNS}
            table[name, kind] = {who: not reason for who, reason in reasons.items()}
            if "--why" in sys.argv:
                for who, reason in reasons.items():
                    sys.stdout.write(f"{name} {kind} {who}: {reason[:300]!r}\n" if reason else "")
                sys.stdout.flush()
    PAGE.write_text(page(table), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
