"""Runs one target under libFuzzer, with coverage of our code: ``python -m tests.fuzz.one TARGET OPTION...``.

The options are those of libFuzzer. A process of its own per target: libFuzzer ends it.
"""

from __future__ import annotations

import sys

import atheris

DECODERS = (
    "interlingua.protocols",
    "interlingua.schemas",
    "interlingua.runtime.model_config",
    "interlingua.translator.config",
    "interlingua.translator.recording",
    "yaml",
)
"""The packages whose branches count as coverage; each costs time at the start."""

with atheris.instrument_imports(include=DECODERS):
    from tests.fuzz.table import TARGETS

if __name__ == "__main__":
    name, *options = sys.argv[1:]
    atheris.Setup([name, *options], TARGETS[name].check)
    atheris.Fuzz()
