"""Messages that repeat a recent one are split as a walk over their fields would split them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.protobuf_wire import join, split
from interlingua.protocols.repeated_messages import RepeatedMessages

FIELD = 7

_fields = st.lists(st.tuples(st.sampled_from((1, 5)), st.binary(max_size=20)), max_size=4).map(
    lambda fields: b"".join(join(b"", number, [content]) for number, content in fields)
)


def repeated(message: bytes) -> RepeatedMessages[bytes]:
    known: RepeatedMessages[bytes] = RepeatedMessages()
    rest, contents = split(message, FIELD)
    known.remember(message, contents, bytes(rest))
    return known


@given(_fields, st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=9), _fields, st.data())
def test_what_is_found_is_what_a_walk_finds(
    before: bytes, contents: list[bytes], after: bytes, data: st.DataObject
) -> None:
    before = join(b"", 1, [b"the name of a model" * 2]) + before
    message = join(before, FIELD, contents) + after
    known = repeated(message)
    others = [data.draw(st.binary(min_size=len(each), max_size=len(each))) for each in contents]
    for same in (message, memoryview(join(before, FIELD, others) + after)):
        found = known.find(same)
        assert (found is None) == (len(contents) > 8)
        if found is not None:
            rest, views = split(same, FIELD)
            assert found.facts == rest and found.contents(same) == views
    changed = bytearray(message)
    for place in data.draw(st.lists(st.integers(0, len(message) - 1), min_size=1, max_size=3)):
        changed[place] ^= data.draw(st.integers(1, 255))
    found = known.find(bytes(changed))
    if found is not None:
        assert split(changed, FIELD) == (found.facts, found.contents(changed))


def test_messages_of_equal_size_for_two_models_are_both_known() -> None:
    known: RepeatedMessages[str] = RepeatedMessages()
    messages = {model: join(join(b"", 1, [model.encode() * 30]), FIELD, [b"data"]) for model in "ab"}
    for model, message in messages.items():
        known.remember(message, split(message, FIELD)[1], model)
    found = {model: known.find(message) for model, message in messages.items()}
    assert {model: each and each.facts for model, each in found.items()} == {"a": "a", "b": "b"}


def test_unusual_messages_are_not_kept_and_the_oldest_one_leaves() -> None:
    known: RepeatedMessages[int] = RepeatedMessages()
    name = join(b"", 1, [b"a" * 30])
    unusual = [
        b"",
        name,
        join(name, FIELD, [b"a", b""]),
        join(join(b"", 1, [bytes(5000)]), FIELD, [b"a"]),
    ]
    for message in unusual:
        known.remember(message, split(message, FIELD)[1], 0)
        assert known.find(message) is None
    for grown in (0, 1):
        messages = [
            join(join(b"", 1, [b"%-30d" % number]), FIELD, [bytes(1 + grown * number)])
            for number in range(300)
        ]
        for number, message in enumerate(messages):
            known.remember(message, split(message, FIELD)[1], number)
        assert known.find(messages[0]) is None and known.find(messages[299]) is not None
