"""Test the built distributions in an empty environment, inside a project with folders named like our rooms.

Builds an sdist, and the wheel from that sdist: a file that the sdist lacks is missing then. Installs the
wheel by pipx and by uv, if they can be obtained, and serves its example. Installs it into a new
environment. Copies the tests and what they read into a folder without the package, adds folders ``schemas``,
``protocols``, ``runtime`` and ``translator`` that fail on import, and runs pytest there.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import installers

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("schemas", "protocols", "runtime", "translator")
READ_BY_TESTS = ("tests", "examples", "docs", "config.example.yaml", "pyproject.toml", "README.md")
TESTS = (
    "tests/test_package.py",
    "tests/translator/test_cli.py",
    "tests/translator/cli/test_serve_path.py",
    "tests/translator/test_welcome.py",
    "tests/translator/mirror/test_process.py",
    "tests/translator/conformance/test_kit.py",
    "tests/e2e/test_clients.py",
    "tests/e2e/test_grps.py",
    "tests/e2e/test_python_calls.py",
)
"""Tests that start the command, its subprocesses (models in Python, mirrors) and the pytest plugin."""


def main() -> int:
    """Build, install, test; return the exit code of pytest."""
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("tests", nargs="*", default=TESTS, help="what pytest runs")
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="interlingua-wheel-") as scratch:
        folder = Path(scratch)
        wheel = _build(folder)
        _only_the_package(wheel)
        installers.check(folder, wheel)
        python = _environment(folder, wheel)
        project = _project(folder)
        # without PYTHONPATH, only the failing folders come before the installed package
        command = [python, "-m", "pytest", "-q", "-o", f"cache_dir={folder / 'cache'}", *chosen.tests]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(command, cwd=project, env=environment, check=False).returncode  # noqa: S603


def _build(folder: Path) -> Path:
    """The wheel, built from the sdist."""
    _run(sys.executable, "-m", "build", "--outdir", folder / "dist", ROOT)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def _only_the_package(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    foreign = {name for name in tops if name != "interlingua" and not name.endswith(".dist-info")}
    if foreign:
        raise SystemExit(f"the wheel has more than the package: {sorted(foreign)}")


def _environment(folder: Path, wheel: Path) -> Path:
    """The interpreter of a new environment with the wheel, its extras for tests, and nothing else."""
    _run(sys.executable, "-m", "venv", folder / "environment")
    python = folder / "environment" / "bin" / "python"
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    pip = (*pip, "--constraint", ROOT / "constraints.txt")
    _run(*pip, f"{wheel}[onnx,otlp,conformance,test]")
    # as the Makefile does: its own pins cannot be met
    _run(*pip, "--no-deps", "graphpipe")
    return python


def _project(folder: Path) -> Path:
    project = folder / "project"
    project.mkdir()
    for name in READ_BY_TESTS:
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, project / name)
    for room in ROOMS:
        (project / room).mkdir()
        (project / room / "__init__.py").write_text(f"raise ImportError('{room}: the wrong package')\n")
    return project


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True)  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
