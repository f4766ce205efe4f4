"""Models of scikit-learn, XGBoost and LightGBM behind the real daemon: every dialect gets the library's own answer, bit
for bit, and requests of all dialects share batches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest
import requests
import tritonclient.grpc
import xgboost
from graphpipe import remote
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from interlingua.translator.cli import main
from interlingua.translator.config.context import Installation
from tests.e2e.daemon import Daemon
from tests.runtime.table_models import CLASSES, NAMES, ROWS, questions, written
from tests.standins.trtis_http_client import TrtisHttp

FOREST = xgboost.XGBClassifier(n_estimators=3, n_jobs=1).fit(ROWS, CLASSES)
TREES = lightgbm.train({"verbose": -1, "num_threads": 1}, lightgbm.Dataset(ROWS, CLASSES), 3)
WORDS = LogisticRegression().fit(ROWS, NAMES[CLASSES])
ANSWERS: dict[str, tuple[Callable[[NDArray[Any]], NDArray[Any]], str]] = {
    "words": (WORDS.predict, "predict"),
    "linear": (WORDS.predict_proba, "predict_proba"),
    "forest": (FOREST.predict_proba, "predict_proba"),
    "trees": (TREES.predict, "predict"),
}
"""Each model's function that is asked, and the output's name. Version 1 and grps state outputs, others may not."""

CALLS = Installation.present().calls
WAYS = [(dialect, transport) for dialect in CALLS for transport in sorted(CALLS[dialect])]
PLACES = [(transport, model) for transport in sorted({each for _, each in WAYS}) for model in ANSWERS]
"""A listener for each: over plain TCP an address has one model."""

TOGETHER = """
max_batch_size: 8
dynamic_batching { preferred_batch_size: [ 5 ] max_queue_delay_microseconds: 60000000 }
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("tables")
    models = folder / "models"
    for name in ("words", "linear"):
        written(models / name, WORDS)
    for name in ("forest", "trees", "together"):
        (models / name).mkdir()
    FOREST.save_model(models / "forest" / "model.json")
    TREES.save_model(models / "trees" / "model.txt")
    TREES.save_model(models / "together" / "model.txt")
    (models / "together" / "config.pbtxt").write_text(TOGETHER)
    # TensorFlow Serving's JSON has no place for the names of requested outputs
    (models / "words" / "config.pbtxt").write_text(
        'output { name: "predict" data_type: TYPE_STRING dims: [ -1, 1 ] }'
    )
    (models / "linear" / "config.pbtxt").write_text(
        'output { name: "predict_proba" data_type: TYPE_FP64 dims: [ -1, 3 ] }'
    )
    (models / "forest" / "config.pbtxt").write_text(
        'output { name: "predict_proba" data_type: TYPE_FP32 dims: [ -1, 3 ] }'
    )
    serves = Installation.present().serves
    listeners = [
        {
            "listen": "127.0.0.1:0",
            "transport": transport,
            "default_model": model,
            "dialects": [dialect for dialect in serves if transport in serves[dialect]],
        }
        for transport, model in PLACES
    ]
    running = Daemon.start(folder, {"listeners": listeners, "model_repository": [{"path": str(models)}]})
    try:
        yield running
        assert running.stop() == 0
    finally:
        running.kill()


def address(daemon: Daemon, transport: str, model: str) -> str:
    return daemon.addresses[PLACES.index((transport, model))]


@pytest.mark.parametrize("model", ANSWERS)
@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_the_library_s_own_answer(daemon: Daemon, tmp_path: Path, way: tuple[str, str], model: str) -> None:
    dialect, transport = way
    rows = questions(5)
    np.save(tmp_path / "rows.npy", rows)
    where = [f"--dialect={dialect}", f"--transport={transport}", f"--url={address(daemon, transport, model)}"]
    given = [
        f"--model={'' if transport == 'tcp' else model}",
        f"--input=input=@{tmp_path / 'rows.npy'}",
        f"--npz={tmp_path / 'out.npz'}",
        f"--output={ANSWERS[model][1]}",
    ]
    function, output = ANSWERS[model]
    assert main(["infer", *where, *given]) == 0
    answers = np.load(tmp_path / "out.npz", allow_pickle=True)
    (answer,) = [value for name, value in answers.items() if name == output or len(answers) == 1]
    expected = function(rows)
    if model == "words":
        assert [each.decode() if isinstance(each, bytes) else each for each in answer.ravel()] == list(
            expected
        )
    else:
        assert (answer.dtype, answer.tobytes()) == (expected.dtype, expected.tobytes())


