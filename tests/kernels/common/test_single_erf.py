"""Error functions over NumPy's loops, against SciPy's in double; and in pieces."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from aexec.kernels.common.elementwise import shared
from aexec.kernels.common.single_erf import single_erf, single_erfc


def test_complement_has_its_relative_error_far_out_too() -> None:
    x = np.linspace(-12, 9.2, 100_003, dtype=np.float32)
    np.testing.assert_allclose(single_erfc(np, x), special.erfc(x.astype(np.float64)), rtol=1e-6)


def test_far_out_it_is_nothing() -> None:
    x = np.array([9.3, 10, 11, 1e30, np.inf], np.float32)
    np.testing.assert_allclose(single_erfc(np, x), special.erfc(x.astype(np.float64)), atol=1e-38)
    assert single_erfc(np, np.array([np.nan, -np.inf, 0, np.inf], np.float32)).tolist()[1:] == [2, 1, 0]
    assert np.isnan(single_erfc(np, np.array([np.nan], np.float32))).all()


@pytest.mark.parametrize("function", [single_erf, single_erfc])
def test_pieces_are_the_whole(function: object) -> None:
    assert callable(function)
    x = np.random.default_rng(0).standard_normal((300, 700), np.float32)
    in_pieces = shared(np, lambda x: function(np, x))
    np.testing.assert_array_equal(in_pieces(x), function(np, x))
    np.testing.assert_array_equal(in_pieces(x.T), function(np, np.ascontiguousarray(x.T)))
