"""Several processes write one recording."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from interlingua.translator.recording import shared_file
from interlingua.translator.recording.files import FIRST_LINE, RecordingReader
from interlingua.translator.recording.shared_file import SharedRecordingWriter
from tests.translator.recording.test_files import read, record

_spawn = multiprocessing.get_context("spawn")


def numbers(path: Path) -> list[int]:
    return [each.began_unix_ns for each in read(path)]


def write(path: Path, first: int, count: int, size: int, max_bytes: int | None = None) -> None:
    with SharedRecordingWriter(path, max_bytes, 50) as writer:
        for number in range(first, first + count):
            assert writer.write(record(number, size))


def test_writers_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "r"
    shared_file.begin(path)
    # threads: a lock belongs to an open file, whichever process opened it
    with ThreadPoolExecutor(4) as pool:
        writing = [pool.submit(write, path, 1000 * each, 50, 20_000) for each in range(4)]
        assert [each.result() for each in writing] == [None] * 4
    found = numbers(path)
    assert sorted(found) == [1000 * each + number for each in range(4) for number in range(50)]
    # each in its own order
    for each in range(4):
        mine = [number for number in found if number // 1000 == each]
        assert mine == sorted(mine)


def test_writers_rotate_together(tmp_path: Path) -> None:
    path = tmp_path / "r"
    shared_file.begin(path)
    with ThreadPoolExecutor(3) as pool:
        writing = [pool.submit(write, path, 1000 * each, 40, 1000, 20_000) for each in range(3)]
        assert [each.result() for each in writing] == [None] * 3
    files = list(tmp_path.iterdir())
    assert len(files) > 3
    assert all(each.stat().st_size <= 20_000 for each in files)
    assert sorted(number for each in files for number in numbers(each)) == [
        1000 * each + number for each in range(3) for number in range(40)
    ]


def test_one_file_begins_again_for_all(tmp_path: Path) -> None:
    path = tmp_path / "r"
    shared_file.begin(path)
    with SharedRecordingWriter(path, 5000, 1) as one, SharedRecordingWriter(path, 5000, 1) as other:
        for number in range(10):
            assert (one, other)[number % 2].write(record(number, 1000))
            assert numbers(path)[-1] == number
        assert not one.write(record(0, 10_000))
        assert path.stat().st_size <= 5000


@pytest.mark.parametrize("left", [1, 19, 21, 300])
def test_a_part_of_a_record_is_removed(tmp_path: Path, left: int) -> None:
    """A process that was killed while it wrote left it."""
    path = tmp_path / "r"
    shared_file.begin(path)
    with SharedRecordingWriter(path) as writer:
        writer.write(record(1))
        end = path.stat().st_size
        writer.write(record(2, 1000))
        os.truncate(path, end + left)
    with SharedRecordingWriter(path) as writer:
        writer.write(record(3))
    assert numbers(path) == [1, 3]


def test_a_killed_writer_holds_up_nobody(tmp_path: Path) -> None:
    path = tmp_path / "r"
    shared_file.begin(path)
    killed = _spawn.Process(target=write, args=(path, 0, 1_000_000, 50_000))
    killed.start()
    assert killed.pid is not None
    deadline = time.monotonic() + 60
    while path.stat().st_size < 1_000_000:
        assert time.monotonic() < deadline
    os.kill(killed.pid, signal.SIGKILL)
    killed.join(20)
    write(path, 5_000_000, 3, 100)
    assert numbers(path)[-3:] == [5_000_000, 5_000_001, 5_000_002]


def test_a_recording_of_an_earlier_start_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "r"
    for number in range(2):
        shared_file.begin(path)
        write(path, number, 1, 100)
    assert numbers(path) == [1]
    assert numbers(tmp_path / "r.1") == [0]
    # removed by an operator
    with SharedRecordingWriter(path) as writer:
        path.unlink()
        writer.write(record(7))
        assert numbers(path) == [7]
    shared_file.begin(path)
    assert path.read_bytes() == FIRST_LINE
    with RecordingReader(path) as reader:
        assert list(reader) == []
