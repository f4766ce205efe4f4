"""What an upstream's two configuration files tell of its models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from interlingua.protocols.grps.client_deployment import (
    UNKNOWN,
    DeployedModel,
    index,
    joined,
    metadata,
    read_models,
)
from interlingua.schemas import ErrorCode, InferenceError, ModelRef

RECORDED = Path(__file__).parents[2] / "golden" / "grps" / "http_exchanges.json"
MODELS = (
    DeployedModel("resnet", "1.10", "torch"),
    DeployedModel("resnet", "2.0-rc1", "torch"),
    DeployedModel("resnet-1.10", "3", "customized"),
)


@pytest.mark.parametrize("flavor", ["py", "cpp"])
def test_both_servers_tell_the_same(flavor: str) -> None:
    recorded = json.loads(RECORDED.read_text())["standard"]["meta_server_post"][flavor]
    models = read_models(json.loads(recorded["body"]["text"])["str_data"])
    assert models == (
        DeployedModel("your_model", "1.0.0", "customized"),
        DeployedModel("my-dashed-model", "2.0.0-rc1", "customized"),
    )
    assert [status.name for status in index(models)] == ["your_model-1.0.0", "my-dashed-model-2.0.0-rc1"]


def test_without_libyaml_the_same_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "models: [{name: 12, version: 1.10}, {name: yes, inferer_type: &a torch, version: *a}]"
    fast = read_models(text)
    monkeypatch.setattr("interlingua.protocols.grps.client_deployment._FAST_LOADER", yaml.BaseLoader)
    assert (
        read_models(text) == fast == (DeployedModel("12", "1.10", ""), DeployedModel("yes", "torch", "torch"))
    )


def test_a_version_is_text() -> None:
    assert read_models("models: [{name: 12, version: 1.10}, {name: yes}]") == (
        DeployedModel("12", "1.10", ""),
        DeployedModel("yes", "", ""),
    )


@pytest.mark.parametrize(
    ("name", "version", "versions"),
    [
        ("resnet", "", ("1.10", "2.0-rc1")),
        ("resnet", "2.0-rc1", ("2.0-rc1",)),
        ("resnet-2.0-rc1", "", ("2.0-rc1",)),
        ("resnet-1.10", "3", ("3",)),
        ("", "", ()),
    ],
)
def test_a_model_by_whatever_it_is_called(name: str, version: str, versions: tuple[str, ...]) -> None:
    told = metadata(MODELS, ModelRef(name, version))
    assert (told.name, told.versions, told.signature) == (name, versions, UNKNOWN)


@pytest.mark.parametrize(("name", "version"), [("vgg", ""), ("resnet", "1.1"), ("", "7")])
def test_a_model_that_is_not_there(name: str, version: str) -> None:
    with pytest.raises(InferenceError) as caught:
        metadata(MODELS, ModelRef(name, version))
    assert caught.value.code in (ErrorCode.NOT_FOUND, ErrorCode.UNREPRESENTABLE)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "models",
        "[]",
        "models: {}",
        "models: [1]",
        "a: [",
        "\0",
        "a: b: c",
        "[" * 5000,
        "[" * 200_000,
        "- " * 200_000,
        "? " * 200_000,
        "{a: " * 200_000,
        "".join(" " * level + "a:\n" for level in range(2000)),
        "models: [\ud800]",
        "&a [*a, *b]",
        "? [x]\n: 1",
    ],
)
def test_what_is_no_configuration(text: str) -> None:
    with pytest.raises(InferenceError) as caught:
        read_models(text)
    assert caught.value.code is ErrorCode.BAD_UPSTREAM


def test_what_a_request_calls_a_model() -> None:
    assert joined("m", "") == "m"
    assert joined("m", "1.0") == joined("m-1.0", "1.0") == "m-1.0"
    assert joined("m-1", "2") == "m-1-2"
    with pytest.raises(InferenceError, match="default model") as caught:
        joined("", "1")
    assert caught.value.code is ErrorCode.UNREPRESENTABLE
