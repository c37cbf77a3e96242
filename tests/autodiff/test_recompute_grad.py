"""`recompute_grad`: what is computed again, how much memory that saves, and that gradients are the same."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aexec
import aexec.compat.v1 as tf
from aexec import ops
from aexec.framework.op_contract.gradient_registry import global_registry

_calls: list[int] = []
START = np.array([1.5, 0.5])
FEEDS = (np.array([0.3, -0.4]), np.array([-0.3, 0.4]))


@aexec.op("CountedSin(x: double) -> y: double", gradient=lambda op, grad: grad * ops.cos(op.inputs[0]))
def counted_sin(x: np.ndarray) -> Any:
    _calls.append(1)
    return np.sin(x)


@pytest.fixture(autouse=True)
def no_calls_yet() -> None:
    _calls.clear()


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _with_own_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a gradient of its own."""
    return aexec.custom_gradient(lambda x: (function(x), lambda upstream: upstream * x))


def _dropped(x: Any) -> Any:
    return x * ops.cast(ops.random_uniform([2], dtype="float32", seed=5, seed2=2), DstT="float64")


# A function of tensors x, w and a variable v, and where it is called.
PROGRAMS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "twice": lambda wrap, x, w, v: wrap(lambda a: ops.exp(counted_sin(a * v)))(wrap(lambda a: ops.tanh(a * v + w))(x)),
    "random": lambda wrap, x, w, v: wrap(lambda a: _dropped(ops.tanh(a * v)))(x),
    "conditional inside": lambda wrap, x, w, v: wrap(
        lambda a: aexec.cond(ops.greater(a[0], 0.0), lambda: ops.tanh(a * v), lambda: ops.sin(a) + w)
    )(x),
    "random inside a conditional": lambda wrap, x, w, v: wrap(
        lambda a: aexec.cond(ops.greater(a[0], 0.0), lambda: _dropped(ops.tanh(a * v)), lambda: ops.sin(a) + w)
    )(x),
    "loop inside": lambda wrap, x, w, v: wrap(
        lambda a: aexec.while_loop(lambda i, _: i < 3, lambda i, b: (i + 1, ops.sin(b * v) + 1.0), (0, a))[1]
    )(x),
    "map inside": lambda wrap, x, w, v: wrap(lambda a: aexec.map_fn(lambda b: ops.sin(b) * b, a * v))(x),
    "in a conditional": lambda wrap, x, w, v: aexec.cond(
        ops.greater(x[0], 0.0), lambda: wrap(lambda a: ops.tanh(a * v) + w)(x), lambda: x
    ),
    "in a functional conditional": lambda wrap, x, w, v: aexec.cond(
        ops.greater(x[0], 0.0), lambda: wrap(lambda a: ops.tanh(a * v) + w)(x), lambda: x, functional=True
    ),
    "in a loop": lambda wrap, x, w, v: aexec.while_loop(
        lambda i, _: i < 2, lambda i, a: (i + 1, wrap(lambda b: ops.tanh(b * v + w))(a)), (0, x)
    )[1],
    "in a functional loop": lambda wrap, x, w, v: aexec.while_loop(
        lambda i, _: i < 2, lambda i, a: (i + 1, wrap(lambda b: ops.tanh(b * v + w))(a)), (0, x), functional=True
    )[1],
    "in a function": lambda wrap, x, w, v: aexec.function(lambda a: wrap(lambda b: ops.tanh(b * v + w))(a) * a)(x),
}


