"""Runs one target under libFuzzer, with coverage of our code: ``python -m tests.fuzz.one TARGET OPTION...``.

The options are those of libFuzzer. A process of its own per target: libFuzzer ends it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import atheris

from tests.fuzz.target import Target

ROOT = Path(__file__).parents[2]
PACKAGE = "interlingua"
DECODERS = (
    "protocols",
    "schemas",
    "runtime/model_config",
    "translator/access",
    "translator/config",
    "translator/recording",
)
"""The folders whose branches count as coverage. Instrumenting a module takes time at every start."""


def _others() -> Iterator[str]:
    """The modules of the package that decode nothing."""
    for path in ROOT.glob("[!.]*/**/*.py"):
        place = path.relative_to(ROOT).with_suffix("").as_posix()
        if not place.startswith(DECODERS):
            yield f"{PACKAGE}.{place.removesuffix('/__init__').replace('/', '.')}"


def _target(name: str) -> Target:
    """The target of that name, from the first module of the table that has it."""
    for module in ("framings", "http2", "files", "codecs"):
        for target in import_module(f"tests.fuzz.{module}").TARGETS:
            if target.name == name:
                return target  # type: ignore[no-any-return]
    raise SystemExit(f"no target is named {name}")


if __name__ == "__main__":
    name, *options = sys.argv[1:]
    with atheris.instrument_imports(include=[PACKAGE, "yaml"], exclude=list(_others())):
        target = _target(name)
    atheris.Setup([name, *options], target.check)
    atheris.Fuzz()
