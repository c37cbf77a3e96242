"""Random graphs of elementwise ops, and of ops that share or keep memory between them: views, branches, stacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

import aexec

__all__ = ["Node", "build", "node", "numbers"]

ops = aexec.ops

# The kind of a node, and which of the last few values it takes.
Node = tuple[str, int, int]
Shape = tuple[int, int]


def numbers(seed: int, shape: tuple[int, ...]) -> Any:
    """Return standard normal numbers, the same for the same seed."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


# Kinds of nodes with one input, and with two.
ONE: dict[str, Callable[[Any, Any], Any]] = {
    "Relu": lambda x, _: ops.relu(x),
    "Elu": lambda x, _: ops.elu(x),
    "Tanh": lambda x, _: ops.tanh(x),
    "Neg": lambda x, _: ops.neg(x),
    "Softmax": lambda x, _: ops.softmax(x),
    "BiasAdd": lambda x, v: ops.bias_add(x, v["bias"]),
    "plus a constant": lambda x, v: x + v["constant"],
    "minus a variable": lambda x, v: x - ops.read_variable_op(v["handle"], dtype="float32"),
    "times a column": lambda x, v: x * v["column"],
    "Identity": lambda x, _: ops.identity(x),
    "StopGradient": lambda x, _: ops.stop_gradient(x),
    "Reshape": lambda x, v: ops.reshape(ops.tanh(ops.reshape(x, [-1])), v["shape"]),
    "Squeeze": lambda x, _: ops.squeeze(ops.sigmoid(ops.expand_dims(x, 0)), squeeze_dims=[0]),
    "a slice": lambda x, _: ops.concat_v2([ops.abs(x[:1]), x[1:]], 0),
    "Transpose": lambda x, _: ops.transpose(ops.square(ops.transpose(x, [1, 0])), [1, 0]),
    "Switch": lambda x, v: ops.merge([ops.exp(y) if i else ops.neg(y) for i, y in enumerate(switched(x, v))])[0],
    "a stack": lambda x, v: pushed_and_popped(x),
}
TWO: dict[str, Callable[[Any, Any], Any]] = {
    "AddV2": lambda x, y: x + y,
    "Sub": lambda x, y: x - y,
    "Mul": lambda x, y: x * y,
    "Maximum": lambda x, y: ops.maximum(x, y),
    "AddN": lambda x, y: ops.add_n([x, y, x]),
    "SquaredDifference": lambda x, y: ops.squared_difference(x, y),
}


def switched(x: Any, values: Any) -> Any:
    return ops.switch(x, values["predicate"])


def pushed_and_popped(x: Any) -> Any:
    stack = ops.stack_v2(4, elem_type="float32")
    with aexec.control_dependencies([ops.stack_push_v2(stack, x)]):
        changed = ops.tanh(x)
    with aexec.control_dependencies([changed]):
        return changed + ops.stack_pop_v2(stack, elem_type="float32")


node = st.tuples(st.sampled_from([*ONE, *TWO]), st.integers(0, 3), st.integers(0, 3))


def build(nodes: list[Node], shape: Shape, *, declared: Any = None) -> tuple[aexec.Graph, list[str]]:
    """Return a graph of these nodes, and the names of all values.

    It is fed with `x0:0` and `x1:0`, of the shape, and `p:0`, a bool; its variable is initialised by `init`.

    Args:
        declared: shape of the placeholders, if it differs.
    """
    rows, columns = shape
    with aexec.Graph() as graph:
        values = [aexec.placeholder("float32", declared or shape, name=f"x{i}") for i in range(2)]
        handle = ops.var_handle_op(dtype="float32", shape=shape, shared_name="v")
        ops.assign_variable_op(handle, numbers(7, shape), name="init")
        shared = {
            "bias": aexec.constant(numbers(8, (columns,))),
            "column": aexec.constant(numbers(9, (rows, 1))),
            "constant": aexec.constant(numbers(10, shape)),
            "predicate": aexec.placeholder("bool", [], name="p"),
            "handle": handle,
            "shape": list(shape),
        }
        for op, first, second in nodes:
            x, y = values[-1 - first % len(values)], values[-1 - second % len(values)]
            values.append(ONE[op](x, shared) if op in ONE else TWO[op](x, y))
    return graph, [value.name for value in values]
