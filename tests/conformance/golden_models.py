"""The models that the Triton recordings were made with, as they were written for Triton, served by our
Python backend."""

from __future__ import annotations

import functools
from pathlib import Path

from interlingua.runtime.models.model import LocalModel
from interlingua.runtime.repository.files import find_models, load_models

FOLDER = Path(__file__).parent.parent / "golden" / "oip" / "model_repository"

NOT_LOADED = ("not_loaded", "broken")
"""The models that the recorded server did not load at first."""


@functools.cache
def golden_models() -> tuple[dict[str, LocalModel], dict[str, str]]:
    """The models as the recorded server had them at first, and why others could not be loaded."""
    loaded = load_models([source for source in find_models(FOLDER) if source.name not in NOT_LOADED])
    return loaded.models, {name: str(error) for name, error in loaded.failed.items()}
