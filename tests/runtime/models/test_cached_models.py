"""Models that answer from the response cache: what is counted, what is never kept, what a reload forgets."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.models.response_cache import ResponseCache
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.repository.files import Repository, load_model
from interlingua.schemas import InferenceError, InferRequest, ModelControl, Sequence, Tensor
from tests.runtime.python_models import INT32, python_model

CACHED = INT32 + "response_cache { enable: true }\n"
NUMBERED = """
calls = 0
def execute(self, requests):
    answers = []
    for request in requests:
        self.calls += 1
        if (given(request) == 13).any():
            raise ValueError("thirteen")
        answers.append(answer(np.append(given(request), self.calls), parameters={"call": self.calls}))
    return answers
"""


def catalog_of(folder: Path, config: str = CACHED, limit: int = 100_000) -> ModelCatalog:
    model = load_model(python_model(folder, NUMBERED, config))
    cache = ResponseCache(limit) if limit else None
    return ModelCatalog({"m": model}, {}, [Repository(folder, True)], cache=cache)


def question(*numbers: int, **more) -> InferRequest:
    return InferRequest("m", (Tensor.from_numpy("IN", np.array(numbers, np.int32)),), **more)


async def ask(catalog: ModelCatalog, request: InferRequest) -> list[int]:
    response = await catalog.find("m").infer(request)
    (output,) = response.outputs
    assert response.id == request.id
    assert response.parameters == {"call": output.numpy()[-1]}
    return output.numpy().tolist()


async def statistics(catalog: ModelCatalog):
    return (await catalog.find("m").status()).versions[0].statistics


async def test_the_same_question_is_answered_without_a_run(tmp_path: Path) -> None:
    catalog = catalog_of(tmp_path)
    try:
        assert await ask(catalog, question(7, id="a")) == [7, 1]
        assert await ask(catalog, question(7, id="b")) == [7, 1]
        assert await ask(catalog, question(8)) == [8, 2]
        assert await ask(catalog, question(7, parameters={"other": 1})) == [7, 3]
        counted = await statistics(catalog)
        assert (counted.cache_hit.count, counted.cache_miss.count) == (1, 3)
        assert counted.cache_hit.ns > 0 < counted.cache_miss.ns
        assert (counted.inference_count, counted.execution_count) == (3, 3)
        assert counted.by_batch_size[1].success.count == 4
        assert counted.by_batch_size[1].compute_infer.count == 3
    finally:
        await catalog.close()


async def test_a_hit_has_waited_and_is_no_inference(tmp_path: Path) -> None:
    """Triton 2.51 counts hits in ``queue``, and ``last_inference`` stays as it was."""
    catalog = catalog_of(tmp_path)
    try:
        await ask(catalog, question(7))
        counted = await statistics(catalog)
        counted.last_inference_ms = 5
        await ask(catalog, question(7))
        assert counted.last_inference_ms == 5
        parts = counted.by_batch_size[1]
        assert (parts.success.count, parts.queue.count) == (2, 2)
        assert (parts.compute_input.count, parts.compute_infer.count, parts.compute_output.count) == (1, 1, 1)
    finally:
        await catalog.close()


async def test_failures_are_not_kept(tmp_path: Path) -> None:
    catalog = catalog_of(tmp_path)
    try:
        for _ in range(2):
            with pytest.raises(InferenceError, match="thirteen"):
                await ask(catalog, question(13))
        assert await ask(catalog, question(1)) == [1, 3]
        counted = await statistics(catalog)
        assert (counted.cache_hit.count, counted.cache_miss.count) == (0, 1)
        assert counted.by_batch_size[1].failed.count == 2
    finally:
        await catalog.close()


async def test_a_request_of_a_sequence_is_always_run(tmp_path: Path) -> None:
    catalog = catalog_of(tmp_path)
    try:
        place = replace(question(1), sequence=Sequence(5, start=True))
        assert [await ask(catalog, place), await ask(catalog, place)] == [[1, 1], [1, 2]]
    finally:
        await catalog.close()


@pytest.mark.parametrize(("config", "limit"), [(INT32, 100_000), (CACHED, 0)], ids=["model", "server"])
async def test_both_the_model_and_the_server_have_to_want_it(tmp_path: Path, config: str, limit: int) -> None:
    catalog = catalog_of(tmp_path, config, limit)
    try:
        assert [await ask(catalog, question(1)), await ask(catalog, question(1))] == [[1, 1], [1, 2]]
    finally:
        await catalog.close()


async def test_a_reloaded_model_answers_for_itself(tmp_path: Path) -> None:
    catalog = catalog_of(tmp_path)
    try:
        assert await ask(catalog, question(1)) == [1, 1]
        file = tmp_path / "m" / "1" / "model.py"
        file.write_text(
            file.read_text()
            .replace("self.calls)", "self.calls + 100)")
            .replace(": self.calls", ": self.calls + 100")
        )
        await catalog.load("m", ModelControl())
        assert await ask(catalog, question(1)) == [1, 101]
        assert await ask(catalog, question(1)) == [1, 101]
    finally:
        await catalog.close()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (
            "model_transaction_policy { decoupled: true }",
            "response_cache is not supported together with decoupled",
        ),
        ("sequence_batching { }", "response_cache is not supported together with sequence_batching"),
    ],
)
def test_where_answers_depend_on_more_than_the_question_it_is_refused(
    tmp_path: Path, more: str, says: str
) -> None:
    with pytest.raises(LoadError, match=says):
        load_model(python_model(tmp_path, NUMBERED, CACHED + more))