def oip(where: str, row: NDArray[Any]) -> NDArray[Any]:
    tensor = tritonclient.grpc.InferInput("input", row.shape, "FP64")
    tensor.set_data_from_numpy(row)
    with tritonclient.grpc.InferenceServerClient(where) as client:
        return client.infer("together", [tensor]).as_numpy("predict")


def trtis(where: str, row: NDArray[Any]) -> NDArray[Any]:
    client = TrtisHttp(where)
    try:
        return client.infer("together", {"input": row}, ["predict"]).outputs["predict"]
    finally:
        client.close()


def graphpipe(where: str, row: NDArray[Any]) -> NDArray[Any]:
    return remote.execute(f"http://{where}/graphpipe/together", row, "input", "predict")


def grps(where: str, row: NDArray[Any]) -> NDArray[Any]:
    """Another name, and a narrower datatype."""
    tensor = {"name": "any", "dtype": "DT_FLOAT32", "shape": [1, 4], "flat_float32": row.ravel().tolist()}
    body = {"model": "together", "gtensors": {"tensors": [tensor]}}
    told = requests.post(f"http://{where}/grps/v1/infer/predict", json=body, timeout=90).json()
    return np.array(told["gtensors"]["tensors"][0]["flat_float64"])


def tfserving(where: str, row: NDArray[Any]) -> NDArray[Any]:
    url = f"http://{where}/v1/models/together:predict"
    return np.array(requests.post(url, json={"inputs": row.tolist()}, timeout=90).json()["outputs"])


def test_requests_of_all_dialects_share_a_batch(daemon: Daemon) -> None:
    http, grpc = address(daemon, "http", "trees"), address(daemon, "grpc", "trees")
    # one of them comes as FP32
    rows = questions(5).astype("f4").astype("f8")
    ways = ((oip, grpc), (trtis, http), (graphpipe, http), (grps, http), (tfserving, http))
    assert len(ways) == len(CALLS)
    with ThreadPoolExecutor(len(ways)) as pool:
        pending = [pool.submit(ask, where, rows[[place]]) for place, (ask, where) in enumerate(ways)]
        answers = [each.result(90) for each in pending]
    assert np.concatenate([each.ravel() for each in answers]).tobytes() == TREES.predict(rows).tobytes()
    stats = requests.get(f"http://{http}/v2/models/together/stats", timeout=30).json()["model_stats"][0]
    assert (stats["inference_count"], stats["execution_count"]) == (len(ways), 1)


@pytest.mark.parametrize(
    ("tensor", "complaint"),
    [
        ({"name": "x", "shape": [1, 4], "datatype": "BYTES", "data": ["a"] * 4}, "'x' data-type is 'BYTES'"),
        ({"name": "x", "shape": [1, 3], "datatype": "FP64", "data": [1, 2, 3]}, "shape for input 'x'"),
        ({"name": "x", "shape": [1, 4], "datatype": "INT64", "data": [1, 2, 3, 2**53 + 1]}, "input 'x'"),
    ],
    ids=["datatype", "shape", "value"],
)
def test_refused_inputs_are_named(daemon: Daemon, tensor: dict[str, Any], complaint: str) -> None:
    url = f"http://{address(daemon, 'http', 'trees')}/v2/models/words/infer"
    answer = requests.post(url, json={"inputs": [tensor]}, timeout=30)
    assert (answer.status_code, complaint in answer.json()["error"]) == (400, True), answer.text


def test_metadata_have_what_the_model_knows(daemon: Daemon) -> None:
    url = f"http://{address(daemon, 'http', 'trees')}/v2/models/trees"
    told = requests.get(url, timeout=30).json()
    (given,) = told["inputs"]
    assert (given["datatype"], given["shape"]) == ("FP64", [-1, 4])
    assert json.loads(given["parameters"]["feature_names"]) == TREES.feature_name()
    assert told["outputs"] == [{"name": "predict", "datatype": "FP64", "shape": [-1, 1]}]
    assert told["platform"] == "lightgbm"