@pytest.mark.parametrize("resource", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
async def test_gradients_are_those_of_the_function(name: str, resource: bool) -> None:
    found = []
    for wrap in (_plain, aexec.recompute_grad):
        with aexec.Graph() as graph:
            v = aexec.Variable(START, use_resource=resource)
            init = aexec.global_variables_initializer()
            x = aexec.placeholder("float64", [2])
            y = PROGRAMS[name](wrap, x, ops.sin(x), v)
            first = [ops.identity(grad) for grad in aexec.gradients(y, [x, v])]
            second = aexec.gradients([ops.sum(grad, [0]) for grad in first], [x, v])
        async with aexec.Session(graph) as session:
            await session.run(init)
            found.append([await session.run([y, *first, *second], {x: value}) for value in FEEDS])
    for plain, again in zip(*found, strict=True):
        for one, other in zip(plain, again, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize(("wrap", "expected"), [(_plain, 3), (aexec.recompute_grad, 6)])
async def test_function_runs_again_for_its_gradient(wrap: Callable[..., Any], expected: int) -> None:
    with aexec.Graph() as graph:
        x = y = aexec.placeholder("float64", [2])
        for _ in range(3):
            y = wrap(lambda h: ops.exp(counted_sin(h)))(y)
        grad = aexec.gradients(y, x)[0]
    async with aexec.Session(graph) as session:
        for _ in range(4):
            await session.run([y, grad], {x: FEEDS[0]})
            assert len(_calls) == expected
            _calls.clear()
        await session.run(y, {x: FEEDS[0]})
    assert len(_calls) == 3


async def test_intermediate_values_are_not_kept_in_memory() -> None:
    """Of eight times eight layers: the results of the eight, and what one of them needs."""
    sizes = []
    for wrap in (_plain, aexec.recompute_grad):
        with aexec.Graph() as graph:
            v = aexec.Variable(1.01, use_resource=True)
            x = h = aexec.placeholder("float32", [None])

            def layers(h: Any, v: Any = v) -> Any:
                for _ in range(8):
                    h = ops.tanh(h * v)
                return h

            for _ in range(8):
                h = wrap(layers)(h)
            grad = aexec.gradients(ops.sum(h, [0]), v)[0]
            init = aexec.global_variables_initializer()
        metadata = aexec.RunMetadata()
        async with aexec.Session(graph) as session:
            await session.run(init)
            feeds = {x: np.ones(50_000, np.float32)}
            await session.run(grad, feeds, options=aexec.RunOptions(trace=True), metadata=metadata)
        sizes.append(metadata.peak_bytes / 200_000)
    without, with_it = sizes
    assert without > 64
    assert with_it < 8 + 8 + 4


def test_variables_made_inside_are_made_once() -> None:
    def net(x: Any) -> Any:
        return tf.layers.dense(x, 4, activation=tf.tanh, name="dense")

    tf.reset_default_graph()
    with tf.variable_scope("scope", use_resource=True):
        x = tf.placeholder(tf.float32, [None, 3])
        y = tf.recompute_grad(net)(x)
    grads = tf.gradients(y, [x, *tf.trainable_variables()])
    assert [variable.name for variable in tf.trainable_variables()] == ["scope/dense/kernel:0", "scope/dense/bias:0"]
    assert [grad.shape.as_list() for grad in grads] == [[None, 3], [3, 4], [4]]


@pytest.mark.parametrize("wrap", [aexec.recompute_grad, _with_own_gradient], ids=["recompute", "custom"])
@pytest.mark.parametrize("in_function", [False, True])
def test_graph_is_freed_with_its_gradients(wrap: Callable[..., Any], in_function: bool) -> None:
    def build() -> weakref.ref[aexec.Graph]:
        with aexec.Graph() as graph:
            x = aexec.placeholder("float64", [2])
            layer = wrap(lambda h: ops.tanh(h))
            aexec.gradients(aexec.function(layer)(x) if in_function else layer(x), x)
        return weakref.ref(graph)

    build()  # what is imported and kept at the first use
    gc.collect()
    names = set(global_registry._functions)
    graph = build()
    gc.collect()
    assert graph() is None
    assert set(global_registry._functions) == names and not global_registry._weak


async def test_gradient_of_an_imported_graph_flows_through_the_nodes() -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float64", [2], name="x")
        ops.identity(aexec.recompute_grad(lambda h: ops.exp(ops.sin(h)))(x), name="y")
    with aexec.Graph.from_graph_def(graph.to_graph_def()) as copy:
        x, y = copy.get_tensor_by_name("x:0"), copy.get_tensor_by_name("y:0")
        (grad,) = aexec.gradients(y, [x])
    async with aexec.Session(copy) as session:
        found = await session.run(grad, {x: FEEDS[0]})
    np.testing.assert_allclose(found, np.exp(np.sin(FEEDS[0])) * np.cos(FEEDS[0]))
