"""Optimisers: TensorFlow's values after the same steps, in both forms of variables, of whole gradients and of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import ops, training
from aexec.framework import errors
from aexec.framework.indexed_slices import IndexedSlices
from aexec.graph.collections import GraphKeys

MAKERS: dict[str, Callable[[Any], training.Optimizer]] = {
    "GradientDescent": lambda step: training.GradientDescentOptimizer(0.1),
    "Momentum": lambda step: training.MomentumOptimizer(0.1, 0.9),
    "Nesterov": lambda step: training.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "Adagrad": lambda step: training.AdagradOptimizer(0.1),
    "Adadelta": lambda step: training.AdadeltaOptimizer(1.0),
    "Adam": lambda step: training.AdamOptimizer(0.1),
    "RMSProp": lambda step: training.RMSPropOptimizer(0.05, momentum=0.5),
    "Centered": lambda step: training.RMSPropOptimizer(0.05, momentum=0.5, centered=True),
    "Ftrl": lambda step: training.FtrlOptimizer(0.1, l1_regularization_strength=0.01, l2_regularization_strength=0.01),
    "FtrlV2": lambda step: training.FtrlOptimizer(0.1, l2_shrinkage_regularization_strength=0.1),
    "ProximalGradientDescent": lambda step: training.ProximalGradientDescentOptimizer(0.1, 0.01, 0.01),
    "ProximalAdagrad": lambda step: training.ProximalAdagradOptimizer(0.1, 0.1, 0.01, 0.01),
    "AdagradDA": lambda step: training.AdagradDAOptimizer(0.1, step, l1=0.01, l2=0.01),
}

# Of TensorFlow 2.21 after 12 steps: of the whole, and of rows.
RECORDED = {
    "GradientDescent": (
        [0.034359735, 0.17651848, 0.0016325862, 0.060129534, 0.06871947, 0.07730941, 0.6754501, 0.09448927],
        [8.3886025e-06, 1.0485753e-05, 0.75, 0.875, 0.28242952, 0.3177333, 1.25, 1.375],
    ),
    "Momentum": (
        [0.21413824, -0.249841, -0.1245565, 0.3747419, 0.42827648, 0.481811, -0.5622098, 0.5888802],
        [-0.2135503, -0.2669379, 0.75, 0.875, -0.39974555, -0.4497139, 1.25, 1.375],
    ),
    "Nesterov": (
        [0.06850188, -0.120920725, -0.018705085, 0.11987831, 0.13700376, 0.15412925, -0.42345926, 0.18838021],
        [0.00073370663, 0.0009171332, 0.75, 0.875, -0.1934731, -0.21765733, 1.25, 1.375],
    ),
    "Adagrad": (
        [0.10293743, 0.2029875, 0.28867093, 0.39940763, 0.5121158, 0.6278264, 0.7655294, 0.8647841],
        [0.09791028, 0.1866884, 0.75, 0.875, 0.51847565, 0.63304377, 1.25, 1.375],
    ),
    "Adadelta": (
        [0.49446088, 0.6194568, 0.7444541, 0.86945206, 0.99445057, 1.1194495, 1.2444487, 1.3694478],
        [0.49446088, 0.6194568, 0.75, 0.875, 0.99445057, 1.1194495, 1.25, 1.375],
    ),
    "Adam": (
        [-0.19411293, -0.22631887, -0.20292017, -0.14229389, -0.058936402, 0.03806127, 0.1434267, 0.25411826],
        [-0.19411291, -0.22631893, 0.75, 0.875, -0.058936186, 0.038061254, 1.25, 1.375],
    ),
    "RMSProp": (
        [-0.000972501, 0.11245185, -0.011866944, 0.041327298, 0.071685106, 0.11132442, 0.5979501, 0.21753961],
        [0.0043519456, -0.0026840707, 0.75, 0.875, 0.23064977, 0.28129956, 1.25, 1.375],
    ),
    "Centered": (
        [-0.0044764415, 0.10138668, -0.012619423, 0.015054928, 0.030950498, 0.052870728, 0.5668205, 0.11643334],
        [0.0059898766, 0.0013037669, 0.75, 0.875, 0.19134884, 0.22861521, 1.25, 1.375],
    ),
    "Ftrl": (
        [0.041940145, 0.060723726, 0.23329978, 0.28316304, 0.38773316, 0.4976287, 0.3201088, 0.7270073],
        [0.073373035, 0.15418826, 0.75, 0.875, 0.2888922, 0.3882589, 1.25, 1.375],
    ),
    "FtrlV2": (
        [0.031590834, 0.03936603, 0.21839918, 0.25261098, 0.35335183, 0.46035492, 0.2240732, 0.6857369],
        [0.067597434, 0.145709, 0.75, 0.875, 0.23335707, 0.3250324, 1.25, 1.375],
    ),
    "ProximalGradientDescent": (
        [0.029312762, 0.1672759, 0, 0.054775316, 0.063262835, 0.07175035, 0.6582579, 0.0887254],
        [0, 0, 0.75, 0.875, 0.2719243, 0.30680695, 1.25, 1.375],
    ),
    "ProximalAdagrad": (
        [0.09740997, 0.19265737, 0.28611255, 0.39455533, 0.50746465, 0.6233469, 0.74893963, 0.8605747],
        [0.09604367, 0.1848934, 0.75, 0.875, 0.5093089, 0.6241893, 1.25, 1.375],
    ),
    "AdagradDA": (
        [
            -0.0051681413,
            -0.008232903,
            -0.018865954,
            -0.022645624,
            -0.027735835,
            -0.032338522,
            -0.027403155,
            -0.040208228,
        ],
        [-0.0076069017, -0.013590308, 0.75, 0.875, -0.024512498, -0.029144898, 1.25, 1.375],
    ),
}

WHOLE = [[1.0, 0.5], [2.0, 1.0], [1.0, 1.0], [0.25, 1.0]]
ROWS = [[1.0], [0.5], [2.0]]


def weights(use_resource: bool) -> aexec.Variable:
    return aexec.Variable(np.arange(8, dtype=np.float32).reshape(4, 2) / 8 + 0.5, name="w", use_resource=use_resource)


def loss_of(w: aexec.Variable, rows: bool) -> aexec.Tensor:
    if not rows:
        return ops.sum(w * w * WHOLE, [0, 1])
    x = w.sparse_read([0, 2, 0])
    return ops.sum(x * x * ROWS, [0, 1])


async def trained(make: Callable[[Any], training.Optimizer], use_resource: bool, rows: bool, steps: int = 12) -> Any:
    with aexec.Graph() as graph:
        w = weights(use_resource)
        step = aexec.Variable(np.int64(0), name="step", trainable=False, use_resource=use_resource)
        train = make(step).minimize(loss_of(w, rows), global_step=step)
        init = aexec.global_variables_initializer()
        missing = aexec.report_uninitialized_variables()
    async with aexec.Session(graph) as session:
        await session.run(init)
        assert not (await session.run(missing)).size
        for _ in range(steps):
            await session.run(train)
        value, count = await session.run([w, step])
        assert count == steps
        return value


@pytest.mark.parametrize("rows", [False, True], ids=["whole", "rows"])
@pytest.mark.parametrize("use_resource", [False, True], ids=["reference", "resource"])
@pytest.mark.parametrize("name", MAKERS)
async def test_values_are_those_of_tensorflow(name: str, use_resource: bool, rows: bool) -> None:
    value = await trained(MAKERS[name], use_resource, rows)
    np.testing.assert_allclose(value.ravel(), RECORDED[name][rows], rtol=2e-6, atol=2e-7)


def adam_by_numpy(w: Any, gradient: Callable[[Any], Any], steps: int, change: Callable[..., Any]) -> Any:
    """Adam's averages, and what a variant of it makes of them."""
    m, s, most = np.zeros_like(w), np.zeros_like(w), np.zeros_like(w)
    for t in range(1, steps + 1):
        g = gradient(w)
        m, s = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g * g
        most = np.maximum(most, s)
        w = change(w, m, s, most, t)
    return w


