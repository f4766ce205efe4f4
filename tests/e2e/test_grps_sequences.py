"""grps clients before the daemon, as grps' own examples call a server, over every transport; and digits,
classified to the bit as the model itself does it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import requests
import yaml

from interlingua.runtime.repository.files import find_models, load_models
from interlingua.schemas import InferRequest, Tensor
from tests.e2e.daemon import ROOT, Daemon
from tests.e2e.grps_clients import TRANSPORTS, clients_of, daemon, examples
from tests.standins.grps_client import GrpsError
from tests.standins.grps_contract import GrpsMessage, arrays_of, gtensors

MAPS = {
    "s_s": "BYTES",
    "s_b": "BYTES",
    "s_i32": "INT32",
    "s_i64": "INT64",
    "s_f": "FP32",
    "s_d": "FP64",
}


@dataclass
class World:
    running: Daemon
    clients: dict[str, Any]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The original's examples talk to one model that takes whatever they send; here each kind of payload has
    a model that takes it."""
    text, one = {"datatype": "BYTES", "shape": [1]}, {"shape": [-1, -1]}
    models = {
        "your_model": {
            "backend": "identity",
            "signature": {"inputs": [{"name": "text", **text}], "outputs": [{"name": "said", **text}]},
        },
        "arrays": {
            "backend": "identity",
            "signature": {
                "inputs": [{"name": "x", "datatype": "FP32", **one}],
                "outputs": [{"name": "y", "datatype": "FP32", **one}],
            },
        },
        "map": {
            "backend": "identity",
            "signature": {
                side: [
                    {"name": f"gmap.{field}.key", "datatype": datatype, "shape": []}
                    for field, datatype in MAPS.items()
                ]
                for side in ("inputs", "outputs")
            },
        },
        "keys": {
            "backend": "identity",
            "signature": {
                side: [
                    {"name": f"{side[0]}_{key}", "datatype": datatype, "shape": []}
                    for key, datatype in (("text", "BYTES"), ("count", "INT32"), ("share", "FP32"))
                ]
                for side in ("inputs", "outputs")
            },
        },
    }
    config = {
        "server": {"start_offline": True, "offline_scope": "all"},
        "models": models,
        "model_repository": examples("digits", "words", "identity_fp32"),
        "default_model": "your_model",
    }
    with daemon(tmp_path_factory.mktemp("grps"), config) as running, clients_of(running) as clients:
        yield World(running, clients)


def test_the_sequence_of_the_http_client(world: World) -> None:
    """live, online, ready, text, a stream, tensors, a map with a member that is no field, an ndarray, bytes,
    metadata, offline: what the original's client does, reading the JSON alone."""
    client = world.clients["http"]
    client.get("live")
    with pytest.raises(GrpsError, match="Service Unavailable") as caught:
        client.get("ready")
    assert caught.value.code == 503
    client.get("online")
    client.get("ready")
    told = client.predict_json({"str_data": "hello grps"})
    assert told == {"status": {"code": 200, "msg": "OK", "status": "SUCCESS"}, "str_data": "hello grps"}
    pieces = list(client.stream(GrpsMessage(model="words", str_data="stream me")))
    assert [piece.str_data for piece in pieces] == ["stream", "me"]
    tensor = {"name": "x", "dtype": "DT_FLOAT32", "shape": [2, 2], "flat_float32": [1, 2, 3, 4]}
    told = client.predict_json({"model": "arrays", "gtensors": {"tensors": [tensor]}})
    assert told["gtensors"]["tensors"] == [{**tensor, "name": "y", "flat_float32": [1.0, 2.0, 3.0, 4.0]}]
    values = {"s_s": "v", "s_b": "AP8=", "s_i32": 3, "s_i64": "9007199254740993", "s_f": 0.5, "s_d": 0.1}
    gmap = {field: {"key": value} for field, value in values.items()}
    told = client.predict_json({"model": "map", "gmap": {**gmap, "s_t": {"key": "?"}}})
    assert told["gmap"] == gmap
    keys = {"s_s": {"i_text": "v"}, "s_i32": {"i_count": 3}, "s_f": {"i_share": 0.5}}
    told = client.predict_json({"model": "keys", "gmap": keys})
    assert told["gmap"] == {"s_s": {"o_text": "v"}, "s_i32": {"o_count": 3}, "s_f": {"o_share": 0.5}}
    told = client.predict_json({"ndarray": [[1, 2, 3], [4, 5, 6]]}, "?return-ndarray=true&model=arrays")
    assert told["ndarray"] == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    assert client.predict(GrpsMessage(bin_data=b"\xff\0grps")).bin_data == b"\xff\0grps"
    server = yaml.safe_load(client.get("server").str_data)
    assert [each["name"] for each in server["models"]] == sorted(each["name"] for each in server["models"])
    assert server["dag"]["nodes"][0]["model"].startswith("your_model-")
    assert server["interface"]["framework"] == "http+grpc+brpc"
    assert yaml.safe_load(client.model_metadata("your_model").str_data)["name"] == "your_model"
    client.get("offline")
    with pytest.raises(GrpsError):
        client.get("ready")
    assert {reply.status_code for reply in client.replies} == {200, 503}


