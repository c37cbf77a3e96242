"""`tf.distributions`: checks of arguments, subclasses, moments of samples; `recorded/` has TensorFlow's answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf

D = tf.distributions


@pytest.mark.parametrize(
    "make",
    [
        lambda: D.Gamma([2.0, 3.0], 0.5),
        lambda: D.Exponential([2.0, 1.0]),
        lambda: D.Laplace([1.0, 2.0], 0.5),
        lambda: D.Beta([2.0, 3.0], 1.5),
        lambda: D.Dirichlet([[1.0, 2.0], [3.0, 4.0]]),
        lambda: D.Multinomial([3.0, 5.0], logits=[0.0, 1.0]),
        lambda: D.DirichletMultinomial([3.0, 5.0], [[1.0, 2.0, 0.5], [3.0, 3.0, 3.0]]),
        lambda: D.Bernoulli(probs=[0.2, 0.7]),
        lambda: D.StudentT([9.0, 12.0], 1.0, [0.5, 2.0]),
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


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (lambda: D.Normal(0.0, [1.0, -1.0], validate_args=True).mean(), "assert_greater"),
        (lambda: D.Laplace(0.0, 0.0, validate_args=True).mean(), "assert_greater"),
        (lambda: D.Uniform(1.0, 1.0, validate_args=True).mean(), "uniform not defined when low >= high"),
        (lambda: D.Gamma(-1.0, 1.0, validate_args=True).mean(), "assert_greater"),
        (lambda: D.Gamma(1.0, 1.0, validate_args=True).prob(-1.0), "assert_greater"),
        (lambda: D.Exponential(-1.0, validate_args=True).mean(), "assert_greater"),
        (lambda: D.StudentT(0.0, 1.0, 1.0, validate_args=True).df, "assert_greater"),
        (lambda: D.Beta(0.0, 1.0, validate_args=True).mean(), "Concentration parameter must be positive"),
        (lambda: D.Beta(1.0, 1.0, validate_args=True).prob(1.0), "sample must be less than `1`"),
        (lambda: D.Beta(1.0, 1.0, validate_args=True).prob(0.0), "sample must be positive"),
        (lambda: D.Dirichlet([1.0, 0.0], validate_args=True).mean(), "Concentration parameter must be positive"),
        (lambda: D.Dirichlet([1.0, 1.0], validate_args=True).prob([0.6, 0.6]), "must sum to `1`"),
        (lambda: D.Bernoulli(probs=1.5, validate_args=True).mean(), "probs has components greater than 1"),
        (lambda: D.Bernoulli(probs=-0.5, validate_args=True).mean(), "assert_greater_equal"),
        (lambda: D.Bernoulli(probs=0.5, validate_args=True).prob(2), "Elements cannot exceed 1"),
        (lambda: D.Bernoulli(probs=0.5, validate_args=True).prob(0.5), "Elements must be bool-equivalent"),
        (lambda: D.Categorical(probs=[0.5, 0.6], validate_args=True).probs, "probs does not sum to 1"),
        (lambda: D.Categorical([0.5, 0.6], validate_args=True).prob(0.5), "Elements must be int32-equivalent"),
        (lambda: D.Categorical([0.5, 0.6], validate_args=True).prob(-1), "Elements must be non-negative"),
        (lambda: D.Multinomial(1.5, [0.0, 0.0], validate_args=True).mean(), "cannot contain fractional components"),
        (lambda: D.Multinomial(-1.0, [0.0, 0.0], validate_args=True).mean(), "must be non-negative"),
        (lambda: D.Multinomial(3.0, [0.0, 0.0], validate_args=True).prob([1.0, 1.0]), "counts must sum"),
        (lambda: D.DirichletMultinomial(3.0, [1.0, 1.0], validate_args=True).prob([1.0, 1.0]), "counts last-dim"),
        (lambda: D.DirichletMultinomial(3.0, [1.0, 0.0], validate_args=True).mean(), "must be positive"),
        (lambda: D.Gamma([1.0, 2.0], 1.0, allow_nan_stats=False).mode(), "any concentration <= 1"),
        (lambda: D.Beta(1.0, 2.0, allow_nan_stats=False).mode(), "Mode undefined for concentration1 <= 1"),
        (lambda: D.Dirichlet([1.0, 2.0], allow_nan_stats=False).mode(), "Mode undefined when any concentration"),
        (lambda: D.StudentT(1.0, 0.0, 1.0, allow_nan_stats=False).mean(), "mean not defined for components"),
        (lambda: D.StudentT(1.0, 0.0, 1.0, allow_nan_stats=False).variance(), "variance not defined for components"),
        (lambda: D.Normal(0.0, 0.0, allow_nan_stats=False).kl_divergence(D.Normal(0.0, 0.0)), "returned NaN values"),
    ],
)
def test_check_fails_in_the_run(asked: Any, message: str) -> None:
    with tf.Session() as sess, pytest.raises(tf.errors.InvalidArgumentError, match=message):
        sess.run(asked())


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: D.Normal(0, 1), ValueError, "Expected floating point type"),
        (lambda: D.Normal(0.0, np.array(1.0)), ValueError, "must be of type"),
        (lambda: D.Bernoulli(), ValueError, "Must pass probs or logits, but not both"),
        (lambda: D.Categorical([0.0], [1.0]), ValueError, "Must pass probs or logits, but not both"),
        (lambda: D.Bernoulli(logits=1), TypeError, "logits must having floating type"),
        (lambda: D.Categorical(probs=[1, 0]), TypeError, "probs must having floating type"),
        (lambda: D.Categorical([0.0], validate_args=True), ValueError, "at least 2 events"),
        (lambda: D.DirichletMultinomial(1.0, 1.0, validate_args=True), ValueError, "at least 1 dimension"),
        (lambda: D.Categorical([0.0, 1.0]).prob(tf.constant(True)), TypeError, "should have integer `dtype`"),
        (lambda: D.Normal(0.0, 1.0).sample([[1]]), ValueError, "neither scalar nor vector"),
        (lambda: D.Normal(np.float16(0), np.float16(1)).log_cdf(np.float16(0)), TypeError, "is not handled"),
        (lambda: D.Gamma(1.0, 1.0).quantile(0.5), NotImplementedError, "quantile is not implemented: Gamma"),
        (lambda: D.Categorical.param_shapes([1]), NotImplementedError, "_param_shapes not implemented"),
        (lambda: D.Normal.param_static_shapes(tf.TensorShape([None])), ValueError, "must be fully defined"),
        (lambda: D.Normal.param_static_shapes(tf.placeholder(tf.int32)), ValueError, "fully-defined TensorShape or"),
        (lambda: D.RegisterKL(D.Normal, D.Laplace)(3), TypeError, "kl_fn must be callable, received: 3"),
        (lambda: D.RegisterKL(D.Normal, D.Normal)(len), ValueError, "has already been registered"),
        (lambda: Steps(graph_parents=[3]), ValueError, "Graph parent item 0 is not a Tensor; 3"),
    ],
)
def test_wrong_argument_is_refused_at_once(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


class Steps(D.Distribution):  # type: ignore[misc]
    """A program's own distribution: 0, 1, … count - 1 with equal probabilities."""

    def __init__(self, count: Any = 4.0, graph_parents: Any = None, name: str = "Steps") -> None:
        parameters = dict(locals())
        self._count = tf.convert_to_tensor(count)
        super().__init__(tf.float32, D.NOT_REPARAMETERIZED, False, True, parameters, graph_parents, name)

    def _sample_n(self, n: Any, seed: Any = None) -> Any:
        return tf.floor(tf.random_uniform([n], seed=seed) * self._count)

    def _prob(self, value: Any) -> Any:
        return tf.ones_like(value) / self._count

    def _cdf(self, value: Any) -> Any:
        return (value + 1.0) / self._count

    def _variance(self) -> Any:
        return (self._count**2 - 1.0) / 12.0


