"""Install a wheel as users do, by pipx and by uv, and serve the example of the package with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

_START_SECS = 120


def check(folder: Path, wheel: Path) -> None:
    """Install ``wheel`` below ``folder`` and try it. Prints a reason if there is no pipx or no uv. Raises
    ``CalledProcessError`` and ``SystemExit`` if an installation does not work."""
    tools = folder / "tools"
    _run(sys.executable, "-m", "venv", tools)
    for name, install in (("pipx", _by_pipx), ("uv", _by_uv)):
        pip = (
            tools / "bin" / "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            name,
        )
        if subprocess.run(pip, check=False).returncode:  # noqa: S603
            sys.stdout.write(f"{name}: skipped, it cannot be installed here\n")
            continue
        install(tools / "bin" / name, folder, f"{wheel}[onnx]")
        sys.stdout.write(f"{name}: ok\n")


def _by_pipx(pipx: Path, folder: Path, package: str) -> None:
    home = folder / "pipx"
    _run(pipx, "install", package, PIPX_HOME=home, PIPX_BIN_DIR=home / "bin")
    _serve(home / "bin" / "interlingua")
    _serve(home / "venvs" / "interlingua" / "bin" / "python", "-m", "interlingua")


def _by_uv(uv: Path, folder: Path, package: str) -> None:
    home = folder / "uv"
    variables = {
        "UV_TOOL_DIR": str(home),
        "UV_TOOL_BIN_DIR": str(home / "bin"),
        "UV_CACHE_DIR": str(home / "cache"),
    }
    _run(uv, "tool", "install", package, **variables)
    _serve(home / "bin" / "interlingua")
    _run(uv, "tool", "run", "--from", package, "interlingua", "--version", **variables)


def _serve(*command: str | Path) -> None:
    """Serve the example, in an environment that has only the package, until a signal ends it in order."""
    arguments = [*map(str, command), "serve", "--example", "--port", "0"]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, cwd="/") as process:  # noqa: S603
        assert process.stderr is not None  # noqa: S101 - for mypy
        if not any(" serving " in line for line in process.stderr):
            raise SystemExit(f"{arguments[0]} does not serve the example")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=_START_SECS)
    if process.returncode:
        raise SystemExit(f"{arguments[0]} ended with {process.returncode}")


def _run(*command: str | Path, **variables: Path) -> None:
    environment = {**os.environ, **{name: str(path) for name, path in variables.items()}}
    subprocess.run(command, check=True, env=environment)  # noqa: S603
