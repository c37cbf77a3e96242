"""Rows that a loop in C adds: sums and differences are those of NumPy's own loops, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from aexec import native
from aexec.kernels.common import scattering


@pytest.mark.parametrize("ufunc", [np.add, np.subtract])
@pytest.mark.parametrize("width", [1, 3, 64])
def test_rows_are_added_in_order_as_numpy_does(ufunc: np.ufunc, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    out, rows = (rng.standard_normal((n, width), np.float32) for n in (20, 100))
    rows[3, 0], rows[4, 0] = np.inf, -0.0
    index, expected, before = rng.integers(0, 20, 100), out.copy(), rows.copy()
    ufunc.at(expected, index, rows)
    for loops in (native.loops, None):
        monkeypatch.setattr(native, "loops", loops)
        found = out.copy()
        scattering.accumulate(ufunc, found, index, rows)
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(rows, before)
