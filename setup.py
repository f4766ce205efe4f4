"""Compiles modules with mypyc where the build is asked to: ``INTERLINGUA_COMPILE=1`` (docs/adr/compiled.md).

Every other build is pure Python. The list of modules is ``tool.interlingua.compiled`` of pyproject.toml. mypy
needs the types of our dependencies, so such a build takes place without isolation, where they are installed.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from setuptools import setup


def _extensions() -> list[Any]:
    if os.environ.get("INTERLINGUA_COMPILE", "") in ("", "0"):
        return []
    from mypyc.build import mypycify

    options = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["interlingua"]["compiled"]
    paths = [f"interlingua/{module}.py" for module in options["modules"]]
    # one C file for each module: gcc takes minutes and gigabytes for all of them in one
    return mypycify(
        ["--config-file", "pyproject.toml", *paths],
        opt_level=options["optimization"],
        debug_level="0",
        multi_file=True,
        group_name="interlingua",
    )


setup(ext_modules=_extensions())
