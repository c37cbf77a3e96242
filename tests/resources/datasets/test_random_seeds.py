"""Words of a dataset's generator: one by one or many at a time, in the generator's order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aexec.numerics.philox import Philox
from aexec.resources.datasets.random_seeds import Words


@given(st.lists(st.one_of(st.none(), st.integers(0, 3000)), max_size=8))
def test_words_come_in_the_order_of_the_generator(counts: list[int | None]) -> None:
    words = Words(7, 9)
    found: list[int] = []
    for count in counts:
        found += [words.next()] if count is None else words.take(count).tolist()
    expected = Philox.from_seeds(7, 9).words(0, len(found) // 4 + 1).ravel()
    assert found == expected[: len(found)].tolist()


def test_words_are_integers_of_32_bits() -> None:
    words = Words(1, 2)
    assert type(words.next()) is int
    taken = words.take(1000)
    assert taken.dtype == np.int64 and taken.min() >= 0 and taken.max() < 1 << 32
