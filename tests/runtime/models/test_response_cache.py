"""What the cache keeps, for how long, and what makes two questions different."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from interlingua.runtime.models.response_cache import ResponseCache, key_of
from interlingua.schemas import Datatype, InferRequest, Tensor
from tests.strategies import tensors


def floats(name: str, *values: float) -> Tensor:
    return Tensor.from_numpy(name, np.array(values, np.float32))


def question(*inputs: Tensor, **more) -> InferRequest:
    return InferRequest("m", inputs, **more)


def test_what_was_put_is_found_as_it_was_and_is_the_caches_own() -> None:
    cache = ResponseCache(10_000)
    memory = bytearray(np.array([1, 2], np.float32).tobytes())
    cache.put(b"k", 1, (Tensor.checked("y", Datatype.FP32, [2], memory),), {"p": 1})
    memory[:] = bytes(8)
    found = cache.get(b"k", 0)
    assert found is not None
    assert found.outputs[0].numpy().tolist() == [1, 2]
    assert found.outputs[0].view.readonly
    assert found.parameters == {"p": 1}
    assert cache.get(b"other", 0) is None


def test_what_was_used_last_stays() -> None:
    cache = ResponseCache(3 * 600)
    for key in (b"a", b"b", b"c"):
        cache.put(key, 1, (floats("y", 1),), {})
    assert cache.get(b"a", 0)
    cache.put(b"d", 1, (floats("y", 1),), {})
    assert [key for key in (b"a", b"b", b"c", b"d") if cache.get(key, 0)] == [b"a", b"c", b"d"]
    assert cache.evictions == 1


def test_an_answer_larger_than_all_of_it_is_not_kept() -> None:
    cache = ResponseCache(1000)
    cache.put(b"small", 1, (floats("y", 1),), {})
    cache.put(b"large", 1, (floats("y", *range(1000)),), {})
    assert cache.get(b"large", 0) is None
    assert cache.get(b"small", 0)


def test_a_scope_is_forgotten_alone() -> None:
    cache = ResponseCache(10_000)
    cache.put(b"a", 1, (floats("y", 1),), {})
    cache.put(b"b", 2, (floats("y", 1),), {})
    cache.forget(1)
    assert (cache.get(b"a", 0), len(cache)) == (None, 1)
    cache.forget(2)
    assert cache.used_bytes == 0


@given(
    st.integers(600, 5000),
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 800), st.booleans()), max_size=60),
)
def test_it_never_holds_more_than_it_may(limit: int, steps: list[tuple[str, int, bool]]) -> None:
    cache = ResponseCache(limit)
    for name, size, write in steps:
        key = name.encode()
        if write:
            cache.put(key, size % 3, (Tensor.checked("y", Datatype.UINT8, [size], bytes(size)),), {})
        else:
            cache.get(key, 0)
        assert cache.used_bytes <= limit
        held = sum(tensor.nbytes for entry in cache._entries.values() for tensor in entry.outputs)
        assert held <= cache.used_bytes
    for scope in range(3):
        cache.forget(scope)
    assert (cache.used_bytes, len(cache)) == (0, 0)


X, Z = floats("x", 1, 2), floats("z", 3)


def test_whatever_may_change_the_answer_changes_the_key() -> None:
    base = question(X, Z)
    as_ints = Tensor("x", Datatype.INT32, X.shape, X.data)
    reshaped = Tensor("x", X.datatype, (1, 2), X.data)
    keys = [
        key_of(1, base, ("y",)),
        key_of(2, base, ("y",)),
        key_of(1, base, ()),
        key_of(1, base, ("y", "w")),
        key_of(1, question(X), ("y",)),
        key_of(1, question(floats("x", 1, 3), Z), ("y",)),
        key_of(1, question(X.renamed("z"), Z.renamed("x")), ("y",)),
        key_of(1, question(as_ints, Z), ("y",)),
        key_of(1, question(reshaped, Z), ("y",)),
        key_of(1, replace(base, parameters={"top": 1}), ("y",)),
        key_of(1, replace(base, parameters={"top": "1"}), ("y",)),
        key_of(1, replace(base, parameters={"top": True}), ("y",)),
    ]
    assert len(set(keys)) == len(keys)


@given(st.lists(tensors(list(Datatype)), max_size=3, unique_by=lambda tensor: tensor.name))
def test_order_id_and_priority_do_not_change_it(inputs: list[Tensor]) -> None:
    one = key_of(1, question(*inputs, id="a", priority=3), ("y",))
    assert key_of(1, question(*reversed(inputs), id="b"), ("y",)) == one
