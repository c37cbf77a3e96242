"""The generator and the numbers made of its words: known answers, and whether cutting work up changes anything."""

from __future__ import annotations

import hashlib
import threading

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.numerics import philox, single_libm
from aexec.numerics.philox import GuardedPhilox, Philox

BITS128 = st.integers(0, 2**128 - 1)
BITS64 = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize(
    ("counter", "key", "block"),
    [
        ([0, 0, 0, 0], [0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_known_answers_of_the_generators_authors(counter, key, block):
    generator = Philox(sum(k << 32 * i for i, k in enumerate(key)), sum(c << 32 * i for i, c in enumerate(counter)))
    assert generator.words(0, 1).tolist() == [block]
    assert generator.words(0, 20)[0].tolist() == block


@given(key=BITS64, counter=BITS128, start=st.integers(0, 2**40))
def test_block_by_block_or_all_at_once(key, counter, start):
    generator = Philox(key, counter)
    together = generator.words(start, 16)
    for i in range(16):
        assert generator.skip(start + i).words(0, 1)[0].tolist() == together[i].tolist()


def test_counter_carries_over_all_its_bits():
    generator = Philox(3, 2**128 - 5)
    assert generator.words(5, 10).tolist() == Philox(3, 0).words(0, 10).tolist()
    assert generator.words(0, 15)[5:].tolist() == Philox(3, 0).words(0, 10).tolist()
    below = Philox(3, 2**64 - 5)
    assert below.words(0, 15)[5:].tolist() == Philox(3, 2**64).words(0, 10).tolist()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("fill", [philox.fill_uniform, philox.fill_standard_normal, philox.fill_truncated_normal])
def test_shorter_draw_is_the_start_of_a_longer_one(fill, dtype):
    longer, shorter = np.empty(40_001, dtype), np.empty(18_003, dtype)
    fill(Philox(1, 2), longer)
    fill(Philox(1, 2), shorter)
    assert shorter.tobytes() == longer[: shorter.size].tobytes()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_moments(dtype):
    out = np.empty(100_000, dtype)
    philox.fill_uniform(Philox(5, 0), out)
    assert out.min() >= 0
    assert out.max() < 1
    assert abs(out.astype(np.float64).mean() - 0.5) < 0.006
    philox.fill_standard_normal(Philox(5, 0), out)
    assert abs(out.astype(np.float64).mean()) < 0.01
    assert abs(out.astype(np.float64).std() - 1) < 0.01
    philox.fill_truncated_normal(Philox(5, 0), out)
    assert np.abs(out.astype(np.float64)).max() <= 2
    assert abs(out.astype(np.float64).std() - 0.8796) < 0.01


def test_runs_in_threads_draw_distinct_numbers():
    guarded = GuardedPhilox(Philox(0, 0))
    taken: list[int] = []

    def take() -> None:
        for _ in range(200):
            taken.append(guarded.reserve_outputs(3).counter)  # noqa: PERF401

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == [768 * i for i in range(800)]


def _all_uniform() -> np.ndarray:
    return philox.unit_floats(np.arange(2**23, dtype=np.uint32))


def _digest(*parts: np.ndarray) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.tobytes())
    return digest.hexdigest()


def test_logarithms_of_all_arguments_are_the_c_librarys():
    """The digest is that of glibc's logf over every number that the generator can give."""
    x = np.maximum(_all_uniform(), np.float32(1e-7))
    parts = [single_libm.logf(part) for part in np.split(x, 256)]
    assert _digest(*parts) == "207fef8ffa8c82caf82c478ee40c5bdbcc5d64d385cd8a1ce60d832fcf03b59b"


def test_sines_and_cosines_of_all_arguments_are_the_c_librarys():
    """As above, for sincosf."""
    angle = (2 * np.pi * _all_uniform().astype(np.float64)).astype(np.float32)
    parts = [single_libm.sincosf(part) for part in np.split(angle, 256)]
    assert _digest(*[p[0] for p in parts]) == "c718616d24ba03d8eb34fe59f6febc3b383c7d947dec50bdf58c10fbf51946b5"
    assert _digest(*[p[1] for p in parts]) == "b085eb29bc0360f27b736db7ccc9c80d33b0e35e0b810174d45e42383540001c"
