"""Processes that number requests with one counter."""

from __future__ import annotations

import os
import subprocess
import sys

from interlingua.translator.workers import request_numbers

COUNT = 20_000
PROCESSES = 3
TAKE = """
import sys
from itertools import islice
from interlingua.translator.workers.request_numbers import numbers
print(sum(islice(numbers(int(sys.argv[1])), int(sys.argv[2]))))
"""


def test_no_number_comes_twice_and_none_is_left_out() -> None:
    descriptor = request_numbers.create()
    command = [sys.executable, "-c", TAKE, str(descriptor), str(COUNT)]
    taking = [
        subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[descriptor]) for _ in range(PROCESSES)
    ]
    total = COUNT * PROCESSES
    assert sum(int(each.communicate()[0]) for each in taking) == total * (total + 1) // 2
    assert next(request_numbers.numbers(descriptor)) == total + 1
    os.close(descriptor)
