"""Runs the targets for a chosen time each, resuming from their corpora: ``python -m tests.fuzz --help``.

A corpus is in ``.fuzz/TARGET``: the inputs that reached new code. An input that is a finding is saved as
``.fuzz/TARGET.finding-…``; ``tests/fuzz/findings`` has those of the past.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path

from tests.fuzz.table import TARGETS

ROOT = Path(__file__).parents[2]
CORPORA = ROOT / ".fuzz"

NOT_INSTALLED = (
    "fuzzing needs atheris, which has wheels for Linux on x86-64 (CPython 3.11 to 3.13): "
    "pip install 'interlingua[fuzz]'"
)

_EXECUTIONS = re.compile(r"stat::number_of_executed_units:\s+(\d+)")
_STATUS = re.compile(r"cov: (\d+) ft: (\d+) corp: (\d+)")
_BACKSTOPS = ("-timeout=20", "-rss_limit_mb=2048")
"""An endless loop, or memory without end: ``Target.check`` has the limits of an input that returns."""

_ARTIFACT = re.compile(r"Test unit written to (\S+)")
_UNCAUGHT = "=== Uncaught Python exception: ==="
_SHOWN_BYTES = 4000


@dataclass(frozen=True)
class Figures:
    """What one run of a target has done. ``report`` is its finding, if any."""

    name: str
    executions: int
    edges: int
    corpus: int
    report: str = ""

    def __str__(self) -> str:
        cells = (self.name, f"{self.executions:,}", f"{self.edges:,}", f"{self.corpus:,}")
        return f"| {' | '.join((*cells, 'finding' if self.report else 'none'))} |"


def fuzz(name: str, secs: int) -> Figures:
    """Run the target ``name`` for ``secs`` seconds, or until its first finding."""
    target, corpus = TARGETS[name], CORPORA / name
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in target.seeds():
        (corpus / sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)
    options = [
        f"-max_total_time={secs}",
        f"-max_len={target.max_bytes}",
        f"-artifact_prefix={CORPORA / name}.finding-",
        "-print_final_stats=1",
        "-len_control=10",
        *_BACKSTOPS,
    ]
    command = [sys.executable, "-m", "tests.fuzz.one", name, *options, str(corpus)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
    output = run.stdout + run.stderr
    executed, statuses = _EXECUTIONS.search(output), _STATUS.findall(output)
    edges, _, kept = statuses[-1] if statuses else (0, 0, 0)
    report = f"{_exception(run.stdout)}\n{_ARTIFACT.findall(output)}" if run.returncode else ""
    return Figures(name, int(executed[1]) if executed else 0, int(edges), int(kept), report)


def _exception(output: str) -> str:
    """The exception in the output of a run, with the end of a long traceback."""
    return output.rpartition(_UNCAUGHT)[2].strip()[-_SHOWN_BYTES:]


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 1 after a finding."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="default: all")
    parser.add_argument("--secs", type=int, default=60, help="time of each target (default: 60)")
    parser.add_argument("--jobs", type=int, default=2, help="targets at a time (default: 2)")
    parser.add_argument("--list", action="store_true", help="list the targets")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.targets if name not in TARGETS]:
        parser.error(f"no target is named {', '.join(unknown)}; --list shows the names")
    if options.list:
        print("\n".join(TARGETS))
        return 0
    if importlib.util.find_spec("atheris") is None:
        print(NOT_INSTALLED, file=sys.stderr)
        return 2
    found = []
    print("| target | executions | edges | corpus | findings |\n|---|--:|--:|--:|---|")
    with ThreadPoolExecutor(options.jobs) as workers:
        for figures in workers.map(lambda name: fuzz(name, options.secs), options.targets or TARGETS):
            print(figures, flush=True)
            found.append(figures)
    reports = [f"\n--- {each.name}\n{each.report}" for each in found if each.report]
    print("".join(reports), end="", file=sys.stderr)
    return int(bool(reports))


if __name__ == "__main__":
    sys.exit(main())
