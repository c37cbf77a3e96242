"""Cases of `tf.distributions`: every function of each distribution, with ordinary and with extreme parameters.

Next to read: `cases.py`, which has them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["CASES", "FUNCTIONS", "MADE", "STATISTICS", "answers"]

INF, NAN = np.inf, np.nan
FUNCTIONS = "log_prob prob log_cdf cdf log_survival_function survival_function quantile".split()
STATISTICS = "entropy mean mode variance stddev covariance".split()
SHAPES = "batch_shape_tensor event_shape_tensor is_scalar_batch is_scalar_event".split()
LINE = np.array([[-INF], [-30.0], [-1.5], [0.0], [0.25], [1.0], [2.0], [30.0], [INF], [NAN]], np.float32)
UNIT = np.array([[0.0], [1e-4], [0.25], [0.5], [0.9], [1.0]], np.float32)
PARTS = np.array([[[0.2, 0.3, 0.5]], [[0.0, 0.5, 0.5]], [[1.0, 0.0, 0.0]]], np.float32)
COUNTS = np.array([[[1.0, 2.0, 1.0]], [[0.0, 0.0, 4.0]], [[2.0, 2.0, 0.0]]], np.float32)
NONE = np.zeros([0, 3], np.float32)

# Name → a distribution, and values that its functions are asked for.
MADE: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "Normal": (lambda tf: tf.distributions.Normal([0.0, 1.0, -2.0, 0.5], [1.0, 2.0, 0.0, INF]), LINE),
    "Normal of doubles": (
        lambda tf: tf.distributions.Normal(np.array([0.0, 3.0]), np.array([[1.0], [0.5]])),
        [[-25.0, 9.0]],
    ),
    "Normal of few": (lambda tf: tf.distributions.Normal(NONE, [1.0, 2.0, 3.0]), 1.0),
    "Laplace": (lambda tf: tf.distributions.Laplace([0.0, 1.0, -2.0, 0.5], [1.0, 2.0, 0.0, INF]), LINE),
    "Uniform": (lambda tf: tf.distributions.Uniform([0.0, -1.0, 2.0, 0.0], [1.0, 2.0, 2.0, INF]), LINE),
    "Uniform of few": (lambda tf: tf.distributions.Uniform(NONE), 0.5),
    "Bernoulli": (lambda tf: tf.distributions.Bernoulli(probs=[0.0, 0.2, 0.5, 1.0]), [[0], [1]]),
    "Bernoulli of logits": (lambda tf: tf.distributions.Bernoulli([[0.5], [-INF]], dtype=tf.float32), [0.0, 1.0, 0.5]),
    "Categorical": (
        lambda tf: tf.distributions.Categorical(probs=[[0.2, 0.8, 0.0], [0.5, 0.25, 0.25]]),
        [[0], [1], [2]],
    ),
    "Categorical of logits": (
        lambda tf: tf.distributions.Categorical([1.0, 2.0, -INF], dtype=tf.int64),
        [[0, 1], [1, 0]],
    ),
    "Categorical of few": (lambda tf: tf.distributions.Categorical(NONE), np.zeros([0], np.int32)),
    "Exponential": (lambda tf: tf.distributions.Exponential([0.0, 0.5, 2.0, INF]), LINE),
    "Gamma": (lambda tf: tf.distributions.Gamma([0.0, 0.5, 1.0, 3.0], [1.0, 2.0, 0.0, 0.5]), LINE),
    "Gamma of few": (lambda tf: tf.distributions.Gamma(NONE, 1.0), 0.5),
    "Beta": (lambda tf: tf.distributions.Beta([0.0, 0.5, 2.0, 3.0], [1.0, 0.5, 1.0, 4.0]), [0.5, 0.0, 0.25, 1.0]),
    "Beta of one": (lambda tf: tf.distributions.Beta(2.0, 3.0), UNIT),
    "Dirichlet": (lambda tf: tf.distributions.Dirichlet([[0.0, 1.0, 2.0]]), PARTS),
    "Dirichlet of one": (lambda tf: tf.distributions.Dirichlet([2.0, 1.5, 4.0]), PARTS),
    "Multinomial": (lambda tf: tf.distributions.Multinomial([4.0, 2.0], probs=[0.2, 0.3, 0.5]), COUNTS),
    "Multinomial of logits": (
        lambda tf: tf.distributions.Multinomial(4.0, [[0.0, 1.0, -1.0], [1.0, -INF, 0.0]]),
        COUNTS,
    ),
    "DirichletMultinomial": (
        lambda tf: tf.distributions.DirichletMultinomial(4.0, [[1.0, 2.0, 0.5], [3.0, 3.0, 3.0]]),
        COUNTS,
    ),
    "StudentT": (
        lambda tf: tf.distributions.StudentT([0.5, 1.0, 2.0, 7.0], [0.0, 1.0, 1.0, INF], -2.0),
        [3.0, NAN, 1.0, 0.5],
    ),
    "StudentT of one": (
        lambda tf: tf.distributions.StudentT(1.5, [0.0, 1.0, -1.0, 0.0], [[2.0], [-1.0]]),
        LINE[..., None],
    ),
}


def answers(tf: Any, name: str) -> dict[str, Any]:
    """Method → its tensor, or the message of the error that it raises."""
    make, values = MADE[name]
    made = make(tf)
    asked: dict[str, Any] = dict.fromkeys(FUNCTIONS, (values,))
    asked |= dict.fromkeys(STATISTICS + SHAPES, ())
    found: dict[str, Any] = {}
    for function, arguments in asked.items():
        try:
            found[function] = getattr(made, function)(*arguments)
        except NotImplementedError as refusal:
            found[function] = tf.constant(str(refusal))
    return found


def described(tf: Any, name: str) -> Any:
    """The name, dtypes and shapes of a distribution, and of a sample."""
    made = MADE[name][0](tf)
    sample = made.sample([2, 3])
    said = [made, sample.shape, sample.dtype.name, made.name, made.reparameterization_type, sorted(made.parameters)]
    return tf.constant([repr(made), *map(str, said)])


def drawn(tf: Any, name: str, shape: Any) -> Any:
    """Samples with a seed."""
    return MADE[name][0](tf).sample(shape, seed=7)


def compared(tf: Any, a: Any, b: Any) -> list[Any]:
    """The divergence and cross entropy of two distributions."""
    return [tf.distributions.kl_divergence(a, b), a.kl_divergence(b), a.cross_entropy(b)]


CASES: dict[str, Callable[[Any], Any]] = {
    **{f"functions of {name}": lambda tf, name=name: list(answers(tf, name).values()) for name in MADE},
    **{f"description of {name}": lambda tf, name=name: described(tf, name) for name in MADE},
    # Counts are drawn in other ways here, and a gamma sample of concentration 0 is the least number of TensorFlow.
    **{
        f"samples of {name}": lambda tf, name=name: [drawn(tf, name, 2), drawn(tf, name, [3, 1])]
        for name in MADE
        if name not in ("Gamma", "Beta", "Dirichlet") and "Multinomial" not in name
    },
    "samples of Gamma": lambda tf: tf.distributions.Gamma([0.5, 3.0], [[1.0], [2.0]]).sample(2, seed=7),
    "samples of Beta": lambda tf: tf.distributions.Beta([0.5, 3.0], 2.0).sample(2, seed=7),
    "samples of Dirichlet": lambda tf: tf.distributions.Dirichlet([0.5, 3.0, 1.0]).sample(2, seed=7),
    "divergence of Normal": lambda tf: compared(
        tf, tf.distributions.Normal([0.0, 1.0], [1.0, 0.0]), tf.distributions.Normal(1.0, [[2.0], [0.0]])
    ),
    "divergence of Bernoulli": lambda tf: compared(
        tf, tf.distributions.Bernoulli(probs=[0.2, 0.5, 1.0]), tf.distributions.Bernoulli(probs=[[0.3], [0.0]])
    ),
    "divergence of Categorical": lambda tf: compared(
        tf, tf.distributions.Categorical([[1.0, 2.0], [0.0, 0.0]]), tf.distributions.Categorical([[0.0, 3.0]])
    ),
    "divergence of Gamma": lambda tf: compared(
        tf, tf.distributions.Gamma([2.0, 0.5], 1.0), tf.distributions.Exponential([[2.0], [0.5]])
    ),
    "divergence of Beta": lambda tf: compared(
        tf, tf.distributions.Beta([2.0, 0.5], 1.0), tf.distributions.Beta(1.0, 3.0)
    ),
    "divergence of Dirichlet": lambda tf: compared(
        tf, tf.distributions.Dirichlet([[1.0, 2.0, 3.0]]), tf.distributions.Dirichlet([2.0, 2.0, 1.0])
    ),
    "shapes of parameters": lambda tf: [
        value for _, value in sorted(tf.distributions.StudentT.param_shapes([2, 3]).items())
    ],
}
