"""Programs subclass the base classes of `aexec.compat.v1` as they subclass TensorFlow's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf


def trained(optimizer: Any, resource: bool = False, rows: bool = False, steps: int = 1) -> list[float]:
    """Train [1, 2] to minimise the sum of squares, of all rows or of the second row twice; return the values."""
    tf.reset_default_graph()
    v = tf.Variable([1.0, 2.0], use_resource=resource)
    taken = tf.gather(v, [1, 1]) if rows else v
    step = optimizer().minimize(tf.reduce_sum(taken * taken), tf.train.get_or_create_global_step())
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(steps):
            sess.run(step)
        assert sess.run(tf.train.get_global_step()) == steps
        return [round(float(x), 5) for x in sess.run(v)]


class Parts(tf.train.Optimizer):
    """An optimizer that implements momentum 0.5, and halves its learning rate with each step."""

    def __init__(self, rate: float = 0.1) -> None:
        super().__init__(use_locking=False, name="Parts")
        self._rate = rate

    def _prepare(self) -> None:
        self._rate_t = tf.convert_to_tensor(self._call_if_callable(self._rate), name="rate")

    def _create_slots(self, var_list: Any) -> None:
        self._create_non_slot_variable(1.0, "factor", min(var_list, key=lambda v: v.name))
        for v in var_list:
            self._zeros_slot(v, "m", self._name)

    def _moved(self, grad: Any, var: Any) -> Any:
        m = self.get_slot(var, "m")
        factor = self._get_non_slot_variable("factor", tf.get_default_graph())
        kept = tf.assign(m, 0.5 * m + grad)
        return tf.group(tf.assign_sub(var, self._rate_t * factor * kept), kept)

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        return self._moved(grad, var)

    def _resource_apply_dense(self, grad: Any, var: Any) -> Any:
        return self._moved(grad, var)

    def _apply_sparse(self, grad: Any, var: Any) -> Any:
        return tf.scatter_sub(var, grad.indices, self._rate_t * grad.values)

    def _resource_apply_sparse(self, grad: Any, var: Any, indices: Any) -> Any:
        return tf.scatter_sub(var, indices, self._rate_t * grad)

    def _finish(self, update_ops: Any, name_scope: str) -> Any:
        factor = self._get_non_slot_variable("factor", tf.get_default_graph())
        with tf.control_dependencies(update_ops):
            return tf.group(*update_ops, tf.assign(factor, factor * 0.5), name=name_scope)


@pytest.mark.parametrize("resource", [False, True])
def test_optimizer_of_parts(resource: bool) -> None:
    """Two steps: v = 0.8 v, m = 2 v; then m = 0.5 m + 1.6 v = 2.6 v, v = 0.8 v - 0.05 * 2.6 v."""
    assert trained(Parts, resource, steps=2) == [0.67, 1.34]
    assert trained(Parts, resource, rows=True) == [1.0, 1.2]


def test_optimizer_names_what_it_keeps() -> None:
    made: list[Any] = []
    trained(lambda: made.append(Parts()) or made[0])
    (optimizer,) = made
    assert [v.name for v in optimizer.variables()] == ["Variable/Parts:0", "factor:0"]
    assert optimizer.get_slot_names() == ["m"] and optimizer.get_name() == "Parts"


def test_optimizer_that_applies_gradients_itself() -> None:
    class Whole(tf.train.Optimizer):
        def __init__(self, rate: float, name: str = "Whole") -> None:
            super().__init__(False, name)
            self.rate = rate

        def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
            updates = [v.assign(v - self.rate * grad) for grad, v in grads_and_vars]
            return tf.group(*updates, [global_step.assign(global_step + 1)], name=name)

    assert trained(lambda: Whole(0.1)) == [0.8, 1.6]


def test_optimizer_that_is_not_whole_is_refused() -> None:
    class Nothing(tf.train.Optimizer):
        pass

    with pytest.raises(NotImplementedError):
        trained(lambda: Nothing(False, "Nothing"))
    with pytest.raises(ValueError, match="Must specify the optimizer name"):
        tf.train.Optimizer(False, "")
    with pytest.raises(ValueError, match="No gradients provided"):
        tf.train.GradientDescentOptimizer(0.1).minimize(tf.constant(1.0), var_list=[tf.Variable(1.0)])


@pytest.mark.parametrize("resource", [False, True])
def test_optimizer_of_ours_with_a_step_more(resource: bool) -> None:
    """Like decoupled weight decay: the subclass calls methods of Adam, and reads its attributes."""

    class Decayed(tf.train.AdamOptimizer):
        def __init__(self, decay: float, **settings: Any) -> None:
            super().__init__(**settings)
            self._decay = decay

        def _prepare(self) -> None:
            super()._prepare()
            self._lr_t = self._lr_t * 1.0

        def _decayed(self, var: Any) -> Any:
            return var.assign_sub(self._decay * self._lr_t * var)

        def _apply_dense(self, grad: Any, var: Any) -> Any:
            with tf.control_dependencies([self._decayed(var)]):
                return super()._apply_dense(grad, var)

        def _resource_apply_dense(self, grad: Any, var: Any) -> Any:
            with tf.control_dependencies([self._decayed(var)]):
                return super()._resource_apply_dense(grad, var)

    found = trained(lambda: Decayed(1.0, learning_rate=0.1), resource)
    assert found == [0.8, 1.7]  # 0.1 of each, and 0.1 * v
    optimizer = Decayed(1.0, learning_rate=0.5)
    optimizer._lr = 0.25
    assert optimizer._lr == 0.25 and repr(optimizer).count("learning_rate=0.25") == 1


def test_optimizer_whose_gradients_are_changed() -> None:
    class Clipped(tf.train.GradientDescentOptimizer):
        def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
            pairs = super().compute_gradients(*args, **kwargs)
            return [(tf.clip_by_value(grad, -3.0, 3.0), var) for grad, var in pairs]

    assert trained(lambda: Clipped(0.1)) == [0.8, 1.7]


class Sum(tf.nn.rnn_cell.RNNCell):
    """A cell that adds its weighted inputs to its state."""

    state_size = output_size = 2

    def call(self, inputs: Any, state: Any) -> Any:
        weight = tf.get_variable("w", [], initializer=tf.ones_initializer())
        return inputs * weight + state, inputs * weight + state


class OfLayers(tf.nn.rnn_cell.RNNCell):
    """A cell whose weights are a layer's, and which says its sizes by properties."""

    def __init__(self, units: int, **settings: Any) -> None:
        super().__init__(**settings)
        self._units = units

    @property
    def state_size(self) -> int:  # type: ignore[override]
        return self._units

    @property
    def output_size(self) -> int:  # type: ignore[override]
        return self._units

    def build(self, inputs_shape: Any) -> None:
        self._kernel = self.add_weight(
            "kernel", [int(inputs_shape[-1]), self._units], initializer=tf.ones_initializer()
        )
        super().build(inputs_shape)

    def call(self, inputs: Any, state: Any) -> Any:
        made = tf.matmul(inputs, self._kernel) + state
        return made, made