def test_subclass_has_what_follows_from_its_formulas() -> None:
    steps = Steps()
    found = {
        "log_prob": steps.log_prob(1.0),
        "log_cdf": steps.log_cdf(1.0),
        "survival_function": steps.survival_function(1.0),
        "log_survival_function": steps.log_survival_function(1.0),
        "stddev": steps.stddev(),
        "is_scalar": tf.shape(steps.sample(3)),
    }
    with tf.Session() as sess:
        values = sess.run(found)
    wanted = np.log(0.25), np.log(0.5), 0.5, np.log(0.5), np.sqrt(1.25)
    np.testing.assert_allclose([values[name] for name in list(found)[:-1]], wanted, rtol=1e-6)
    assert values["is_scalar"].tolist() == [3]


def test_subclass_lacks_what_does_not_follow() -> None:
    steps = Steps()
    for function in ("entropy", "mean", "mode", "covariance", "batch_shape_tensor", "event_shape_tensor"):
        with pytest.raises(NotImplementedError, match=f"^{function} is not implemented: Steps$"):
            getattr(steps, function)()
    with pytest.raises(NotImplementedError, match=r"^No KL"):
        steps.kl_divergence(steps)
    with pytest.raises(NotImplementedError, match=r"^entropy is not implemented"):
        steps.cross_entropy(steps)
    assert steps.batch_shape.ndims is None
    assert str(steps) == 'tfp.distributions.Steps("Steps/", dtype=float32)'


