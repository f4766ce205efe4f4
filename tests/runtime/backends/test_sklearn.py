"""Models of scikit-learn answer what the library itself answers, bit for bit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import NMF, PCA
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC

from interlingua.runtime.backends import sklearn as backend
from interlingua.runtime.backends.tables import EstimatorInstance
from interlingua.runtime.model_config.config import LoadError, ModelConfig
from interlingua.schemas import Datatype, ErrorCode, InferenceError, Tensor, TensorSpec
from tests.runtime.table_models import CLASSES, FEATURES, NAMES, NUMBERS, ROWS, questions, written

MODELS: dict[str, Any] = {
    "logistic": LogisticRegression().fit(ROWS, CLASSES),
    "words": LogisticRegression().fit(ROWS, NAMES[CLASSES]),
    "objects": KNeighborsClassifier().fit(ROWS, NAMES[CLASSES].astype(object)),
    "two classes": SVC().fit(ROWS, CLASSES > 0),
    "forest": RandomForestClassifier(5, n_jobs=2, random_state=0).fit(ROWS, CLASSES),
    "histogram": HistGradientBoostingClassifier(max_iter=2).fit(ROWS, CLASSES),
    "regressor": GradientBoostingRegressor(n_estimators=3).fit(ROWS, NUMBERS),
    "two numbers": LinearRegression().fit(ROWS, np.stack([NUMBERS, -NUMBERS], 1)),
    "two targets": MultiOutputClassifier(LogisticRegression()).fit(ROWS, np.stack([CLASSES, CLASSES > 0], 1)),
    "pipeline": make_pipeline(StandardScaler(), LogisticRegression()).fit(ROWS, CLASSES),
    "transformer": PCA(2, random_state=0).fit(ROWS),
    "clusters": KMeans(3, n_init=1, random_state=0).fit(ROWS),
}


def loaded(folder: Path, model: Any, config: ModelConfig = ModelConfig()) -> EstimatorInstance:  # noqa: B008
    return backend.load(written(folder, model), replace(config, allow_pickle=True))


def ask(instance: EstimatorInstance, array: Any, *outputs: str, name: str = "input") -> dict[str, Tensor]:
    names = outputs or tuple(spec.name for spec in instance.signature.outputs)
    given = (Tensor.from_numpy(name, np.asarray(array)),)
    return {tensor.name: tensor for tensor in instance.run(given, names)}


def same(answer: Tensor, expected: Any) -> bool:
    """Whether ``answer`` has the bytes of ``expected``, whose second dimension may be implied."""
    expected = np.asarray(expected)
    if answer.datatype is Datatype.BYTES:
        return answer.elements() == [str(each).encode() for each in expected.ravel()]
    shape = expected.shape if expected.ndim > 1 else (*expected.shape, 1)
    return (answer.shape, bytes(answer.view)) == (shape, expected.tobytes())


@pytest.mark.parametrize("name", MODELS)
def test_answers_are_the_library_s_own(tmp_path: Path, name: str) -> None:
    model, rows = MODELS[name], questions()
    instance = loaded(tmp_path, model)
    answers = ask(instance, rows)
    available = [
        each
        for each in ("predict", "predict_proba", "decision_function", "transform")
        if hasattr(model, each)
    ]
    for function in available:
        expected = getattr(model, function)(rows)
        if isinstance(expected, list):
            for index, each in enumerate(expected):
                assert same(answers.pop(f"{function}_{index}"), each)
        else:
            assert same(answers.pop(function), expected)
    assert not answers
    assert instance.default_outputs == (available[0],)


@pytest.mark.parametrize("name", MODELS)
def test_the_signature_is_what_it_answers(tmp_path: Path, name: str) -> None:
    instance = loaded(tmp_path, MODELS[name])
    (given,) = instance.signature.inputs
    assert (given.datatype, given.shape) == (Datatype.FP64, (-1, FEATURES))
    answers = ask(instance, questions(3))
    for spec in instance.signature.outputs:
        assert (spec.datatype, (3, *spec.shape[1:])) == (
            answers[spec.name].datatype,
            answers[spec.name].shape,
        )


def test_classes_are_labels(tmp_path: Path) -> None:
    labels = {spec.name: spec.labels for spec in loaded(tmp_path, MODELS["words"]).signature.outputs}
    assert labels == {"predict": (), "predict_proba": tuple(NAMES), "decision_function": tuple(NAMES)}


_DATATYPES = ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?")


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(_DATATYPES), st.integers(1, 40), st.integers(0, 99))
def test_any_number_is_what_it_is_in_fp64(dtype: str, rows: int, seed: int) -> None:
    model = MODELS["pipeline"]
    array = (questions(rows, seed) * 50).astype(dtype) if dtype[0] != "u" else abs(questions(rows, seed) * 50)
    array = array.astype(dtype)
    instance = _INSTANCES.setdefault("pipeline", _instance(model))
    answers = ask(instance, array, name="any name")
    assert same(answers["predict"], model.predict(array.astype("f8")))
    assert same(answers["predict_proba"], model.predict_proba(array.astype("f8")))


_INSTANCES: dict[str, EstimatorInstance] = {}


def _instance(model: Any) -> EstimatorInstance:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return loaded(Path(folder), model)


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 2**63 - 1, 2**64 - 1])
def test_an_integer_that_fp64_cannot_hold_is_refused(tmp_path: Path, value: int) -> None:
    array = np.full((1, FEATURES), value, "u8" if value >= 2**63 else "i8")
    with pytest.raises(InferenceError, match="input 'x': an integer has no exact value in FP64") as raised:
        ask(loaded(tmp_path, MODELS["logistic"]), array, name="x")
    assert raised.value.code is ErrorCode.INVALID_TENSOR


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_the_library_refuses_names_the_input(tmp_path: Path, value: float) -> None:
    rows = questions()
    rows[2, 1] = value
    with pytest.raises(
        InferenceError, match="^input 'x': scikit-learn refuses it: Input X contains"
    ) as raised:
        ask(loaded(tmp_path, MODELS["logistic"]), rows, "predict", name="x")
    assert raised.value.code is ErrorCode.INVALID_TENSOR
    # trees of histograms take missing values
    model = MODELS["histogram"]
    rows[2, 1] = np.nan
    assert same(ask(loaded(tmp_path, model), rows, "predict")["predict"], model.predict(rows))


def test_a_declared_datatype_is_what_it_computes_in(tmp_path: Path) -> None:
    config = ModelConfig(inputs=(TensorSpec("x", Datatype.FP32, (-1, FEATURES)),))
    instance = loaded(tmp_path, MODELS["logistic"], config)
    rows = questions().astype("f4")
    assert same(ask(instance, rows, "predict_proba")["predict_proba"], MODELS["logistic"].predict_proba(rows))


def test_names_of_features_and_columns(tmp_path: Path) -> None:
    """A model that selects columns by name takes one tensor, in the order of its features, or one of each."""
    columns = ["a", "b", "c", "d"]
    frame = pandas.DataFrame(ROWS, columns=columns)
    chosen = ColumnTransformer([("scaled", StandardScaler(), ["d", "a"])], remainder="passthrough")
    model = make_pipeline(chosen, LogisticRegression()).fit(frame, CLASSES)
    rows = questions()
    expected = model.predict_proba(pandas.DataFrame(rows, columns=columns))
    instance = loaded(tmp_path, model)
    (given,) = instance.signature.inputs
    assert json.loads(str(given.parameters["feature_names"])) == columns
    assert same(ask(instance, rows)["predict_proba"], expected)
    declared = tuple(TensorSpec(name, Datatype.FP64, (-1, 1)) for name in reversed(columns))
    by_column = loaded(tmp_path, model, ModelConfig(inputs=declared))
    inputs = tuple(Tensor.from_numpy(name, rows[:, [place]]) for place, name in enumerate(columns))
    assert same(by_column.run(inputs, ("predict_proba",))[0], expected)


def test_texts_in_columns(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"colour": ["red", "blue", "red", "grün"], "size": [1.0, 2.0, 3.0, 4.0]})
    encoder = ColumnTransformer(
        [("colours", OneHotEncoder(handle_unknown="ignore"), ["colour"])], remainder="passthrough"
    )
    model = make_pipeline(encoder, LogisticRegression()).fit(frame, [0, 1, 0, 1])
    declared = (TensorSpec("colour", Datatype.BYTES, (-1,)), TensorSpec("size", Datatype.FP64, (-1,)))
    instance = loaded(tmp_path, model, ModelConfig(inputs=declared))
    assert not instance.bounded
    colours = Tensor.from_numpy("colour", np.array(["grün", "pink"], object))
    inputs = (colours, Tensor.from_numpy("size", np.array([1.5, 2.5])))
    asked = pandas.DataFrame({"colour": ["grün", "pink"], "size": [1.5, 2.5]})
    assert same(instance.run(inputs, ("predict_proba",))[0], model.predict_proba(asked))


def test_columns_that_the_model_does_not_have(tmp_path: Path) -> None:
    declared = tuple(TensorSpec(name, Datatype.FP64, (-1,)) for name in ("a", "b"))
    with pytest.raises(LoadError, match=r"inputs \['a', 'b'\] are declared, .* but the model has 4 features"):
        loaded(tmp_path, MODELS["logistic"], ModelConfig(inputs=declared))


def test_a_row_that_the_model_cannot_take_needs_declared_outputs(tmp_path: Path) -> None:
    words = np.array([["x"], ["y"]], object)
    model = OneHotEncoder(sparse_output=False).fit(words)
    inputs = (TensorSpec("w", Datatype.BYTES, (-1, 1)),)
    with pytest.raises(LoadError, match=r"cannot run a row of zeros or ones \(Found unknown categories"):
        loaded(tmp_path, model, ModelConfig(inputs=inputs))
    outputs = (TensorSpec("transform", Datatype.FP64, (-1, 2)),)
    instance = loaded(tmp_path, model, ModelConfig(inputs=inputs, outputs=outputs))
    (answer,) = instance.run((Tensor.from_numpy("w", words),), ("transform",))
    assert same(answer, model.transform(words))


def test_a_sparse_answer_is_written_out(tmp_path: Path) -> None:
    model = OneHotEncoder(handle_unknown="ignore").fit(np.array([[0.0], [1.0]]))
    array = np.array([[1.0], [0.0]])
    assert same(ask(loaded(tmp_path, model), array)["transform"], model.transform(array).toarray())


def test_runs_that_shapes_bound_may_be_inline(tmp_path: Path) -> None:
    bounded = {name: loaded(tmp_path, model).bounded for name, model in MODELS.items()}
    assert {name for name, each in bounded.items() if not each} == {"forest", "transformer", "clusters"}
    assert not loaded(tmp_path, NMF(2, max_iter=500).fit(abs(ROWS))).bounded


def test_no_run_starts_more_threads_than_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr("interlingua.runtime.backends.tables.available_cpus", lambda: 6)
    monkeypatch.setattr(backend, "_bound_jobs", lambda model, threads: seen.append(threads))
    loaded(tmp_path, MODELS["forest"], ModelConfig(instances=2))
    monkeypatch.setattr("interlingua.runtime.cpus.EngineThreads.count", 2)
    monkeypatch.setattr(
        backend.threadpoolctl, "threadpool_limits", lambda count, user_api: seen.append(count)
    )
    loaded(tmp_path, MODELS["forest"])
    assert seen == [3, 2, 2]


def test_jobs_of_parts_are_bounded() -> None:
    model = make_pipeline(StandardScaler(), RandomForestClassifier(2, n_jobs=8))
    backend._bound_jobs(model, 2)
    assert model.get_params()["randomforestclassifier__n_jobs"] == 2


class Stranger(LogisticRegression):
    """A type that skops does not know."""


def test_types_that_skops_does_not_trust_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"model\.skops: has types that skops does not trust: .*Stranger"):
        backend.load(written(tmp_path, Stranger().fit(ROWS, CLASSES)), ModelConfig())
    with pytest.raises(LoadError, match=r"does not trust: sklearn.tree._tree.Tree; `allow_pickle: true`"):
        backend.load(written(tmp_path, MODELS["forest"]), ModelConfig())


def test_a_pickle_only_where_it_is_permitted(tmp_path: Path) -> None:
    path = tmp_path / "model.joblib"
    joblib.dump(MODELS["logistic"], path)
    with pytest.raises(LoadError, match=r"model\.joblib: is a pickle, which executes code"):
        backend.load(path, ModelConfig())
    instance = backend.load(path, ModelConfig(allow_pickle=True))
    assert same(ask(instance, questions())["predict"], MODELS["logistic"].predict(questions()))


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "is not a skops file, or cut short"), (b"\x80\x04N.", "is not a skops file, or cut short")],
    ids=["empty", "pickle"],
)
def test_a_file_that_is_none_of_skops(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "model.skops"
    path.write_bytes(content)
    with pytest.raises(LoadError, match=reason):
        backend.load(path, ModelConfig(allow_pickle=True))


def test_an_object_without_an_output(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="is a dict, which has none of predict, predict_proba"):
        loaded(tmp_path, {"a": 1})


def test_no_device(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="scikit-learn runs on the CPU here, not on 'cuda:0'"):
        loaded(tmp_path, MODELS["logistic"], ModelConfig(device="cuda:0"))


def test_a_trusted_file_of_skops_answers_as_its_model(tmp_path: Path) -> None:
    instance = backend.load(written(tmp_path, MODELS["pipeline"]), ModelConfig())
    assert same(ask(instance, questions())["predict"], MODELS["pipeline"].predict(questions()))


def test_requests_with_other_names_and_datatypes_may_share_a_batch(tmp_path: Path) -> None:
    instance = loaded(tmp_path, MODELS["logistic"])
    rows = questions()
    for dtype in ("f8", "f4", "i4"):
        array = rows.astype(dtype)
        (unified,) = instance.unified((Tensor.from_numpy("x", array),))
        assert (unified.name, unified.datatype, unified.shape) == ("input", Datatype.FP64, array.shape)
        assert bytes(unified.view) == array.astype("f8").tobytes()
    # a large one is converted by the run, which is not on the event loop
    large = (Tensor.from_numpy("x", np.zeros((8192, FEATURES), "f4")),)
    assert instance.unified(large) is large


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300, 1e39, -1e39, 1e38, 1.0])
@pytest.mark.parametrize("name", ["logistic", "forest", "histogram", "pipeline", "two classes", "objects"])
def test_what_the_library_checks_is_what_it_refuses(tmp_path: Path, name: str, value: float) -> None:
    """Some models omit checks whose result is known; the thread checks again afterwards."""
    model = MODELS[name]
    instance, simple = loaded(tmp_path, model), loaded(tmp_path / "simple", MODELS["logistic"])
    for place in (0, 3):
        rows = questions()
        rows[place, place] = value
        ask(simple, questions())
        with np.errstate(all="ignore"):
            try:
                expected = model.predict(rows)
            except ValueError as error:
                reason = str(error).split("\n\n")[0]
                with pytest.raises(InferenceError) as raised:
                    ask(instance, rows, "predict")
                assert raised.value.message == f"input 'input': scikit-learn refuses it: {reason}"
            else:
                assert same(ask(instance, rows, "predict")["predict"], expected)


@pytest.mark.parametrize(("datatype", "value"), [(Datatype.FP32, 1e30), (Datatype.FP64, 1e200)])
def test_large_numbers_that_are_finite_give_no_warning(
    tmp_path: Path, datatype: Datatype, value: float
) -> None:
    config = ModelConfig(inputs=(TensorSpec("x", datatype, (-1, FEATURES)),))
    rows = np.full((2, FEATURES), value, datatype.dtype)
    answer = ask(loaded(tmp_path, MODELS["logistic"], config), rows, "predict", name="x")
    assert same(answer["predict"], MODELS["logistic"].predict(rows))


def test_frames_are_recognized_as_before() -> None:
    dependencies = pytest.importorskip("narwhals.stable.v2.dependencies")
    frame = pandas.DataFrame({"a": [1.0]})
    assert dependencies.is_into_dataframe(frame) and not dependencies.is_into_dataframe(frame["a"])
    assert dependencies.is_into_series(frame["a"]) and not dependencies.is_into_series(frame)
    for other in (ROWS, ROWS.tolist(), None):
        assert not (dependencies.is_into_dataframe(other) or dependencies.is_into_series(other))