def unrolled(cell: Any, dynamic: bool) -> list[float]:
    x = tf.ones([1, 3, 2])
    if dynamic:
        outputs, _ = tf.nn.dynamic_rnn(cell, x, dtype=tf.float32)
    else:
        outputs = tf.stack(tf.nn.static_rnn(cell, tf.unstack(x, axis=1), dtype=tf.float32)[0], axis=1)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        return [float(value) for value in sess.run(outputs)[0, :, 0]]


@pytest.mark.parametrize("dynamic", [True, False])
def test_cell_with_call(dynamic: bool) -> None:
    assert unrolled(Sum(), dynamic) == [1, 2, 3]
    assert [v.name for v in tf.trainable_variables()] == ["rnn/sum/w:0"]


@pytest.mark.parametrize("dynamic", [True, False])
def test_cell_with_build(dynamic: bool) -> None:
    cell = OfLayers(2, name="mine")
    assert unrolled(tf.nn.rnn_cell.MultiRNNCell([cell]), dynamic) == [2, 4, 6]
    assert [v.name for v in cell.trainable_weights] == ["rnn/multi_rnn_cell/cell_0/mine/kernel:0"]
    assert cell.built and cell.name == "mine" and cell.count_params() == 4


def test_cell_with_its_own_way_to_be_called() -> None:
    class Old(tf.nn.rnn_cell.RNNCell):
        state_size = output_size = 2

        def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
            with tf.variable_scope(scope or type(self).__name__):
                weight = tf.get_variable("w", [], initializer=tf.ones_initializer())
                return inputs * weight + state, inputs * weight + state

    assert unrolled(Old(), True) == [1, 2, 3]
    assert [v.name for v in tf.trainable_variables()] == ["rnn/Old/w:0"]


