"""`tf.contrib.opt`: SciPy's optimisers and weight decay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf

opt = tf.contrib.opt


def test_scipy_minimises_by_gradients() -> None:
    v = tf.get_variable("v", initializer=[7.0, 7.0])
    unused = tf.get_variable("unused", initializer=[[1.0]])
    loss = tf.reduce_sum(tf.square(v - [1.0, 2.0]))
    seen: list[float] = []
    minimizer = opt.ScipyOptimizerInterface(loss, options={"maxiter": 100})
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        minimizer.minimize(sess, fetches=[loss], loss_callback=seen.append)
        np.testing.assert_allclose(sess.run(v), [1, 2], atol=1e-4)
        assert sess.run(unused) == 1 and seen[0] == 61.0 and min(seen) < 1e-6


def test_scipy_keeps_bounds_and_constraints() -> None:
    v = tf.get_variable("v", initializer=[7.0, 7.0])
    length = tf.reduce_sum(tf.square(v))
    with tf.Session():
        tf.global_variables_initializer().run()
        opt.ScipyOptimizerInterface(length, var_to_bounds={v: ([1, 2], np.inf)}).minimize()
        np.testing.assert_allclose(v.eval(), [1, 2], atol=1e-5)
        opt.ScipyOptimizerInterface(length, equalities=[v[0] - 1.0], inequalities=[v[1:] - 3.0]).minimize()
        np.testing.assert_allclose(v.eval(), [1, 3], atol=1e-4)


def test_optimizer_of_ones_own_has_an_algorithm() -> None:
    class Half(opt.ExternalOptimizerInterface):  # type: ignore[misc]
        def _minimize(self, initial: Any, loss_at: Any, *rest: Any) -> Any:
            return initial / 2

    v = tf.get_variable("v", initializer=[7.0])
    with tf.Session():
        tf.global_variables_initializer().run()
        Half(tf.reduce_sum(v)).minimize()
        assert v.eval() == [3.5]
        with pytest.raises(NotImplementedError, match="subclass"):
            opt.ExternalOptimizerInterface(tf.reduce_sum(v)).minimize()


@pytest.mark.parametrize(("kind", "settings"), [("AdamW", {}), ("MomentumW", {"momentum": 0.9})])
def test_weights_decay_before_the_step(kind: str, settings: dict[str, float]) -> None:
    values = []
    for decay in (None, 0.01):
        tf.reset_default_graph()
        v, w = (tf.get_variable(name, initializer=[2.0, 4.0]) for name in "vw")
        loss = tf.reduce_sum(tf.square(v) + w)
        if decay is None:
            plain = getattr(tf.train, f"{kind[:-1]}Optimizer")(0.1, **settings)
            step = plain.minimize(loss)
        else:
            decaying = getattr(opt, f"{kind}Optimizer")(decay, 0.1, **settings)
            step = decaying.apply_gradients(decaying.compute_gradients(loss), decay_var_list=[v])
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            sess.run(step)
            values.append(sess.run([v, w]))
    np.testing.assert_allclose(values[1][0], values[0][0] - [0.02, 0.04], rtol=1e-5)
    np.testing.assert_allclose(values[1][1], values[0][1])
