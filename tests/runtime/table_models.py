"""Models of tables that tests train: small, and the same each time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import skops.io
from numpy.typing import NDArray

FEATURES = 4
ROWS = np.random.default_rng(7).normal(size=(120, FEATURES))
CLASSES = np.digitize(ROWS[:, 0] + ROWS[:, 1], [-0.7, 0.7])
NAMES = np.array(["ant", "bee", "wasp"])
NUMBERS = ROWS @ np.array([1.0, -2.0, 0.5, 3.0]) + 1.0


def written(folder: Path, model: Any, name: str = "model.skops") -> Path:
    """``model``, a model of scikit-learn, in a file of skops in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    skops.io.dump(model, folder / name)
    return folder / name


def questions(rows: int = 5, seed: int = 3) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=(rows, FEATURES))
