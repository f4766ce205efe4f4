"""The model repository that Triton was recorded with, as a folder that a server may use."""

from __future__ import annotations

import shutil
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "golden" / "oip" / "model_repository"

NOT_LOADED = ("not_loaded", "broken")
"""The models that the recorded server did not load at first: one may be loaded later, the other cannot."""

LOADED = tuple(sorted(path.name for path in FOLDER.iterdir() if path.name not in NOT_LOADED))


def golden_repository(place: Path) -> Path:
    """A copy of the repository at ``place``, where servers may leave what they like."""
    shutil.copytree(FOLDER, place, ignore=shutil.ignore_patterns("__pycache__"))
    slow = place / "slow" / "1" / "model.py"
    source = slow.read_text()
    # it takes an array of one element for a number, which NumPy stopped doing after the recording
    changed = source.replace('"INPUT0").as_numpy()[0]', '"INPUT0").as_numpy().item()')
    assert changed != source
    slow.write_text(changed)
    return place
