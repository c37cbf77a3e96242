"""Names of nodes that formulas and literals make: those of TensorFlow 2.21, in the order in which it makes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec
from aexec import ops
from aexec.client import data_flow
from aexec.framework import errors

MATRIX = np.eye(2, dtype=np.float32)


def names(formula: str) -> list[str]:
    """`name op` of the nodes that a formula of x (float32 [2, 2]), i (int32 []), b (bool []) and s (string []) adds."""
    with aexec.Graph() as graph:
        given = {
            "x": aexec.placeholder("float32", [2, 2], name="x"),
            "i": aexec.placeholder("int32", [], name="i"),
            "b": aexec.placeholder("bool", [], name="b"),
            "s": aexec.placeholder("string", [], name="s"),
        }
        eval(formula, {"ops": ops, "m": MATRIX, **given})
        return [f"{node.name} {node.op}" for node in graph.nodes[len(given) :]]


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("x + 0.5", "add/y Const, add AddV2"),
        ("0.5 + x", "add/x Const, add AddV2"),
        ("x - 1", "sub/y Const, sub Sub"),
        ("1 - x", "sub/x Const, sub Sub"),
        ("x * 2", "mul/y Const, mul Mul"),
        ("2 * x", "mul/x Const, mul Mul"),
        ("x / 2", "truediv/y Const, truediv RealDiv"),
        ("2 / x", "truediv/x Const, truediv RealDiv"),
        ("i / 2", "truediv/y Const, truediv/Cast Cast, truediv/Cast_1 Cast, truediv RealDiv"),
        ("2 / i", "truediv/x Const, truediv/Cast Cast, truediv/Cast_1 Cast, truediv RealDiv"),
        ("x // 2", "floordiv/y Const, floordiv FloorDiv"),
        ("2 // x", "floordiv/x Const, floordiv FloorDiv"),
        ("x % 2", "mod/y Const, mod FloorMod"),
        ("2 % x", "mod/x Const, mod FloorMod"),
        ("x ** 2", "pow/y Const, pow Pow"),
        ("2 ** x", "pow/x Const, pow Pow"),
        ("x @ x", "matmul MatMul"),
        ("x @ m", "matmul/b Const, matmul MatMul"),
        ("m.tolist() @ x", "matmul/x Const, matmul MatMul"),
        ("x < 1", "Less/y Const, Less Less"),
        ("1 > x", "Less/y Const, Less Less"),
        ("x >= 1", "GreaterEqual/y Const, GreaterEqual GreaterEqual"),
        ("-x", "Neg Neg"),
        ("abs(x)", "Abs Abs"),
        ("b & True", "and/y Const, and LogicalAnd"),
        ("True & b", "and/x Const, and LogicalAnd"),
        ("b | False", "or/y Const, or LogicalOr"),
        ("~b", "LogicalNot LogicalNot"),
        ("s + 'a'", "add/y Const, add Add"),
        ("'a' + s", "add/x Const, add Add"),
        ("x + 1 + 2", "add/y Const, add AddV2, add_1/y Const, add_1 AddV2"),
        (
            "x[0, 1:]",
            "strided_slice/stack Const, strided_slice/stack_1 Const, strided_slice/stack_2 Const, "
            "strided_slice StridedSlice",
        ),
        (
            "x[i, 0]",
            "add/y Const, add AddV2, strided_slice/stack/1 Const, strided_slice/stack Pack, "
            "strided_slice/stack_1/1 Const, strided_slice/stack_1 Pack, strided_slice/stack_2 Const, "
            "strided_slice StridedSlice",
        ),
        ("ops.softmax(x + 0.5, name='y')", "add/y Const, add AddV2, y Softmax"),
        ("ops.maximum(x, 1.0)", "Maximum/y Const, Maximum Maximum"),
        ("ops.maximum(x, 1.0, name='m')", "m/y Const, m Maximum"),
        ("ops.maximum(x, 1.0, name='m/')", "m/y Const, m Maximum"),
        ("ops.concat_v2([x, m], 0)", "ConcatV2/values_1 Const, ConcatV2/axis Const, ConcatV2 ConcatV2"),
        ("ops.assert_(b, [x, 'hello'])", "Assert/data_1 Const, Assert Assert"),
        ("ops.pack([1.0, 2.0])", "Pack/values_0 Const, Pack/values_1 Const, Pack Pack"),
        ("ops.sum(x, [0])", "Sum/reduction_indices Const, Sum Sum"),
        ("ops.identity_n([1.0, x])", "IdentityN/input_0 Const, IdentityN IdentityN"),
        ("ops.fill([2], 1.0)", "Fill/dims Const, Fill/value Const, Fill Fill"),
    ],
)
def test_node_names_are_those_of_tensorflow(formula: str, expected: str) -> None:
    assert ", ".join(names(formula)) == expected


def test_within_a_scope() -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [], name="x")
        with aexec.name_scope("outer"):
            for _ in range(2):
                x + 1.0
                ops.maximum(x, 1.0, name="m")
    assert [node.name for node in graph.nodes[1:]] == [
        *["outer/add/y", "outer/add", "outer/m/y", "outer/m"],
        *["outer/add_1/y", "outer/add_1", "outer/m_1/y", "outer/m_1"],
    ]


def test_node_names_of_a_queue() -> None:
    with aexec.Graph() as graph:
        queue = data_flow.fifo_queue(3, ["float32", "int32"], name="q")
        queue.enqueue([1.0, 2])
        queue.enqueue_many([[1.0], [2]])
        queue.dequeue_many(2)
        queue.enqueue([1.0, 2])
    assert [node.name for node in graph.nodes] == [
        *["q", "q_enqueue/component_0", "q_enqueue/component_1", "q_enqueue"],
        *["q_EnqueueMany/component_0", "q_EnqueueMany/component_1", "q_EnqueueMany"],
        *["q_DequeueMany/n", "q_DequeueMany"],
        *["q_enqueue_1/component_0", "q_enqueue_1/component_1", "q_enqueue_1"],
    ]


def test_constants_are_in_the_scopes_of_their_node() -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [], name="x")
        first = ops.no_op(name="first")
        with aexec.device("/device:CPU:0"), aexec.control_dependencies([first]):
            x + 1.0
    literal, formula = graph.node("add/y"), graph.node("add")
    assert literal.device == formula.device == "/device:CPU:0"
    assert literal.control_inputs == (first.id,)


@pytest.mark.parametrize("formula", ["0.5 + x", "ops.maximum(0.5, x)", "ops.pack([1, x])", "ops.select_v2(True, 1, x)"])
def test_literal_takes_the_type_of_the_tensors_beside_it(formula: str) -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float64", [], name="x")
        eval(formula, {"ops": ops, "x": x})
    assert graph.nodes[-1].output(0).dtype == aexec.framework.dtypes.float64


@pytest.mark.parametrize("value", ["text", [1, [2]], 1j, None])
def test_refused_literal_uses_up_no_name(value: Any) -> None:
    """So that a corrected call gives the node the name that was asked for."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [], name="x")
        with pytest.raises(errors.InvalidArgumentError, match="Input 'y' of Maximum: cannot make a constant"):
            ops.maximum(x, value, name="y")
        assert len(graph) == 1
        assert ops.maximum(x, 1.0, name="y").name == "y:0"


def test_node_for_another_graph_takes_its_literals_along() -> None:
    from aexec.graph.op_functions import create_node

    with aexec.Graph() as other:
        x = aexec.placeholder("float32", [], name="x")
    with aexec.Graph() as current:
        create_node("Maximum", {"x": x, "y": 1.0}, {}, graph=other)
    assert [node.name for node in other.nodes] == ["x", "Maximum/y", "Maximum"]
    assert not len(current)
