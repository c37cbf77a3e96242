"""`tf.distributions` of positive numbers, proportions and counts: answers of TensorFlow 2.21, and samples' moments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf

D = tf.distributions
X = np.array([0.3, 0.6], np.float32)
KNOWN: dict[str, Any] = {
    "gamma": [[-1.503973, -4.09424], [2.0, 6.0], [2.0, 12.0], [1.577216, 2.540726], [1.0, 4.0]],
    "beta": [[-0.060554, 0.323821], [0.571429, 0.428571], [0.054422, 0.030612], [-0.10805, -0.344343], [0.666667, 0.4]],
    "dirichlet": [[1.504077], [[0.166667, 0.333333, 0.5]], [[0.019841, 0.031746, 0.035714]], [-1.244344]],
    "multinomial": [-2.225624, [0.8, 1.2, 2.0], [0.64, 0.84, 1.0]],
    "exponential": [[0.093147, -0.506853], [0.5], [0.306853], [0.451188, 0.698806]],
    "laplace": [[-1.736294, -1.586294], [1.0], [8.0], [2.386294], [0.352344, 0.409365]],
    "divergence": [[1.729637, 6.457048], [1.142771, 0.601197], [1.632957]],
}


def asked(kind: str) -> list[Any]:
    """What TensorFlow was asked, in the same words."""
    g, h = D.Gamma([2.0, 3.0], [1.0, 0.5]), D.Gamma([1.0, 2.0], [2.0, 2.0])
    b, c = D.Beta([2.0, 3.0], [1.5, 4.0]), D.Beta([1.0, 2.0], [3.0, 1.0])
    d, o = D.Dirichlet([[1.0, 2.0, 3.0]]), D.Dirichlet([[2.0, 2.0, 1.0]])
    m, e, lap = D.Multinomial(4.0, probs=[0.2, 0.3, 0.5]), D.Exponential([2.0]), D.Laplace([1.0], [2.0])
    return {
        "gamma": lambda: [g.log_prob(X), g.mean(), g.variance(), g.entropy(), g.mode()],
        "beta": lambda: [b.log_prob(X), b.mean(), b.variance(), b.entropy(), b.mode()],
        "dirichlet": lambda: [d.log_prob([0.2, 0.3, 0.5]), d.mean(), d.variance(), d.entropy()],
        "multinomial": lambda: [m.log_prob([1.0, 2.0, 1.0]), m.mean(), m.variance()],
        "exponential": lambda: [e.log_prob(X), e.mean(), e.entropy(), e.cdf(X)],
        "laplace": lambda: [lap.log_prob(X), lap.mean(), lap.variance(), lap.entropy(), lap.cdf(X)],
        "divergence": lambda: [D.kl_divergence(g, h), D.kl_divergence(b, c), D.kl_divergence(d, o)],
    }[kind]()


@pytest.mark.parametrize("kind", KNOWN)
def test_distribution_answers_as_tensorflow(kind: str) -> None:
    with tf.Session() as sess:
        found = sess.run(asked(kind))
    for value, wanted in zip(found, KNOWN[kind], strict=True):
        np.testing.assert_allclose(value, wanted, atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: D.Gamma([2.0, 3.0], 0.5),
        lambda: D.Exponential([2.0, 1.0]),
        lambda: D.Laplace([1.0, 2.0], 0.5),
        lambda: D.Beta([2.0, 3.0], 1.5),
        lambda: D.Dirichlet([[1.0, 2.0], [3.0, 4.0]]),
        lambda: D.Multinomial([3.0, 5.0], logits=[0.0, 1.0]),
    ],
)
def test_samples_have_mean_and_variance(make: Any) -> None:
    distribution = make()
    with tf.Session() as sess:
        drawn, mean, variance = sess.run(
            [distribution.sample([4000], seed=3), distribution.mean(), distribution.variance()]
        )
    assert drawn.shape == (4000, *np.shape(mean))
    np.testing.assert_allclose(drawn.mean(0), mean, atol=5 * np.sqrt(variance.max() / 4000))
    np.testing.assert_allclose(drawn.var(0), variance, rtol=0.2)


def test_divergence_of_ones_own_is_registered() -> None:
    class Mine(D.Normal):  # type: ignore[misc]
        pass

    @D.RegisterKL(Mine, D.Laplace)
    def _divergence(a: Any, b: Any, name: str | None = None) -> Any:
        return a.loc - b.loc

    with tf.Session() as sess:
        assert sess.run(D.kl_divergence(Mine(3.0, 1.0), D.Laplace(1.0, 1.0))) == 2.0
        assert sess.run(D.kl_divergence(Mine(3.0, 1.0), D.Normal(3.0, 1.0))) == 0.0
    with pytest.raises(NotImplementedError, match="No KL"):
        D.kl_divergence(D.Laplace(1.0, 1.0), Mine(3.0, 1.0))
