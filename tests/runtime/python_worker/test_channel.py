"""Frames come out as they went in, however they were cut on the way."""

from __future__ import annotations

import os
import socket

from hypothesis import given
from hypothesis import strategies as st

from interlingua.runtime.python_worker.channel import ChannelReader, encode, receive, send

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(st.lists(st.tuples(VALUES, st.binary(max_size=100)), max_size=5), st.integers(1, 50))
def test_frames_in_pieces(messages: list[tuple[object, bytes]], size: int) -> None:
    data = b"".join(encode(value, payload) for value, payload in messages)
    reader = ChannelReader()
    found = [
        (frame.value, bytes(frame.payload))
        for start in range(0, len(data), size)
        for frame in reader.feed(data[start : start + size], ())
    ]
    assert found == messages


def test_descriptors_come_with_their_frame() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pipes = [os.pipe() for _ in range(3)]
        send(ours, encode("one", b"", 2), [pipes[0][0], pipes[1][0]])
        send(ours, encode("none"), [])
        send(ours, encode("other", b"x", 1), [pipes[2][0]])
        reader = ChannelReader()
        frames = []
        while len(frames) < 3:
            frames += reader.feed(*receive(theirs))
        assert [(frame.value, len(frame.descriptors)) for frame in frames] == [
            ("one", 2),
            ("none", 0),
            ("other", 1),
        ]
        for index, descriptor in enumerate(frames[0].descriptors + frames[2].descriptors):
            os.write(pipes[index][1], bytes([index]))
            assert os.read(descriptor, 1) == bytes([index])
            assert not os.get_inheritable(descriptor)
            for each in (descriptor, *pipes[index]):
                os.close(each)
        ours.close()
        assert receive(theirs) == (b"", [])
