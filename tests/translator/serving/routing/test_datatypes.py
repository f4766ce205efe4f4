"""Widening loses no value; strict routes name what would change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from interlingua.protocols.registry import DIALECTS
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    RequestedOutput,
    Signature,
    Tensor,
    TensorSpec,
)
from interlingua.translator.serving.routing.datatypes import HERE, WIDER, Side, refuse_changes, widened
from tests.strategies import tensors

FLOATS = (Datatype.FP16, Datatype.BF16, Datatype.FP32, Datatype.FP64)
NUMBERS = [datatype for datatype in Datatype if datatype is not Datatype.BYTES]


def signature(inputs: dict[str, Datatype], outputs: dict[str, Datatype] | None = None) -> Signature:
    def specs(of: dict[str, Datatype]) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(name, datatype, (-1,)) for name, datatype in of.items())

    return Signature(specs(inputs), specs(outputs or {}))


@given(st.data())
def test_no_value_is_lost(data: st.DataObject) -> None:
    tensor = data.draw(tensors())
    datatype = data.draw(st.sampled_from(Datatype))
    assume((tensor.datatype, datatype) != (Datatype.UINT8, Datatype.BOOL))  # told apart by its values, below
    (wide,) = widened((tensor,), signature({tensor.name: datatype}))
    if datatype not in WIDER[tensor.datatype]:
        assert wide is tensor
        return
    assert (wide.name, wide.datatype, wide.shape) == (tensor.name, datatype, tensor.shape)
    with np.errstate(invalid="ignore"):
        narrow, given = wide.numpy().astype(tensor.datatype.dtype), tensor.numpy()
        if tensor.datatype in FLOATS:
            # NumPy knows a NaN of its own types alone
            narrow, given = narrow.astype(np.float64), given.astype(np.float64)
    np.testing.assert_array_equal(narrow, given)


@pytest.mark.parametrize("datatype", NUMBERS)
@pytest.mark.parametrize("other", NUMBERS)
def test_what_is_wider_and_what_is_not(datatype: Datatype, other: Datatype) -> None:
    """The ends of the range decide, and a one more for floats: what comes back the same is held."""
    if datatype is other:
        assert other not in WIDER[datatype]
        return
    if datatype in FLOATS:
        tiny = {Datatype.FP16: 2.0**-24, Datatype.BF16: 2.0**-133, Datatype.FP32: 2.0**-149}
        held = {Datatype.FP16: 65504.0, Datatype.BF16: 3.39e38, Datatype.FP32: 3.4028235e38}
        ends = [tiny.get(datatype, 5e-324), held.get(datatype, 1.797e308), 1.0 + 2.0**-7]
        if datatype is Datatype.BF16:
            ends[1] = float(np.array(3.39e38, datatype.dtype))
    elif datatype is Datatype.BOOL:
        ends = [0, 1]
    else:
        limits = np.iinfo(datatype.dtype)
        ends = [int(limits.min), int(limits.max), int(limits.max) - 1]
    values = np.array(ends, datatype.dtype)
    with np.errstate(all="ignore"):
        back = values.astype(other.dtype).astype(datatype.dtype)
    same = bool((back == values).all()) and bool(
        (values.astype(other.dtype).astype(np.longdouble) == values.astype(np.longdouble)).all()
    )
    assert (other in WIDER[datatype]) is same


@pytest.mark.parametrize("datatype", [Datatype.FP16, Datatype.BF16, Datatype.FP32])
def test_a_nan_that_signals_stays_a_nan(datatype: Datatype) -> None:
    bits = {Datatype.FP16: 0x7D00, Datatype.BF16: 0x7FA0, Datatype.FP32: 0x7FA00000}[datatype]
    data = memoryview(bits.to_bytes(datatype.itemsize, "little"))
    (wide,) = widened((Tensor("x", datatype, (1,), data),), signature({"x": Datatype.FP64}))
    assert np.isnan(wide.numpy()).all()


@pytest.mark.parametrize(("values", "said"), [([0, 1, 1], ""), ([], ""), ([0, 2], "'x' .* UINT8 .* value 2")])
def test_a_bool_that_came_as_uint8(values: list[int], said: str) -> None:
    given = Tensor.from_numpy("x", np.array(values, np.uint8))
    model = signature({"x": Datatype.BOOL})
    if said:
        with pytest.raises(InferenceError, match=said) as caught:
            widened((given,), model)
        assert caught.value.code is ErrorCode.UNREPRESENTABLE
        return
    (found,) = widened((given,), model)
    assert found.datatype is Datatype.BOOL
    assert found.numpy().tolist() == [bool(value) for value in values]


def test_what_the_model_does_not_know_stays() -> None:
    given = Tensor.from_numpy("y", np.zeros(1, np.int32))
    assert widened((given,), signature({"x": Datatype.INT64})) == (given,)


def side(dialect: str) -> Side:
    return Side.of(next(iter(DIALECTS[dialect].bindings.values())))


MODEL = signature({"mask": Datatype.BOOL}, {"big": Datatype.UINT32, "plain": Datatype.FP32})
GIVEN = Tensor.from_numpy("mask", np.zeros(1, np.bool_))


@pytest.mark.parametrize(
    ("caller", "callee", "outputs", "said"),
    [
        ("oip", "", None, ""),
        ("oip", "trtis", None, ""),
        ("oip", "graphpipe", None, "input 'mask' of datatype BOOL .*'oip' and dialect 'graphpipe' as UINT8"),
        ("graphpipe", "", None, "input 'mask' of datatype BOOL .*'graphpipe' and this server as UINT8"),
        ("grps", "oip", None, "input 'mask' of datatype BOOL .*'grps' and dialect 'oip' as UINT8, which dialect 'grps'"),
    ],
)  # fmt: skip
def test_a_strict_route(caller: str, callee: str, outputs: None, said: str) -> None:
    request = InferRequest("m", (GIVEN,), outputs)
    there = side(callee) if callee else HERE
    if not said:
        refuse_changes(request, MODEL, side(caller), there)
        return
    with pytest.raises(InferenceError, match=said) as caught:
        refuse_changes(request, MODEL, side(caller), there)
    assert caught.value.code is ErrorCode.UNREPRESENTABLE


def test_unrequested_outputs_do_not_count() -> None:
    model = signature({}, {"big": Datatype.UINT32, "plain": Datatype.FP32})
    refuse_changes(InferRequest("m", (), (RequestedOutput("plain"),)), model, side("oip"), side("grps"))
    with pytest.raises(InferenceError, match="output 'big' of datatype UINT32 .* as INT64"):
        refuse_changes(InferRequest("m", ()), model, side("oip"), side("grps"))
