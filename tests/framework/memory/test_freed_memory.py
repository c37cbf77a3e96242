"""What becomes of freed memory."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from aexec.framework.memory import freed_memory
from aexec.framework.memory.freed_memory import FreedMemory, page_faults

needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have rules of their own")

PROGRAM = """
import numpy as np

from aexec.framework.memory.freed_memory import FreedMemory, page_faults

def run(size, count):
    arrays = [np.ones(size, np.float32) for _ in range(count)]
    del arrays

def faults(size, count):
    before = page_faults()
    for _ in range(20):
        run(size, count)
    return page_faults() - before

freed = FreedMemory()
freed.keep()
faults(100_000, 4)
print(faults(100_000, 4))
for _ in range(64):
    begun = freed.begin()
    run(400_000, 10)
    freed.end(begun)
print(faults(400_000, 10))
"""


@needs_glibc
def test_arrays_reuse_the_pages_of_freed_ones() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    small, large = map(int, done.stdout.split())
    assert small < 400  # of the 8_000 pages that the arrays have
    assert large < 4_000  # of 78_000


def test_page_faults_are_counted() -> None:
    if sys.platform == "win32":
        assert page_faults() == 0
    else:
        assert 0 < page_faults() <= page_faults()


def grown(faults_of_runs: list[int]) -> list[int]:
    """The bytes that are kept after each of some runs that are looked at."""
    now = [0]
    freed = FreedMemory(lambda: now[0])
    freed.keep()
    kept = []
    for faults in faults_of_runs:
        begun = [freed.begin() for _ in range(freed_memory._LOOK_AT)]
        assert begun[:-1] == [None] * (freed_memory._LOOK_AT - 1)
        now[0] += faults
        for one in begun:
            freed.end(one)
        kept.append(freed.kept_bytes)
    return kept


def test_more_is_kept_while_runs_need_new_pages() -> None:
    MB = 1 << 20
    assert grown([0, 100, 512, 513, 0, 2000]) == [MB, MB, MB, 2 * MB, 2 * MB, 4 * MB]


def test_memory_that_is_kept_has_a_bound() -> None:
    MB = 1 << 20
    now = [0]

    def faults() -> int:
        now[0] += 1 << 20
        return now[0]

    freed = FreedMemory(faults)
    freed.keep()
    for _ in range(100):
        freed.end(freed.begin())
    assert freed.kept_bytes == 16 * MB
    before = now[0]
    for _ in range(100):
        freed.end(freed.begin())
    assert now[0] == before  # it looks no more
