"""The generators honour what a capability leaves out, whichever dialect it belongs to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlingua.protocols.dialect import Capability
from interlingua.schemas import Datatype, InferRequest, InferResponse, Tensor
from tests.strategies import carried, carried_batches, common, requests, responses

few = settings(max_examples=25)  # the generators are simple: a flag that is ignored shows at once
EVERYTHING = Capability(exact=frozenset(Datatype))


def drawn(data: st.DataObject, capability: Capability) -> tuple[InferRequest, InferResponse]:
    outputs = data.draw(carried(capability))
    return data.draw(requests(capability, carried(capability), outputs)), data.draw(
        responses(capability, outputs)
    )


def tensors_of(data: st.DataObject, capability: Capability) -> list[Tensor]:
    request, response = drawn(data, capability)
    return [*request.inputs, *response.outputs, *sum(data.draw(carried_batches(capability)), ())]


@few
@given(data=st.data())
def test_datatypes(data: st.DataObject) -> None:
    some = Capability(exact=frozenset({Datatype.INT8}), widened={Datatype.BOOL: Datatype.UINT8})
    assert {tensor.datatype for tensor in tensors_of(data, some)} <= {Datatype.INT8, Datatype.BOOL}


@few
@given(data=st.data())
def test_no_scalars(data: st.DataObject) -> None:
    assert all(tensor.shape for tensor in tensors_of(data, replace(EVERYTHING, scalars=False)))


@few
@given(data=st.data())
def test_text_alone(data: st.DataObject) -> None:
    strings = Capability(exact=frozenset({Datatype.BYTES}), text_only=True)
    for tensor in tensors_of(data, strings):
        for element in tensor.elements():
            element.decode()


@few
@given(data=st.data())
def test_one_nan(data: st.DataObject) -> None:
    floats = Capability(exact=frozenset({Datatype.FP16}), nan_payloads=False)
    for tensor in tensors_of(data, floats):
        bits = tensor.numpy().view(np.uint16)
        assert set(bits[np.isnan(tensor.numpy())].tolist()) <= {0x7E00}


@pytest.mark.parametrize(
    ("field", "lacking"),
    [
        ("versions", {"versions": ""}),
        ("versions", {"joined_versions": True}),
        ("ids", {"ids": ""}),
        ("parameters", {"parameters": frozenset()}),
        ("parameters", {"parameter_names": frozenset()}),
        ("sequences", {"sequences": frozenset()}),
        ("priorities", {"priorities": False}),
        ("requested_outputs", {"requested_outputs": False}),
        ("answer_versions", {"answer_versions": False}),
        ("answer_parameters", {"answer_parameters": False}),
    ],
)
@few
@given(data=st.data())
def test_fields_without_a_place_stay_empty(
    field: str, lacking: dict[str, object], data: st.DataObject
) -> None:
    request, response = drawn(data, replace(EVERYTHING, **lacking))  # type: ignore[arg-type]
    values = {
        "versions": request.version,
        "ids": request.id,
        "parameters": dict(request.parameters),
        "sequences": request.sequence,
        "priorities": request.priority or request.timeout_us,
        "requested_outputs": request.outputs,
        "answer_versions": response.version,
        "answer_parameters": dict(response.parameters),
    }
    assert not values[field]


@few
@given(data=st.data())
def test_numbers_for_text(data: st.DataObject) -> None:
    request, _ = drawn(data, replace(EVERYTHING, versions="number", ids="number", sequences=frozenset({int})))
    assert (request.version + request.id or "0").isdigit()
    assert request.sequence is None or isinstance(request.sequence.id, int)


def test_common_takes_what_all_of_them_carry() -> None:
    one = Capability(
        exact=frozenset({Datatype.INT8, Datatype.FP32}),
        versions="number",
        parameters=frozenset({str}),
        parameter_names=frozenset({"config"}),
    )
    other = Capability(
        exact=frozenset({Datatype.INT8}),
        widened={Datatype.BOOL: Datatype.UINT8},
        scalars=False,
        text_only=True,
        ids="",
        sequences=frozenset({int}),
    )
    both = common(one, other)
    assert (both.exact, both.versions, both.ids) == ({Datatype.INT8}, "number", "")
    assert (both.parameters, both.parameter_names) == ({str}, {"config"})
    assert both.sequences == {int} and both.text_only and not both.scalars
