"""What becomes of freed memory."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource

import numpy as np

from aexec.framework.memory.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        arrays = [np.ones(100_000, np.float32) for _ in range(4)]
        del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

keep_freed_memory()
faults()
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have rules of their own")
def test_arrays_reuse_the_pages_of_freed_ones() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout) < 400  # of the 8_000 pages that the arrays have