def amsgrad(w: Any, m: Any, s: Any, most: Any, t: int) -> Any:
    return w - 0.1 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (np.sqrt(most) + 1e-8)


def adamw(w: Any, m: Any, s: Any, most: Any, t: int) -> Any:
    return w - 0.01 * w - 0.1 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (np.sqrt(s) + 1e-8)


def lamb(w: Any, m: Any, s: Any, most: Any, t: int) -> Any:
    step = m / (1 - 0.9**t) / (np.sqrt(s / (1 - 0.999**t)) + 1e-6) + 0.01 * w
    return w - np.linalg.norm(w) / np.linalg.norm(step) * 0.1 * step


@pytest.mark.parametrize(
    ("make", "change", "forms"),
    [
        (lambda step: training.AdamOptimizer(0.1, amsgrad=True), amsgrad, [True]),
        (lambda step: training.AdamWOptimizer(0.01, 0.1), adamw, [False, True]),
        (lambda step: training.LambOptimizer(0.1, weight_decay=0.01), lamb, [False, True]),
    ],
    ids=["amsgrad", "adamw", "lamb"],
)
async def test_variants_of_adam(make: Any, change: Any, forms: list[bool]) -> None:
    start = np.arange(8).reshape(4, 2) / 8 + 0.5
    expected = adam_by_numpy(start, lambda w: 2 * w * np.array(WHOLE), 12, change)
    for use_resource in forms:
        np.testing.assert_allclose(await trained(make, use_resource, rows=False), expected, rtol=1e-4, atol=1e-5)


