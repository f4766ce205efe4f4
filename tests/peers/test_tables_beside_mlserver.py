"""One repository of scikit-learn, XGBoost and LightGBM models, MLServer's own, behind MLServer and behind the daemon: the
same answers to the same requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib
import lightgbm
import numpy as np
import pytest
import requests
import xgboost
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks import peers
from tests.e2e.daemon import Daemon
from tests.peers.servers import ROOT
from tests.runtime.table_models import CLASSES, NAMES, NUMBERS, ROWS, questions

pytestmark = [pytest.mark.peers, pytest.mark.timeout(180)]

SKLEARN = {
    "classes": LogisticRegression().fit(ROWS, CLASSES),
    "words": make_pipeline(StandardScaler(), LogisticRegression()).fit(ROWS, NAMES[CLASSES]),
    "regressor": Ridge().fit(ROWS, NUMBERS),
    "transformer": StandardScaler().fit(ROWS),
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The addresses of MLServer and of the daemon."""
    folder = tmp_path_factory.mktemp("tables")
    models = folder / "models"
    for name, model in SKLEARN.items():
        joblib.dump(model, settings(models / name, "sklearn.SKLearnModel", "model.joblib"))
    boosted = xgboost.XGBClassifier(n_estimators=3, n_jobs=1).fit(ROWS, CLASSES)
    boosted.save_model(settings(models / "boosted", "xgboost.XGBoostModel", "model.json"))
    bare = xgboost.train({"objective": "binary:logistic"}, xgboost.DMatrix(ROWS, CLASSES > 0), 3)
    bare.save_model(settings(models / "bare", "xgboost.XGBoostModel", "model.ubj"))
    trees = lightgbm.train({"verbose": -1, "num_threads": 1}, lightgbm.Dataset(ROWS, CLASSES), 3)
    trees.save_model(settings(models / "trees", "lightgbm.LightGBMModel", "model.txt"))
    environment = peers.environment("MLSERVER_ENVIRONMENT") or ROOT / ".venv-mlserver"
    with peers.mlserver(environment, folder, models) as theirs:
        repository = {"path": str(models), "allow_pickle": True}
        daemon = Daemon.start(
            folder,
            {"listeners": [{"listen": "127.0.0.1:0", "transport": "http"}], "model_repository": [repository]},
        )
        try:
            yield theirs.addresses["http"], daemon.addresses[0]
        finally:
            daemon.kill()


def settings(folder: Path, implementation: str, file: str) -> Path:
    """The place of the model file, beside MLServer's settings for it."""
    folder.mkdir(parents=True)
    stated = {
        "name": folder.name,
        "implementation": f"mlserver_{implementation}",
        "parameters": {"uri": f"./{file}", "version": "7"},
    }
    (folder / "model-settings.json").write_text(json.dumps(stated))
    return folder / file


def answers(server: str, model: str, datatype: str, outputs: list[str], path: str = "") -> Any:
    data = questions(3).astype({"FP32": "f4", "FP64": "f8", "INT64": "i8"}[datatype]).ravel().tolist()
    body: dict[str, Any] = {
        "inputs": [{"name": "input-0", "shape": [3, 4], "datatype": datatype, "data": data}]
    }
    if outputs:
        body["outputs"] = [{"name": name} for name in outputs]
    reply = requests.post(f"http://{server}/v2/models/{model}{path}/infer", json=body, timeout=60)
    assert reply.status_code == 200, reply.text
    return {output["name"]: (output["shape"], array(output)) for output in reply.json()["outputs"]}


def array(output: Any) -> NDArray[Any]:
    """The values: the servers write the same number of FP32 in different texts."""
    return np.array(output["data"], {"FP32": "f4", "FP64": "f8", "INT64": "i8"}.get(output["datatype"], "U"))


@pytest.mark.parametrize("datatype", ["FP64", "FP32", "INT64"])
@pytest.mark.parametrize(
    ("model", "outputs"),
    [
        ("classes", []),
        ("classes", ["predict_proba"]),
        ("words", []),
        ("regressor", []),
        ("transformer", ["transform"]),
        ("boosted", []),
        ("boosted", ["predict", "predict_proba"]),
        ("bare", []),
        ("trees", []),
    ],
)
def test_the_same_answers(servers: tuple[str, str], model: str, outputs: list[str], datatype: str) -> None:
    theirs, ours = (answers(server, model, datatype, outputs) for server in servers)
    assert ours.keys() == theirs.keys()
    for name, (shape, found) in ours.items():
        expected = theirs[name][1]
        assert shape == theirs[name][0]
        if (datatype, model) in {("FP32", "regressor"), ("FP32", "classes"), ("FP32", "transformer")}:
            # MLServer has scikit-learn compute these in FP32, the daemon in FP64
            np.testing.assert_allclose(found, expected, rtol=1e-5)
        else:
            assert (found.dtype, found.tobytes()) == (expected.dtype, expected.tobytes())


def test_the_version_is_that_of_the_settings(servers: tuple[str, str]) -> None:
    theirs, ours = (answers(server, "trees", "FP64", [], "/versions/7") for server in servers)
    assert ours["predict"][1].tobytes() == theirs["predict"][1].tobytes()
