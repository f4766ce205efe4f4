"""What one cell of the matrix tries out of grps' maps, by clients that share no code with us.

To any target the numbers of a map go as tensors and come back as a map. To a grps server the map itself goes,
with every datatype and every map that there are, one key in all six of them and keys that look like names.
"""

from __future__ import annotations

from itertools import cycle
from typing import Any

from interlingua.schemas import Datatype
from interlingua.translator.fidelity.verdict import Outcome
from tests.e2e import matrix_values as values
from tests.e2e.grps_clients import CLIENTS
from tests.e2e.matrix_checks import Cell
from tests.e2e.matrix_models import MAPS, NARROW_KEYS
from tests.e2e.matrix_world import label
from tests.standins.grps_contract import GrpsMessage

_ROUNDS = 8
"""As many as the edges of a datatype are."""


def maps(cell: Cell) -> Outcome:
    if not cell.caller.capability.maps:
        return Outcome.ABSENT
    client = CLIENTS[cell.caller.transport](cell.world.address(cell.caller, label(cell.target, "map")))
    try:
        _numbers(client, label(cell.target, "map"))
        if cell.target.capability.maps:
            _everything(client, label(cell.target, "maps"))
    finally:
        client.close()
    return Outcome.CARRIED


def _numbers(client: Any, model: str) -> None:
    """Four inputs by their keys; the outputs are called otherwise."""
    message = GrpsMessage(model=model)
    message.gmap.s_i32["i"], message.gmap.s_i64["n"] = -(2**31), 2**53 + 1
    message.gmap.s_f["f"], message.gmap.s_d["d"] = 0.5, 5e-324
    told = client.predict(message)
    assert told.WhichOneof("data_oneof") == "gmap", told
    found = {name: dict(getattr(told.gmap, name)) for name in MAPS if getattr(told.gmap, name)}
    assert found == {
        "s_i32": {"i_out": -(2**31)},
        "s_i64": {"n_out": 2**53 + 1},
        "s_f": {"f_out": 0.5},
        "s_d": {"d_out": 5e-324},
    }


def _everything(client: Any, model: str) -> None:
    edges = {datatype: cycle(_edges(datatype)) for datatype in Datatype if datatype is not Datatype.UINT64}
    raw = cycle(values.BINARY)
    for _ in range(_ROUNDS):
        message = GrpsMessage(model=model)
        for datatype, (name, key) in NARROW_KEYS.items():
            getattr(message.gmap, name)[key] = next(edges[datatype])
        for name, datatype in MAPS.items():
            for key in ("key", ""):
                value = next(raw) if name == "s_b" else next(edges[datatype])
                getattr(message.gmap, name)[key] = value
        message.gmap.s_s["gmap.s_i32.key"] = "a key that looks like the name of an entry"
        told = client.predict(message)
        assert told.WhichOneof("data_oneof") == "gmap", told
        # the text of a message tells -0 from 0
        assert str(told.gmap) == str(message.gmap)


def _edges(datatype: Datatype) -> list[Any]:
    found = values.edges(datatype).numpy().tolist()
    if datatype is Datatype.BOOL:
        found = list(map(int, found))
    return [each.decode() if isinstance(each, bytes) else each for each in found]
