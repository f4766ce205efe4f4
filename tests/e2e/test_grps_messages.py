"""Messages from grps clients to grps servers, through the daemon: their payloads stay what they are.

The servers are stand-ins of both originals, which give a model the message and the client what the model makes
of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http

from tests.e2e.daemon import Daemon
from tests.e2e.grps_clients import TRANSPORTS, clients_of, daemon
from tests.e2e.grps_standins import STANDINS, served_standins
from tests.standins.grps_client import GrpsError
from tests.standins.grps_contract import GrpsMessage, gtensors
from tests.standins.grps_server import GrpsServer

A = np.arange(32, dtype=np.int32).reshape(2, 16)
B = np.full((2, 16), 3, np.int32)

MAPS = {
    "s_s": "BYTES",
    "s_b": "BYTES",
    "s_i32": "INT32",
    "s_i64": "INT64",
    "s_f": "FP32",
    "s_d": "FP64",
}
_ENTRIES = [
    {"name": "key", "datatype": "INT32", "shape": []},
    {"name": "gmap.s_i32.gmap.s_i64.key", "datatype": "INT32", "shape": []},
    *(
        {"name": f"gmap.{field}.{key}", "datatype": datatype, "shape": []}
        for field, datatype in MAPS.items()
        for key in ("key", "")
        if (field, key) != ("s_i32", "key")
    ),
]
KEYED: dict[str, Any] = {"inputs": _ENTRIES, "outputs": _ENTRIES}
"""The signature of a model that takes and gives the entries of ``one_key_in_every_map``, one of them by its
key alone."""


@dataclass
class World:
    """The daemon before the stand-ins, with a grps client per transport."""

    bridge: Daemon
    clients: dict[str, Any]
    standins: dict[str, GrpsServer]
    upstreams: dict[str, Any]

    def seen(self, wire: str) -> list[Any]:
        """The messages that the models of the server there were given."""
        return self.standins[wire.split("_")[0]].seen


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with served_standins() as (standins, urls):
        upstreams = {
            wire: {"dialect": "grps", "transport": wire.split("_")[-1], "urls": [url]}
            for wire, url in urls.items()
        }
        models: dict[str, Any] = {}
        for wire in STANDINS:
            models[f"plain.{wire}"] = {"upstream": wire, "remote_model": ""}
            models[f"named.{wire}"] = {"upstream": wire, "remote_model": "your_model-1.0.0"}
            models[f"nowhere.{wire}"] = {"upstream": wire, "remote_model": "nowhere-1", "required": False}
            models[f"keyed.{wire}"] = {"upstream": wire, "remote_model": "", "signature": KEYED}
        config = {"models": models, "upstreams": upstreams}
        with (
            daemon(tmp_path_factory.mktemp("bridge"), config) as bridge,
            clients_of(bridge) as clients,
        ):
            yield World(bridge, clients, standins, upstreams)


def one_key_in_every_map(model: str) -> Any:
    """What the example clients of the original send, the edges of each map, and keys that try to confuse."""
    values = {
        "s_s": "v",
        "s_b": b"\0\xff",
        "s_i32": -(2**31),
        "s_i64": 2**63 - 1,
        "s_f": -0.0,
        "s_d": 5e-324,
    }
    message = GrpsMessage(model=model)
    for name, value in values.items():
        entries = getattr(message.gmap, name)
        entries["key"], entries[""] = value, type(value)()
    message.gmap.s_i32["gmap.s_i64.key"] = 1
    return message


@pytest.mark.parametrize("wire", STANDINS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_gmap_goes_as_a_gmap_and_comes_back_as_one(world: World, transport: str, wire: str) -> None:
    """Both original servers echo it so, though one key stands in several maps and bytes are no text."""
    for model in (f"plain.{wire}", f"keyed.{wire}"):
        message = one_key_in_every_map(model)
        told = world.clients[transport].predict(message)
        assert told.WhichOneof("data_oneof") == "gmap" and told.gmap == message.gmap
        assert world.seen(wire)[-1].gmap == message.gmap


@pytest.mark.parametrize("wire", STANDINS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_tensors_without_names_stay_without(world: World, transport: str, wire: str) -> None:
    message = gtensors(f"plain.{wire}", a=A, b=B)
    for tensor in message.gtensors.tensors:
        tensor.ClearField("name")
    told = world.clients[transport].predict(message)
    assert told.gtensors == message.gtensors
    assert world.seen(wire)[-1].gtensors == message.gtensors


@pytest.mark.parametrize("wire", STANDINS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_an_empty_payload_stays_set(world: World, transport: str, wire: str) -> None:
    """Over HTTP the Python server takes no empty payload, and nobody an ndarray without contents."""
    for payload in ("gtensors", "gmap", "ndarray"):
        if wire == "py_grps_http" or (payload == "ndarray" and "http" in (transport, wire.split("_")[-1])):
            continue
        message = GrpsMessage(model=f"plain.{wire}")
        getattr(message, payload).SetInParent()
        assert world.clients[transport].predict(message).WhichOneof("data_oneof") == payload
        assert world.seen(wire)[-1].WhichOneof("data_oneof") == payload


@pytest.mark.parametrize("wire", STANDINS)
def test_clients_of_other_dialects_send_a_gmap_by_the_names_of_its_entries(world: World, wire: str) -> None:
    arrays = {
        "gmap.s_b.key": np.array(b"\0\xff", object),
        "gmap.s_i64.key": np.array(2**53 + 1),
        "gmap.s_d.key": np.array(0.1),
    }
    datatypes = {"gmap.s_b.key": "BYTES", "gmap.s_i64.key": "INT64", "gmap.s_d.key": "FP64"}
    for module, address in ((triton_http, 0), (triton_grpc, 1)):
        with module.InferenceServerClient(world.bridge.addresses[address]) as client:
            given = [module.InferInput(name, [], datatype) for name, datatype in datatypes.items()]
            for tensor in given:
                tensor.set_data_from_numpy(arrays[tensor.name()])
            answer = client.infer(f"plain.{wire}", given)
            assert {name: answer.as_numpy(name).item() for name in arrays} == {
                name: array.item() for name, array in arrays.items()
            }
            assert world.seen(wire)[-1].gmap.s_b["key"] == b"\0\xff"


@pytest.mark.parametrize("wire", STANDINS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_messages_pass_whole_where_no_signature_is_known(world: World, transport: str, wire: str) -> None:
    """The original servers give a model whatever stands in a message, and its answer to the client."""
    message = GrpsMessage(model=f"named.{wire}")
    without_shape, over, mismatched, named_alike = (message.gtensors.tensors.add() for _ in range(4))
    without_shape.name, without_shape.dtype = "x", 7
    without_shape.flat_float32.extend([1.5, -0.0])
    over.dtype = 1
    over.shape.extend([7])
    over.flat_uint8.extend([256, 1])
    mismatched.name, mismatched.dtype = "y", 4
    named_alike.name, named_alike.dtype = "y", 6
    named_alike.flat_float16.append(0.1)
    told = world.clients[transport].predict(message)
    seen = world.seen(wire)[-1]
    assert seen.gtensors == message.gtensors and seen.model == "your_model-1.0.0"
    assert told.gtensors == message.gtensors
    # the model that the server repeats is the one that its caller knows
    assert told.model == message.model


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_model_of_the_server_that_is_not_there(world: World, transport: str) -> None:
    for wire in STANDINS:
        with pytest.raises(GrpsError) as caught:
            world.clients[transport].predict(gtensors(f"nowhere.{wire}", a=A))
        assert caught.value.code == 500 and f"nowhere.{wire}" in str(caught.value)


@pytest.mark.parametrize("wire", STANDINS)
def test_messages_keep_their_form_where_a_tap_reads_them(world: World, tmp_path: Path, wire: str) -> None:
    """Nobody can tell that a message is read, unless its tensors contradict themselves."""
    config = {
        "models": {"plain": {"upstream": wire, "remote_model": ""}},
        "upstreams": {wire: world.upstreams[wire]},
        "tap": {"path": str(tmp_path / "tap")},
    }
    unnamed = gtensors("plain", a=A, b=B)
    for tensor in unnamed.gtensors.tensors:
        tensor.ClearField("name")
    without_shape = gtensors("plain", a=A)
    without_shape.gtensors.tensors[0].ClearField("shape")
    with daemon(tmp_path, config) as tapped, clients_of(tapped) as clients:
        for client in clients.values():
            for message in (one_key_in_every_map("plain"), unnamed, GrpsMessage(model="plain", str_data="é")):
                payload = message.WhichOneof("data_oneof")
                told = client.predict(message)
                assert getattr(told, payload) == getattr(message, payload)
                seen = world.seen(wire)[-1]
                assert getattr(seen, payload) == getattr(message, payload)
            with pytest.raises(GrpsError, match="tensor: a size not match"):
                client.predict(without_shape)


@pytest.mark.parametrize("wire", [wire for wire in STANDINS if not wire.endswith("brpc")])
@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_pieces_of_a_stream_keep_their_payloads(world: World, transport: str, wire: str) -> None:
    message = one_key_in_every_map(f"plain.{wire}")
    pieces = list(world.clients[transport].stream(message))
    assert [piece.WhichOneof("data_oneof") for piece in pieces] == ["gmap", "gtensors", "str_data", "gmap"]
    assert pieces[0].gmap == message.gmap and pieces[-1].gmap.s_b["key"] == b"\xff"
