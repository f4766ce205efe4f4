"""What version 1's image clients read of a model behind an upstream: the format of its input, and labels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interlingua.schemas import Datatype
from tests.e2e.daemon import Daemon
from tests.e2e.trtis_clients import clients_of
from tests.runtime.onnx_models import node, value, write
from tests.standins.trtis_client import Top

LABELS = ["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen", "ibis", "jay", "kiwi", "lynx"]
NONE, NHWC, NCHW = range(3)
IMAGE = np.arange(12, dtype=np.float32).reshape(1, 3, 2, 2)
DECLARED = {
    "inputs": [{"name": "DATA", "datatype": "FP32", "shape": [-1, 3, 2, 2]}],
    "outputs": [{"name": "PROB", "datatype": "FP32", "shape": [-1, 12]}],
    "max_batch_size": 4,
}
UPSTREAMS = [f"{dialect}_{transport}" for dialect in ("oip", "trtis") for transport in ("http", "grpc")]


def write_models(folder: Path) -> Path:
    """One model that says what its input is, and one that does not."""
    for name, form in (("image", "format: FORMAT_NCHW"), ("plain", "")):
        (folder / name).mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(
            f'platform: "onnxruntime_onnx" max_batch_size: 4 '
            f'input {{ name: "DATA" data_type: TYPE_FP32 {form} dims: [ 3, 2, 2 ] }} '
            f'output {{ name: "PROB" data_type: TYPE_FP32 dims: 12 }}'
        )
        write(
            folder / name / "1" / "model.onnx",
            [node("Flatten", ["DATA"], ["PROB"])],
            [value("DATA", Datatype.FP32, ["n", 3, 2, 2])],
            [value("PROB", Datatype.FP32, ["n", 12])],
        )
    return folder


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("images")
    listeners = [{"listen": "127.0.0.1:0", "transport": transport} for transport in ("http", "grpc")]
    with ExitStack() as stack:
        there = Daemon.start(
            folder,
            {"listeners": listeners, "model_repository": [{"path": str(write_models(folder / "models"))}]},
        )
        stack.callback(there.kill)
        labels, form = {"labels": {"PROB": LABELS}}, {"format": {"DATA": "FORMAT_NHWC"}}
        models: dict[str, Any] = {}
        for upstream in UPSTREAMS:
            models |= {
                f"image.{upstream}": {"remote_model": "image", **labels},
                f"plain.{upstream}": {"remote_model": "plain", **labels, **form},
                f"declared.{upstream}": {"remote_model": "plain", "signature": DECLARED, **labels, **form},
                f"renamed.{upstream}": {
                    "remote_model": "image",
                    "inputs": {"IN": "DATA"},
                    "outputs": {"OUT": "PROB"},
                    "labels": {"OUT": LABELS},
                    "format": {"IN": "FORMAT_NHWC"},
                },
            }
        bridge = Daemon.start(
            tmp_path_factory.mktemp("bridge"),
            {
                "listeners": listeners,
                "models": {name: {"upstream": name.split(".")[1], **model} for name, model in models.items()},
                "upstreams": {
                    name: {
                        "dialect": name.split("_")[0],
                        "transport": name.split("_")[1],
                        "urls": [there.addresses[name.endswith("grpc")]],
                    }
                    for name in UPSTREAMS
                },
            },
        )
        stack.callback(bridge.kill)
        yield stack.enter_context(clients_of(bridge))
        assert bridge.stop() == there.stop() == 0


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("transport", ["http", "grpc"])
@pytest.mark.parametrize(
    ("model", "form", "given", "asked"),
    [
        ("image", NCHW, "DATA", "PROB"),
        ("plain", NHWC, "DATA", "PROB"),
        ("declared", NHWC, "DATA", "PROB"),
        ("renamed", NHWC, "IN", "OUT"),
    ],
)
def test_a_model_behind_an_upstream_has_both_format_and_labels(
    clients: dict[str, Any], transport: str, upstream: str, model: str, form: int, given: str, asked: str
) -> None:
    """image_client reads the format of the first input, and asks for classes with their labels."""
    client, name = clients[transport], f"{model}.{upstream}"
    config = client.status(name).model_status[name].config
    assert [(tensor.name, tensor.format) for tensor in config.input] == [(given, form)]
    assert (config.max_batch_size, list(config.output[0].dims)) == (4, [12])
    answer = client.infer(name, {given: IMAGE}, {asked: Top(2)})
    assert answer.outputs[asked] == [[(11, 11.0, "lynx"), (10, 10.0, "kiwi")]]