@pytest.mark.parametrize("transport", ["grpc", "brpc"])
def test_the_sequence_of_the_rpc_clients(world: World, transport: str) -> None:
    client = world.clients[transport]
    client.get("live")
    client.get("online")
    client.get("ready")
    assert client.predict(GrpsMessage(str_data="hello grps")).str_data == "hello grps"
    assert client.predict(GrpsMessage(bin_data=b"\xff\0")).bin_data == b"\xff\0"
    arrays = arrays_of(client.predict(gtensors("arrays", x=np.array([[1, 2]], np.float32))))
    assert arrays["y"].tolist() == [[1, 2]]
    message = GrpsMessage(model="map")
    values = {"s_s": "v", "s_b": b"\0\xff", "s_i32": 3, "s_i64": 2**53 + 1, "s_f": 0.5, "s_d": 0.1}
    for field, value in values.items():
        getattr(message.gmap, field)["key"] = value
    assert client.predict(message).gmap == message.gmap
    if transport == "grpc":
        pieces = list(client.stream(GrpsMessage(model="words", str_data="stream me")))
        assert [piece.str_data for piece in pieces] == ["stream", "me"]
    assert "models" in yaml.safe_load(client.get("server").str_data)
    assert yaml.safe_load(client.model_metadata("digits").str_data)["version"] in (1, "1")
    with pytest.raises(GrpsError) as caught:
        client.model_metadata("nobody")
    assert caught.value.code == 404
    client.get("offline")
    with pytest.raises(GrpsError) as caught:
        client.get("ready")
    assert caught.value.code == 503


def test_one_readiness_for_every_interface_and_dialect(world: World) -> None:
    url = f"http://{world.running.addresses[0]}/v2/health/ready"
    for switch in TRANSPORTS:
        world.clients[switch].get("online")
        for asked in TRANSPORTS:
            world.clients[asked].get("ready")
        assert requests.get(url, timeout=10).status_code == 200
        world.clients[switch].get("offline")
        for asked in TRANSPORTS:
            world.clients[asked].get("live")
            with pytest.raises(GrpsError):
                world.clients[asked].get("ready")
        assert requests.get(url, timeout=10).status_code != 200
        assert world.clients[switch].predict(GrpsMessage(str_data="still here")).str_data == "still here"


@pytest.fixture(scope="module")
def digits() -> tuple[Any, dict[str, Any]]:
    """Images that the model never saw, and what it makes of them in this process."""

    async def classify() -> dict[str, Any]:
        model = load_models(find_models(ROOT / "examples" / "models", ["digits"])).models["digits"]
        answer = await model.infer(InferRequest("digits", (Tensor.from_numpy("image", images),)))
        await model.close()
        return {tensor.name: tensor.numpy() for tensor in answer.outputs}

    with np.load(ROOT / "examples" / "digits" / "holdout.npz") as holdout:
        images = holdout["images"][:64]
    return images, asyncio.run(classify())


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("model", ["digits", "digits-1"])
def test_digits(world: World, digits: tuple[Any, dict[str, Any]], transport: str, model: str) -> None:
    images, wanted = digits
    arrays = arrays_of(world.clients[transport].predict(gtensors(model, image=images)))
    assert arrays["label"].tobytes() == wanted["label"].tobytes()
    assert arrays["probabilities"].tobytes() == wanted["probabilities"].tobytes()


def test_digits_as_an_ndarray(world: World, digits: tuple[Any, dict[str, Any]]) -> None:
    images, wanted = digits
    told = world.clients["http"].predict_json({"model": "digits", "ndarray": images.tolist()})
    found = {each["name"]: each for each in told["gtensors"]["tensors"]}
    assert [int(value) for value in found["label"]["flat_int64"]] == wanted["label"].ravel().tolist()
    got = np.array(found["probabilities"]["flat_float32"], np.float32)
    assert got.tobytes() == wanted["probabilities"].tobytes()
