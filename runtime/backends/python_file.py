"""Checks a model's Python file without running it."""

from __future__ import annotations

from pathlib import Path

from interlingua.runtime.model_config.config import LoadError, ModelConfig


def examine(path: Path, config: ModelConfig) -> None:
    """Raise ``LoadError`` if the file at ``path`` is not Python for this interpreter."""
    refuse_environment(path, config)
    try:
        compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise LoadError(f"{path}{line}: {reason}") from error


def refuse_environment(path: Path, config: ModelConfig) -> None:
    """Raise ``LoadError`` if the model at ``path`` requires an environment of its own."""
    if "EXECUTION_ENV_PATH" in config.parameters:
        raise LoadError(
            f"{path}: EXECUTION_ENV_PATH is not supported: a model runs in the server's environment"
        )
