"""The configuration as YAML, held against what the two original servers were recorded with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from interlingua.protocols.grps.metadata import cpp_model, cpp_server, py_model, py_server
from interlingua.protocols.grps.options import PredictOptions, StreamingControl
from interlingua.schemas import Deployment, ListenerAddress, ModelState, ModelStatus, VersionStatus
from interlingua.schemas.model_config import MODEL_CONFIG

CONFIG = MODEL_CONFIG
MODELS = {
    "your_model": ModelStatus(
        "your_model",
        CONFIG(
            backend="python", max_batch_size=16, dynamic_batching={"max_queue_delay_microseconds": 1000}
        ).SerializeToString(),
        (
            VersionStatus("1", ModelState.READY),
            VersionStatus("2", ModelState.READY),
            VersionStatus("3", ModelState.UNAVAILABLE, "broken"),
        ),
    ),
    "other": ModelStatus(
        "other",
        CONFIG(
            platform="pytorch_libtorch", instance_group=[{"kind": "KIND_GPU", "gpus": [1]}]
        ).SerializeToString(),
        (VersionStatus("7", ModelState.READY),),
    ),
}
LISTENERS = (
    ListenerAddress("http", "127.0.0.1:7000", ("oip",)),
    ListenerAddress("brpc", "127.0.0.1:8010", ("grps",)),
    ListenerAddress("http", "unix:run/x.sock", ("grps",)),
    ListenerAddress("http", "127.0.0.1:8000", ("oip", "grps")),
    ListenerAddress("http", "127.0.0.1:9000", ("grps",)),
)
TOLD = Deployment(MODELS, "your_model", LISTENERS)
CPP = """\
interface:
  framework: http+brpc
  host: 127.0.0.1
  port: 8000,8010
max_connections: ~
max_concurrency: ~
log:
  log_dir: ~
  log_backup_count: ~
models:
  - name: your_model
    version: '1'
    device: cpu
    inp_device: ~
    inferer_type: customized
    inferer_name: python
    inferer_path: ~
    inferer_args:
      customized_op_paths: ~
    converter_type: none
    converter_name: ~
    converter_path: ~
    converter_args: ~
    batching:
      type: dynamic
      max_batch_size: 16
      batch_timeout_us: 1000
"""
DAG = """
dag:
  type: sequential
  name: your_model
  nodes:
    - name: node-1
      type: model
      model: your_model-2"""


def test_the_layout_of_the_cpp_server() -> None:
    text = cpp_server(TOLD, PredictOptions())
    assert text.startswith(CPP)
    assert text.endswith(DAG)


@pytest.mark.parametrize("write", [cpp_server, py_server])
def test_both_files_are_one_document(write: Any) -> None:
    document = yaml.safe_load(write(TOLD, PredictOptions()))
    order = ["models", "dag", "interface", "max_connections", "max_concurrency", "log"]
    assert sorted(document) == sorted(order)
    if write is py_server:
        assert list(document) == order
    assert [(each["name"], each["version"]) for each in document["models"]] == [
        ("your_model", "1"),
        ("your_model", "2"),
        ("other", "7"),
    ]
    other = document["models"][2]
    assert (other["inferer_type"], other["device"], other["batching"]["type"]) == ("torch", "cuda:1", "none")
    assert document["dag"]["nodes"] == [{"name": "node-1", "type": "model", "model": "your_model-2"}]


@pytest.mark.parametrize("write", [cpp_server, py_server])
def test_a_server_of_which_little_is_known(write: Any) -> None:
    document = yaml.safe_load(write(Deployment({}), PredictOptions()))
    assert document["models"] == document["dag"]["nodes"] == []
    assert document["interface"] == {"framework": None, "host": None, "port": None}
    assert document["dag"]["name"] is None


def test_a_configured_predict_path_is_listed() -> None:
    options = PredictOptions("/chat", True, StreamingControl("body_param", "stream", "text/event-stream"))
    document = yaml.safe_load(py_server(TOLD, options))
    assert document["interface"]["customized_predict_http"] == {
        "path": "/chat",
        "customized_body": True,
        "streaming_ctrl": {
            "ctrl_mode": "body_param",
            "ctrl_key": "stream",
            "res_content_type": "text/event-stream",
        },
    }


def test_one_model() -> None:
    told = replace(TOLD, models={"your_model": MODELS["your_model"]})
    assert cpp_model(told).startswith("name: your_model\nversion: '2'\ndevice: cpu\ninp_device: ~\n")
    assert cpp_model(told).endswith("batch_timeout_us: 1000")
    lines = py_model(told).splitlines()
    assert lines[:4] == ["batching:", "  batch_timeout_us: 1000", "  max_batch_size: 16", "  type: dynamic"]
    assert "converter_args: null" in lines
    assert yaml.safe_load(py_model(told)) == yaml.safe_load(cpp_model(told))


def test_names_are_text_whatever_they_look_like() -> None:
    strange = "yes: 'no' #\n你好"
    told = Deployment({strange: replace(MODELS["other"], name=strange)}, strange)
    for text in (py_model(told), cpp_model(told)):
        assert yaml.safe_load(text)["name"] == strange