async def test_variants_of_adam_with_gradients_of_rows() -> None:
    def gradient(w: Any) -> Any:
        g = np.zeros_like(w)
        np.add.at(g, [0, 2, 0], 2 * w[[0, 2, 0]] * np.array(ROWS))
        return g

    start = np.arange(8).reshape(4, 2) / 8 + 0.5
    variants: list[tuple[Any, Any]] = [
        (lambda step: training.AdamWOptimizer(0.01, 0.1), adamw),
        (lambda step: training.LambOptimizer(0.1, weight_decay=0.01), lamb),
    ]
    for make, change in variants:
        expected = adam_by_numpy(start, gradient, 12, change)
        np.testing.assert_allclose(await trained(make, False, rows=True), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(errors.InvalidArgumentError, match="no gradients of rows, which 'w:0' has"):
        await trained(lambda step: training.AdamOptimizer(0.1, amsgrad=True), True, rows=True)
    with pytest.raises(errors.InvalidArgumentError, match="'w:0' is in reference form: see use_resource"):
        await trained(lambda step: training.AdamOptimizer(0.1, amsgrad=True), False, rows=False)


def test_nodes_and_slots_are_called_as_tensorflow_calls_them() -> None:
    with aexec.Graph() as graph:
        w = weights(use_resource=False)
        step = aexec.Variable(np.int64(0), name="step", trainable=False)
        adam = training.AdamOptimizer(0.1)
        train = adam.minimize(loss_of(w, False), global_step=step)
        assert aexec.get_collection(GraphKeys.TRAIN_OP) == [train]
        assert [v.name for v in aexec.global_variables()] == [
            *("w:0", "step:0", "beta1_power:0", "beta2_power:0", "w/Adam:0", "w/Adam_1:0")
        ]
        assert aexec.trainable_variables() == [w]
    assert (train.name, train.op) == ("Adam", "AssignAdd")
    made = [node.name for node in graph if node.name.startswith("Adam/")]
    assert made == [
        *("Adam/learning_rate", "Adam/beta1", "Adam/beta2", "Adam/epsilon", "Adam/update_w/ApplyAdam"),
        *("Adam/mul", "Adam/Assign", "Adam/mul_1", "Adam/Assign_1", "Adam/update", "Adam/value"),
    ]
    assert graph.node("Adam/update_w/ApplyAdam").colocation_groups == ["w"]
    assert graph.node("w/Adam/Initializer/zeros").colocation_groups == ["w"]
    assert adam.slot_names == ["m", "v"] and adam.slot(w, "v").name == "w/Adam_1:0"
    assert [v.name for v in adam.variables()] == ["beta1_power:0", "beta2_power:0", "w/Adam:0", "w/Adam_1:0"]
    assert repr(adam) == "<AdamOptimizer 'Adam' learning_rate=0.1, beta1=0.9, beta2=0.999, epsilon=1e-08>"
    with pytest.raises(errors.NotFoundError, match=r"keeps no 'momentum' for w:0; it has slots \['m', 'v'\]"):
        adam.slot(w, "momentum")


async def test_constraint_is_applied_after_the_step() -> None:
    for use_resource in (False, True):
        with aexec.Graph() as graph:
            w = aexec.Variable([1.0, -1.0], constraint=lambda v: ops.maximum(v, 0.0), use_resource=use_resource)
            train = training.GradientDescentOptimizer(1.0).minimize(ops.sum(w, [0]))
            init = aexec.global_variables_initializer()
        async with aexec.Session(graph) as session:
            await session.run(init)
            await session.run(train)
            assert (await session.run(w)).tolist() == [0.0, 0.0]
        with graph:
            rows = IndexedSlices(aexec.constant([1.0]), aexec.constant([0]))
        with graph, pytest.raises(errors.InvalidArgumentError, match="Cannot use a constraint function on a sparse"):
            training.GradientDescentOptimizer(1.0).apply_gradients([(rows, w)])


@pytest.mark.parametrize("gate", ["none", "op", "graph"])
async def test_gates(gate: Any) -> None:
    with aexec.Graph() as graph:
        a, b = aexec.Variable(3.0), aexec.Variable([[2.0], [5.0]])
        unused = aexec.Variable(1.0)
        sgd = training.GradientDescentOptimizer(0.5)
        pairs = sgd.compute_gradients(a * ops.sum(b.sparse_read([1]), [0, 1]), gate_gradients=gate)
        train = sgd.apply_gradients(pairs)
        init = aexec.global_variables_initializer()
    assert pairs[2] == (None, unused)
    async with aexec.Session(graph) as session:
        await session.run(init)
        await session.run(train)
        assert await session.run(a) == 0.5
        assert (await session.run(b)).ravel().tolist() == [2.0, 3.5]


def test_invalid_optimisations_are_refused() -> None:
    sgd = training.GradientDescentOptimizer(0.5)
    with aexec.Graph():
        with pytest.raises(errors.InvalidArgumentError, match=r"No variables to optimize\."):
            sgd.minimize(aexec.constant(1.0))
        v = aexec.Variable(1.0, name="v")
        whole = aexec.Variable(1, name="i")
        sgd.minimize(v * 1.0)  # which does not depend on the other one
        z = aexec.Variable(np.complex64(1j), name="z")
        with pytest.raises(errors.InvalidArgumentError, match="Invalid type complex64 for z:0, expected: half, bfloat"):
            sgd.minimize(abs(z))
        with pytest.raises(errors.InvalidArgumentError, match="No gradients provided for any variable, check"):
            sgd.minimize(aexec.constant(1.0), [v])
        with pytest.raises(errors.InvalidArgumentError, match="No gradients provided for any variable: "):
            sgd.apply_gradients([(None, v)])
        with pytest.raises(errors.InvalidArgumentError, match="gate_gradients must be one of"):
            sgd.compute_gradients(v * 1.0, [v], gate_gradients="all")  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidArgumentError, match="l1_regularization_strength cannot be negative, got -1"):
            training.FtrlOptimizer(0.1, l1_regularization_strength=-1.0)
        with pytest.raises(errors.InvalidArgumentError, match="learning_rate_power cannot be positive"):
            training.FtrlOptimizer(0.1, learning_rate_power=1.0)
    assert whole.dtype is aexec.int32
