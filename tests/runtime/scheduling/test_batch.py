"""Requests as one batch, and its answer as theirs."""

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.runtime.scheduling.batch import gathered, in_model_order, key_of, scattered
from interlingua.runtime.scheduling.queue import Entry
from interlingua.schemas import Datatype, ErrorCode, InferenceError, InferRequest, Tensor
from interlingua.schemas.tensor import pack_bytes


def entry(*inputs: Tensor) -> Entry:
    answer: asyncio.Future[object] = asyncio.Future(loop=asyncio.new_event_loop())
    answer.get_loop().close()
    return Entry(InferRequest("m", inputs), inputs, ("y",), inputs[0].shape[0], "k", 0, answer)


def bytes_tensor(rows: list[list[bytes]], width: int) -> Tensor:
    packed = pack_bytes(element for row in rows for element in row)
    return Tensor("t", Datatype.BYTES, (len(rows), width), memoryview(packed))


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=6),
    st.sampled_from([Datatype.FP32, Datatype.INT8, Datatype.FP16, Datatype.BOOL, Datatype.BF16]),
    st.sampled_from([(), (3,), (2, 0), (2, 2)]),
)
def test_everybody_gets_the_own_rows_back(sizes, datatype, row) -> None:
    entries = []
    for number, size in enumerate(sizes):
        array = np.full((size, *row), number % 2 if datatype is Datatype.BOOL else number)
        entries.append(entry(Tensor.from_numpy("x", array.astype(datatype.dtype), datatype)))
    (batch,) = gathered(entries)
    assert Tensor.checked("x", datatype, (sum(sizes), *row), batch.data).shape == batch.shape
    for (part,), each in zip(scattered([batch.renamed("y")], entries), entries, strict=True):
        (sent,) = each.inputs
        assert (part.name, part.shape, bytes(part.view)) == ("y", sent.shape, bytes(sent.view))
        assert len(entries) == 1 or not part.nbytes or np.shares_memory(part.numpy(), batch.numpy())


@given(st.data(), st.integers(0, 3))
def test_so_do_elements_of_any_length(data, width) -> None:
    row = st.lists(st.binary(max_size=5), min_size=width, max_size=width)
    asked = data.draw(st.lists(st.lists(row, min_size=1, max_size=3), min_size=1, max_size=5))
    entries = [entry(bytes_tensor(rows, width)) for rows in asked]
    (batch,) = gathered(entries)
    for (part,), rows in zip(scattered([batch], entries), asked, strict=True):
        assert part.shape == (len(rows), width)
        assert part.elements() == [element for each in rows for element in each]


def tensor(name: str, *shape: int, dtype: type = np.float32) -> Tensor:
    return Tensor.from_numpy(name, np.zeros(shape, dtype))


def test_who_meets() -> None:
    places = {"a": 0, "b": 1}
    both = (tensor("a", 1, 2), tensor("b", 1))
    assert in_model_order((both[1], both[0]), places) == both
    key = key_of(both, ("y",))
    assert key == key_of((tensor("a", 5, 2), tensor("b", 5)), ("y",))
    for others, outputs in (
        (both, ("z",)),
        (both[:1], ("y",)),
        ((tensor("a", 1, 3), both[1]), ("y",)),
        ((tensor("a", 1, 2, dtype=np.int32), both[1]), ("y",)),
        ((tensor("c", 1, 2), both[1]), ("y",)),
    ):
        assert key != key_of(others, outputs)


@pytest.mark.parametrize(("shape", "got"), [((2, 2), "2"), ((4,), "4"), ((), "none")])
def test_another_number_of_rows_is_an_error(shape, got) -> None:
    entries = [entry(tensor("x", rows, 2)) for rows in (1, 2)]
    good = tensor("good", 3)
    said = f"output 'y' of a batch has the wrong number of rows: expected 3, got {got}"
    with pytest.raises(InferenceError, match=said) as caught:
        scattered([good, tensor("y", *shape)], entries)
    assert caught.value.code is ErrorCode.MODEL_FAILED
