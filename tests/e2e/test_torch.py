"""A PyTorch model behind the real daemon: every dialect gets what the model gives in process."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from interlingua.translator.cli import main
from interlingua.translator.config.context import Installation
from tests.e2e.daemon import ROOT, Daemon

torch = pytest.importorskip("torch", reason="needs the extra 'torch' (make test-torch)")

WAYS = [
    (dialect, transport)
    for dialect, transports in Installation.present().calls.items()
    for transport in sorted(transports)
]
MODELS = ["cnn_script", "cnn_export"]
PLACES = [
    (transport, model) for transport in sorted({transport for _, transport in WAYS}) for model in MODELS
]
"""A listener for each: over plain TCP an address has one model."""
IMAGES = np.random.default_rng(7).random((5, 1, 8, 8), np.float32)


@pytest.fixture(scope="module")
def example() -> ModuleType:
    path = ROOT / "examples" / "make_torch_model.py"
    spec = importlib.util.spec_from_file_location("make_torch_model", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def addresses(
    tmp_path_factory: pytest.TempPathFactory, example: ModuleType
) -> Iterator[dict[tuple[str, str], str]]:
    folder = tmp_path_factory.mktemp("torch")
    example.write(folder / "models")
    listeners = [
        {"listen": "127.0.0.1:0", "transport": transport, "default_model": model}
        for transport, model in PLACES
    ]
    daemon = Daemon.start(
        folder, {"listeners": listeners, "model_repository": [{"path": str(folder / "models")}]}
    )
    try:
        yield dict(zip(PLACES, daemon.addresses, strict=True))
        assert daemon.stop() == 0
    finally:
        daemon.kill()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_the_same_answer_as_in_process(
    addresses: dict[tuple[str, str], str],
    example: ModuleType,
    tmp_path: Path,
    way: tuple[str, str],
    model: str,
) -> None:
    dialect, transport = way
    np.save(tmp_path / "images.npy", IMAGES)
    where = [f"--dialect={dialect}", f"--transport={transport}", f"--url={addresses[transport, model]}"]
    given = [
        f"--model={'' if transport == 'tcp' else model}",
        f"--input=image=@{tmp_path / 'images.npy'}",
        f"--npz={tmp_path / 'out.npz'}",
    ]
    assert main(["infer", *where, *given]) == 0
    with torch.inference_mode():
        expected = example.network()(torch.from_numpy(IMAGES.copy())).numpy()
    (answer,) = np.load(tmp_path / "out.npz").values()
    np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-6)
