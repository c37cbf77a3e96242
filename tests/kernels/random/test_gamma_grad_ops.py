"""The derivative of gamma distributed numbers: known answers, and difference quotients of SciPy's quantiles."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import gammaincinv

from aexec.framework import errors
from aexec.kernels.common import elementwise
from aexec.kernels.math.igamma_grad import igamma_grad_a
from aexec.kernels.random import gamma_grad_ops
from tests.kernels.harness import in_tensorflow, registered, run_op


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_known_answers(dtype):
    """As TensorFlow 2.21 answers."""
    alpha = np.array([0.1, 0.5, 1, 2, 10, 100, 3, 3, 0.01, 0, -1], dtype)
    sample = np.array([0.05, 0.3, 1, 2.5, 12, 90, 0, 50, 1e-8, 1, 1], dtype)
    want = [1.36728307, 1.00980195, 1.17356303, 1.21231929, 1.11232944, 0.94982595, 0, 3.1324153, 1.78597955e-5]
    got = run_op("RandomGammaGrad", [alpha, sample])
    assert got.dtype == dtype
    np.testing.assert_allclose(got, [*want, np.nan, np.nan], rtol=1e-5)


@pytest.mark.parametrize("quantile", [0.01, 0.3, 0.9])
def test_gradient_is_the_derivative_of_the_quantile(quantile):
    alpha, step = np.array([[0.3], [2.0], [40.0]]), 1e-5
    sample = gammaincinv(alpha, quantile)
    want = (gammaincinv(alpha + step, quantile) - gammaincinv(alpha - step, quantile)) / (2 * step)
    np.testing.assert_allclose(run_op("RandomGammaGrad", [alpha, sample]), want, rtol=1e-4)


def test_registration_and_shapes():
    assert registered("RandomGammaGrad") == in_tensorflow("RandomGammaGrad")
    assert run_op("RandomGammaGrad", [np.ones((2, 1)), np.ones(3)]).shape == (2, 3)
    with pytest.raises(errors.InvalidArgumentError, match="Incompatible shapes"):
        run_op("RandomGammaGrad", [np.ones(2), np.ones(3)])


def test_large_broadcast_gradients_are_computed_in_blocks(monkeypatch):
    alphas, samples = np.array([[0.5], [2.0]]), np.linspace(0.1, 5, 300)
    whole, sizes = run_op("RandomGammaGrad", [alphas, samples]), []

    def noting(xp, special, a, x):
        sizes.append(a.size)
        return igamma_grad_a(xp, special, a, x)

    monkeypatch.setattr(gamma_grad_ops, "igamma_grad_a", noting)
    monkeypatch.setattr(elementwise, "_PIECE", 20)
    np.testing.assert_allclose(run_op("RandomGammaGrad", [alphas, samples]), whole, rtol=1e-12)
    assert sum(sizes) >= 600
    assert max(sizes) == 20