def test_cell_of_ours_with_call_of_its_own() -> None:
    class Halved(tf.nn.rnn_cell.BasicRNNCell):
        def call(self, inputs: Any, state: Any) -> Any:
            output, state = super().call(inputs, state)
            return output / 2, state

    ours, own = tf.nn.rnn_cell.BasicRNNCell(2, name="same"), Halved(2, name="same", reuse=tf.AUTO_REUSE)
    assert isinstance(ours, tf.nn.rnn_cell.RNNCell) and own._num_units == 2
    with tf.variable_scope("a", reuse=tf.AUTO_REUSE), tf.Session() as sess:
        there, here = [cell(tf.ones([1, 2]), cell.zero_state(1, tf.float32), "s")[0] for cell in (ours, own)]
        sess.run(tf.global_variables_initializer())
        np.testing.assert_allclose(sess.run(there), 2 * sess.run(here))
    assert own.weights == ours.weights and len(own.trainable_variables) == 2


def test_layer_of_ones_own() -> None:
    class Scale(tf.layers.Layer):
        def build(self, input_shape: Any) -> None:
            self.scale = self.add_variable("scale", [input_shape[-1]], initializer=tf.ones_initializer())
            self.count = self.add_weight("count", [], trainable=False, initializer=tf.zeros_initializer())
            self.built = True

        def call(self, inputs: Any, shift: float = 0.0) -> Any:
            self.add_update(tf.assign_add(self.count, 1.0))
            return inputs * self.scale + shift

    layer = Scale()
    with pytest.raises(ValueError, match="has not been used yet"):
        _ = layer.scope_name
    y, z = layer(tf.constant([[1.0, 2.0]])), layer.apply(tf.constant([[3.0, 4.0]]), shift=1.0)
    Scale()(y)
    assert [v.op.name for v in tf.global_variables()] == [
        f"{scope}/{name}" for scope in ("scale", "scale_1") for name in ("scale", "count")
    ]
    assert layer.weights == [layer.scale, layer.count] and layer.non_trainable_weights == [layer.count]
    assert len(tf.get_collection(tf.GraphKeys.UPDATE_OPS)) == 3 and len(layer.updates) == 2
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert sess.run([y, z])[1].tolist() == [[4, 5]]
    with pytest.raises(TypeError, match="not understood"):
        tf.layers.Layer(unknown=1)


def test_initializer_of_ones_own() -> None:
    class Doubled(tf.ones_initializer):
        def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
            return super().__call__(shape, dtype, partition_info) * 2

    made = [tf.get_variable(f"v{i}", [2], initializer=one) for i, one in enumerate((Doubled, Doubled()))]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert [value.tolist() for value in sess.run(made)] == [[2, 2], [2, 2]]
