"""``HandleReloadConfigRequest``, written with the messages of a real client."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ovmsclient.tfs_compat.protos.tensorflow_serving.apis import model_management_pb2

from interlingua.protocols.tfserving import DIALECT
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.repository.files import Repository
from interlingua.schemas import Context, ServerMetadata
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.pipeline import Pipeline
from interlingua.translator.serving.router import Router
from tests.runtime.repository.test_catalog import write_broken, write_model

METHOD = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"
OK, UNKNOWN, INVALID_ARGUMENT, NOT_FOUND, FORBIDDEN, UNIMPLEMENTED, UNAVAILABLE = 0, 2, 3, 5, 7, 12, 14


@pytest.fixture
async def catalog(tmp_path: Path) -> AsyncIterator[ModelCatalog]:
    for version in (1, 2):
        write_model(tmp_path, "m", version=version)
    write_model(tmp_path, "other")
    write_broken(tmp_path, "broken")
    made = ModelCatalog({}, {}, [Repository(tmp_path, controlled=True)])
    yield made
    await made.close()


def entry(folder: Path, name: str, /, **fields: Any) -> dict[str, Any]:
    return {"name": name, "base_path": str(folder / name), "model_platform": "tensorflow", **fields}


async def reload(catalog: ModelCatalog, config: Mapping[str, Any], peer: str = "127.0.0.1") -> GrpcAnswer:
    service = Service(Router(catalog), ServerMetadata("interlingua", "0"))
    listener = Pipeline(service, "127.0.0.1:1", list(DIALECT.bindings.values()))
    message = model_management_pb2.ReloadConfigRequest(config=config).SerializeToString()
    answer: GrpcAnswer = await listener.handlers["grpc"].serve(
        GrpcRequest(METHOD, message, context=Context(peer=peer))
    )
    return answer


def of(*entries: Mapping[str, Any]) -> dict[str, Any]:
    return {"model_config_list": {"config": entries}}


async def test_models_are_loaded_and_unloaded(catalog: ModelCatalog, tmp_path: Path) -> None:
    answer = await reload(catalog, of(entry(tmp_path, "m"), entry(tmp_path, "other")))
    assert answer.code == OK, answer.details
    said = model_management_pb2.ReloadConfigResponse.FromString(bytes(answer.message))
    assert said.HasField("status")
    assert (said.status.error_code, said.status.error_message) == (0, "")
    assert {name: list(model.loaded) for name, model in catalog.models.items()} == {
        "m": ["2"],
        "other": ["1"],
    }
    assert (await reload(catalog, of(entry(tmp_path, "other")))).code == OK
    assert set(catalog.models) == {"other"}
    assert (await reload(catalog, of())).code == OK
    assert not catalog.models


@pytest.mark.parametrize(
    ("policy", "versions"),
    [
        ({"all": {}}, ["1", "2"]),
        ({"latest": {"num_versions": 2}}, ["1", "2"]),
        ({"latest": {}}, ["2"]),
        ({"specific": {"versions": [1]}}, ["1"]),
        ({}, ["2"]),
    ],
)
async def test_version_policies(
    catalog: ModelCatalog, tmp_path: Path, policy: dict[str, Any], versions: list[str]
) -> None:
    answer = await reload(catalog, of(entry(tmp_path, "m", model_version_policy=policy)))
    assert answer.code == OK, answer.details
    assert list(catalog.models["m"].loaded) == versions


BOTH = {"model_type": 1}
OLD = {"model_type": 1, "model_platform": ""}
ONLY_LISTS = "Only ModelConfigList is currently supported"


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"name": ""}, INVALID_ARGUMENT, "without a name"),
        (BOTH, INVALID_ARGUMENT, "Illegal setting both ModelServerConfig::model_type"),
        ({"model_platform": ""}, INVALID_ARGUMENT, "Illegal setting neither ModelServerConfig::model_type"),
        ({**OLD, "model_type": 2}, INVALID_ARGUMENT, "choice 2 not supported"),
        ({"base_path": "m"}, INVALID_ARGUMENT, "Expected model m to have an absolute path or URI"),
        ({"base_path": ""}, INVALID_ARGUMENT, "Expected model m to have an absolute path or URI"),
        ({"base_path": "/none"}, NOT_FOUND, "^Could not find base path /none for servable m"),
        ({"base_path": "gs://a/m"}, NOT_FOUND, "^Could not find base path gs://a/m for servable m"),
        ({"model_version_policy": {"specific": {}}}, INVALID_ARGUMENT, "specific version policy without"),
        ({"version_labels": {"stable": 1}}, UNIMPLEMENTED, "version_labels of model m"),
        ({"logging_config": {}}, UNIMPLEMENTED, "logging_config of model m"),
    ],
)
async def test_lists_that_are_refused(
    catalog: ModelCatalog, tmp_path: Path, fields: dict[str, Any], code: int, text: str
) -> None:
    await catalog.load("other")
    answer = await reload(catalog, of(entry(tmp_path, "m", **fields)))
    assert answer.code == code
    assert re.search(text, answer.details), answer.details
    assert set(catalog.models) == {"other"}


async def test_the_old_form_of_a_platform(catalog: ModelCatalog, tmp_path: Path) -> None:
    assert (await reload(catalog, of(entry(tmp_path, "m", **OLD)))).code == OK


async def test_a_model_that_fails(catalog: ModelCatalog, tmp_path: Path) -> None:
    await catalog.load("other")
    answer = await reload(catalog, of(entry(tmp_path, "broken")))
    assert answer.code == UNKNOWN
    assert answer.details.startswith("Some models did not become available: {broken}")
    assert set(catalog.models) == {"other"}


@pytest.mark.parametrize("config", [{}, {"custom_model_config": {"type_url": "a/b"}}])
async def test_other_configurations(catalog: ModelCatalog, config: dict[str, Any]) -> None:
    answer = await reload(catalog, config)
    assert (answer.code, ONLY_LISTS in answer.details) == (INVALID_ARGUMENT, True)


async def test_a_name_twice(catalog: ModelCatalog, tmp_path: Path) -> None:
    answer = await reload(catalog, of(entry(tmp_path, "m"), entry(tmp_path, "m")))
    assert (answer.code, answer.details) == (
        INVALID_ARGUMENT,
        "Illegal to list model m multiple times in config list",
    )


async def test_who_may(catalog: ModelCatalog, tmp_path: Path) -> None:
    answer = await reload(catalog, of(), peer="10.0.0.7")
    assert (answer.code, "'control'" in answer.details) == (FORBIDDEN, True)
    catalog.configure([Repository(tmp_path)], (), 9)
    answer = await reload(catalog, of())
    assert (answer.code, "explicit model load / unload is not allowed" in answer.details) == (
        UNAVAILABLE,
        True,
    )
