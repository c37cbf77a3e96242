"""Special functions: known values, TensorFlow's answers at the edges of their domains, derivatives by difference."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import special

from aexec.kernels.math import igamma_grad
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op
from tests.kernels.numeric_support import assert_close, assert_refused, bfloat16

NAN, INF = float("nan"), float("inf")
GAMMA = 0.5772156649015329


@pytest.mark.parametrize("op", ops_of("math.special_math_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


# op, x, value; from Abramowitz and Stegun's tables where there is no closed form
VALUES = [
    ("BesselI0", 1, 1.2660658777520084),
    ("BesselI0", -1, 1.2660658777520084),
    ("BesselI0", 0, 1),
    ("BesselI0e", 1, 0.46575960759364043),
    ("BesselI1", 1, 0.5651591039924851),
    ("BesselI1", -1, -0.5651591039924851),
    ("BesselI1e", 1, 0.2079104153497085),
    ("BesselJ0", 1, 0.7651976865579666),
    ("BesselJ0", 0, 1),
    ("BesselJ1", 1, 0.44005058574493355),
    ("BesselJ1", -1, -0.44005058574493355),
    ("BesselK0", 1, 0.42102443824070834),
    ("BesselK0", 0, INF),
    ("BesselK0", -1, INF),
    ("BesselK0", -INF, INF),
    ("BesselK0", INF, 0),
    ("BesselK0e", 1, 1.1444630798068949),
    ("BesselK0e", -1, INF),
    ("BesselK1", 1, 0.6019072301972346),
    ("BesselK1", -1, INF),
    ("BesselK1e", 1, 1.636153486263258),
    ("BesselK1e", -1, INF),
    ("BesselY0", 1, 0.08825696421567697),
    ("BesselY0", 0, -INF),
    ("BesselY0", -1, -INF),
    ("BesselY1", 1, -0.7812128213002887),
    ("BesselY1", -1, -INF),
    ("Dawsn", 1, 0.5380795069127684),
    ("Dawsn", -1, -0.5380795069127684),
    ("Digamma", 1, -GAMMA),
    ("Digamma", 0.5, -GAMMA - 2 * math.log(2)),
    ("Digamma", -0.5, 0.03648997397857652),
    ("Digamma", 0, NAN),
    ("Digamma", -1, NAN),
    ("Digamma", INF, INF),
    ("Erf", 0.5, 0.5204998778130465),
    ("Erf", -1, -0.8427007929497149),
    ("Erf", 0, 0),
    ("Erfc", 0.5, 0.4795001221869535),
    ("Erfc", INF, 0),
    ("Erfc", -INF, 2),
    ("Erfinv", 0.5, 0.4769362762044699),
    ("Erfinv", 1, INF),
    ("Erfinv", -1, -INF),
    ("Erfinv", 2, NAN),
    ("Expint", 1, 1.8951178163559368),
    ("Expint", 0, -INF),
    ("Expint", -1, NAN),
    ("Expint", INF, NAN),
    ("FresnelCos", 1, 0.7798934003768228),
    ("FresnelCos", INF, 0.5),
    ("FresnelSin", 1, 0.4382591473903548),
    ("FresnelSin", -1, -0.4382591473903548),
    ("Lgamma", 0.5, math.log(math.pi) / 2),
    ("Lgamma", -0.5, math.log(2 * math.sqrt(math.pi))),
    ("Lgamma", 0, INF),
    ("Lgamma", -1, INF),
    ("Lgamma", INF, INF),
    ("Lgamma", -INF, INF),
    ("Ndtri", 0.5, 0),
    ("Ndtri", 0.975, 1.959963984540054),
    ("Ndtri", 0, -INF),
    ("Ndtri", 1, INF),
    ("Ndtri", 2, NAN),
    ("Spence", 1, 0),
    ("Spence", 0, math.pi**2 / 6),
    ("Spence", 2, -(math.pi**2) / 12),
    ("Spence", -1, NAN),
]
HALF = {op for op, _, _ in VALUES if op.startswith("Bessel")} | {"Lgamma", "Digamma", "Erf", "Erfc"}


@pytest.mark.parametrize(("op", "x", "value"), VALUES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, bfloat16])
def test_value(op, x, value, dtype):
    if (dtype is np.float16 and op not in HALF) or (dtype is bfloat16 and op not in ("Erf", "Erfc")):
        return
    want = np.float64(value).astype(dtype)
    tolerance = {np.float64: 1e-10, np.float32: 2e-6, np.float16: 2e-3, bfloat16: 2e-2}[dtype]
    x = np.array(x, dtype)
    assert_close(run_op(op, [x]), want, tolerance=tolerance)
    assert_close(run_op(op, [np.stack([x, x])]), np.stack([want, want]), tolerance=tolerance)
    assert np.isnan(run_op(op, [dtype(NAN)]))
    assert run_op(op, [np.zeros((0, 3), dtype)]).shape == (0, 3)


@pytest.mark.parametrize(
    ("op", "dtype", "x", "value"),
    [
        ("Erf", np.float64, INF, NAN),
        ("Erf", np.float32, INF, 1),
        ("Erf", np.float16, -INF, -1),
        ("BesselY1", np.float64, 0, -INF),
        ("BesselY1", np.float32, 0, NAN),
    ],
)
def test_values_follow_tensorflow_type_by_type(op, dtype, x, value):
    assert_close(run_op(op, [dtype(x)]), value, dtype)


def test_erf_of_a_large_array():
    x = np.concatenate([np.linspace(-6, 6, 99_999), [INF, -INF, NAN, 0.0, 1e-30]]).astype(np.float32)
    want = special.erf(x.astype(np.float64)).astype(np.float32)
    got = run_op("Erf", [x])
    assert_close(got, want, tolerance=1e-6)
    assert np.nanmax(np.abs(got)) == 1
    assert_close(run_op("Erf", [x.reshape(4, -1).T]), want.reshape(4, -1).T, tolerance=1e-6)


# op, first input, second input, value
PAIRS = [
    ("Igamma", 1, 2, 1 - math.exp(-2)),
    ("Igamma", 0.5, 1, 0.8427007929497149),
    ("Igamma", 0, 1, NAN),
    ("Igamma", -1, 1, NAN),
    ("Igamma", 1, -1, NAN),
    ("Igamma", 2, 0, 0),
    ("Igamma", -1, 0, 0),
    ("Igamma", 2, INF, 1),
    ("Igammac", 1, 2, math.exp(-2)),
    ("Igammac", 2, 0, 1),
    ("Igammac", 0, 1, NAN),
    ("Igammac", 1, -1, NAN),
    ("Zeta", 2, 1, math.pi**2 / 6),
    ("Zeta", 4, 2, math.pi**4 / 90 - 1),
    ("Zeta", 1, 2, INF),
    ("Zeta", 0.5, 2, NAN),
    ("Zeta", 2, 0, INF),
    ("Zeta", 2, -3, INF),
    ("Zeta", 3, -3, NAN),
    ("Zeta", 2.5, 0, NAN),
    ("Zeta", NAN, 0, NAN),
    ("Polygamma", 0, 1, -GAMMA),
    ("Polygamma", 1, 1, math.pi**2 / 6),
    ("Polygamma", 2, 1, -2 * 1.2020569031595942),
    ("Polygamma", 1, 0, INF),
    ("Polygamma", 2, 0, NAN),
    ("Polygamma", 0, 0, NAN),
    ("Polygamma", 1.5, 1, NAN),
    ("Polygamma", -1, 1, NAN),
    ("IgammaGradA", 2, 0, 0),
    ("IgammaGradA", 2, INF, 0),
    ("IgammaGradA", INF, 2, 0),
    ("IgammaGradA", 0, 2, NAN),
    ("IgammaGradA", 2, -1, NAN),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("op", "first", "second", "value"), PAIRS)
def test_value_of_a_pair(op, first, second, value, dtype):
    tolerance = 1e-10 if dtype is np.float64 else 5e-6
    first, second = dtype(first), dtype(second)
    assert_close(run_op(op, [first, second]), value, dtype, tolerance)
    grid = run_op(op, [np.array([[first], [first]]), np.array([second, second, second])])
    assert_close(grid, np.full((2, 3), value), dtype, tolerance)
    assert run_op(op, [np.zeros((0, 2), dtype), second]).shape == (0, 2)


@pytest.mark.parametrize("op", ["Igamma", "Igammac", "Zeta", "Polygamma", "IgammaGradA"])
def test_pairs_that_do_not_broadcast(op):
    assert_refused("Incompatible shapes: [2] vs. [3]", op, [np.float32([1, 2]), np.float32([1, 2, 3])])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_derivative_of_the_incomplete_gamma_function(dtype):
    """Against a central difference, over series (x below a) and continued fraction (x above)."""
    rng = np.random.default_rng(0)
    a = np.concatenate([rng.gamma(2, 3, 300) + 0.05, rng.gamma(2, 200, 100), [1e4, 1e6]]).astype(dtype)
    x = (a * rng.gamma(5, 0.2, a.size)).astype(dtype)
    a64, x64 = a.astype(np.float64), x.astype(np.float64)
    h = 1e-4 * np.sqrt(a64)
    want = (special.gammainc(a64 + h, x64) - special.gammainc(a64 - h, x64)) / (2 * h)
    np.testing.assert_allclose(run_op("IgammaGradA", [a, x]), want, rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("a", "b", "x", "value"),
    [
        (1, 1, 0.3, 0.3),
        (2, 1, 0.5, 0.25),
        (0.5, 0.5, 0.5, 0.5),
        (2, 3, 0, 0),
        (2, 3, 1, 1),
        (NAN, 3, 1, 1),
        (2, 3, -0.5, NAN),
        (2, 3, 1.5, NAN),
        (0, 3, 0.5, NAN),
        (3, -1, 0.5, NAN),
        (2, 3, NAN, NAN),
    ],
)
def test_betainc(a, b, x, value, dtype):
    scalars = [dtype(a), dtype(b), dtype(x)]
    assert_close(run_op("Betainc", scalars), value, dtype)
    assert_close(run_op("Betainc", [scalars[0], np.stack([scalars[1]] * 2), scalars[2]]), [value] * 2, dtype)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2,), (3,), (2,)), "Shapes of a and b are inconsistent: [2] vs. [3]"),
        (((1,), (1,), (2,)), "Shapes of a and x are inconsistent: [1] vs. [2]"),
        (((), (3,), (2,)), "Shapes of b and x are inconsistent: [3] vs. [2]"),
    ],
)
def test_betainc_wants_scalars_or_one_shape(shapes, message):
    assert_refused(message, "Betainc", [np.full(s, 0.5, np.float32) for s in shapes])


def test_scipy_is_not_imported_before_it_is_needed():
    program = "import sys, aexec.kernels; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_derivative_is_not_looked_for_where_it_is_no_number(monkeypatch):
    steps = []
    monkeypatch.setattr(igamma_grad, "check_wanted", lambda: steps.append(1))
    run_op("IgammaGradA", [np.float64([1e5, 0.5, NAN, 2]), np.float64([1e300, 1e200, 1, INF])])
    assert len(steps) < 20


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_erfinv_outside_its_domain(dtype):
    y = run_op("Erfinv", [np.array([-INF, -1e30, -1.5, -1, 0, 1, 1.5, INF, NAN], dtype)])
    np.testing.assert_array_equal(y, [NAN, NAN, NAN, -INF, 0, INF, NAN, NAN, NAN])
    assert y.dtype == dtype