def test_copy_overrides_arguments() -> None:
    normal = D.Normal(1.0, 2.0, name="first")
    other = normal.copy(scale=3.0, allow_nan_stats=False)
    assert (other.name, other.allow_nan_stats, normal.allow_nan_stats) == ("first_1/", False, True)
    with tf.Session() as sess:
        assert sess.run([other.loc, other.scale, normal.scale]) == [1.0, 3.0, 2.0]
    assert D.Exponential(2.0).copy().parameters["rate"] == 2.0


def test_methods_of_a_distribution_build_in_its_scope() -> None:
    normal = D.Normal(1.0, 2.0)
    assert normal.loc.name == "Normal/loc:0"
    assert normal.prob(1.0).name.startswith("Normal/prob/")
    assert D.Normal(1.0, 2.0).prob(1.0).name.startswith("Normal_1/prob/")


def test_shapes_are_known_in_the_run_alone() -> None:
    loc, rows, count = (tf.placeholder(tf.float32, name=name) for name in ("loc", "rows", "count"))
    categorical, normal = D.Categorical(rows), D.Normal(loc, [1.0, 2.0])
    asked = [
        normal.batch_shape_tensor(),
        normal.is_scalar_batch(),
        tf.shape(normal.sample(tf.cast(count, tf.int32))),
        categorical.batch_shape_tensor(),
        tf.shape(categorical.sample(tf.cast(count, tf.int32))),
        categorical.prob([1, 0]),
        categorical.mode(),
    ]
    given = {loc: np.zeros([3, 1], np.float32), rows: np.zeros([2, 4], np.float32), count: [5, 1]}
    with tf.Session() as sess:
        found = sess.run(asked, given)
    assert [np.asarray(value).tolist() for value in found] == [
        [3, 2],
        False,
        [5, 1, 3, 2],
        [2],
        [5, 1, 2],
        [0.25, 0.25],
        [0, 0],
    ]


def test_reparameterized_samples_have_gradients() -> None:
    def gradients(made: Any, *parameters: Any) -> list[Any]:
        return list(tf.gradients(made.sample(5, seed=1), list(parameters)))

    one, two = tf.constant(1.5), tf.constant(2.0)
    for kind in (D.Normal, D.Laplace, D.Uniform, D.Gamma, D.Beta):
        assert kind(one, two).reparameterization_type is D.FULLY_REPARAMETERIZED
        assert None not in gradients(kind(one, two), one, two)
    probs = tf.constant([0.5, 0.5])
    assert D.Categorical(probs=probs).reparameterization_type is D.NOT_REPARAMETERIZED
    assert gradients(D.Categorical(probs=probs, dtype=tf.float32), probs) == [None]


def test_log_cdf_has_finite_gradients_in_both_tails() -> None:
    x = tf.constant([-100.0, -10.0, 0.0, 5.0, 30.0])
    slope = tf.gradients(D.Normal(0.0, 1.0).log_cdf(x), x)[0]
    with tf.Session() as sess:
        found = sess.run(slope)
    np.testing.assert_allclose(found[[0, 2]], [100.01, 0.7978846], rtol=1e-4)
    assert np.isfinite(found).all()


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


def test_modes_of_a_batch_of_dirichlets_do_not_mix() -> None:
    """TensorFlow's condition lacks the last axis, so its result is right for single distributions only."""
    with tf.Session() as sess:
        found = sess.run(D.Dirichlet([[1.0, 2.0], [2.0, 3.0]]).mode())
    np.testing.assert_allclose(found, [[np.nan, np.nan], [1 / 3, 2 / 3]], rtol=1e-6)
