"""Small graphs whose planning takes long, or much memory; each in any size.

    bomb = BOMBS["function fan"]
    graph_def, request = bomb(100)      # request: the fields of a run

A larger size gives a larger graph; all are small compared with the cost of planning them without limits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aexec import proto
from aexec.framework import dtypes
from aexec.framework.dtypes import DType, float32, int32, int64, string
from aexec.framework.wire import attr_value
from aexec.framework.wire.attr_value import NameAttrList, Placeholder
from tests.support.programs.functions import function_def
from tests.support.programs.graphs import GraphBuilder

__all__ = ["BOMBS", "Bomb", "chain_of", "constant", "random_bomb"]

Request = dict[str, Any]
# size → a graph and the fields of a run of it.
Bomb = Callable[[int], tuple[proto.GraphDef, Request]]

_F = {"T": float32}


def _request(*fetches: str, **feeds: Any) -> Request:
    return {"fetches": list(fetches), "feeds": feeds}


def chain_of(op: str, length: int, **attrs: Any) -> proto.GraphDef:
    """Return `x` and a chain of `length` nodes after it: `n0`, `n1`, ..."""
    g = GraphBuilder()
    g.placeholder("x")
    g("n0", op, "x", **attrs)
    first = g.graph_def.node[-1]
    for number in range(1, length):
        node = g.graph_def.node.add()
        node.CopyFrom(first)
        node.name, node.input[0] = f"n{number}", f"n{number - 1}"
    return g.graph_def


def _repeated(g: GraphBuilder, count: int, name: str, op: str, *inputs: str, **attrs: Any) -> list[str]:
    """Add `count` nodes of one kind; return their names."""
    g(f"{name}0", op, *inputs, **attrs)
    first = g.graph_def.node[-1]
    for number in range(1, count):
        node = g.graph_def.node.add()
        node.CopyFrom(first)
        node.name = f"{name}{number}"
    return [f"{name}{number}" for number in range(count)]


def _function(g: GraphBuilder, *arguments: Any, **more: Any) -> None:
    g.graph_def.library.function.append(function_def(*arguments, **more))


# Functions


def functions_that_double(size: int) -> tuple[proto.GraphDef, Request]:
    """Each function calls the next one twice."""
    g = GraphBuilder()
    for number in range(size):
        callee, attrs = ("Neg", _F) if number == size - 1 else (f"F{number + 1}", {})
        out = "y:0"
        body = [("one", callee, ["x"], attrs), ("two", callee, [f"one:{out}"], attrs)]
        _function(g, f"F{number}(x: float) -> y: float", body=body, ret={"y": f"two:{out}"})
    g.const("x", 1.0, float32)
    g("y", "F0", "x")
    return g.graph_def, _request("y")


def functions_of_ever_new_attrs(size: int) -> tuple[proto.GraphDef, Request]:
    """Each function calls the next one with two new attrs: no two calls are of the same instance."""
    g = GraphBuilder()
    for name in "AB":
        _function(g, f"{name}(x: float) -> y: float", "f: func", body=[("n", "Neg", ["x"], _F)], ret={"y": "n:y:0"})
    for number in range(size):
        if number == size - 1:
            body: Any = [("one", "Neg", ["x"], _F), ("two", "Neg", ["one:y:0"], _F)]
        else:
            body = [
                (
                    name,
                    f"F{number + 1}",
                    [given],
                    {"f": NameAttrList(wrapper, {"f": Placeholder("f")})},
                )
                for name, given, wrapper in (("one", "x", "A"), ("two", "one:y:0", "B"))
            ]
        _function(g, f"F{number}(x: float) -> y: float", "f: func", body=body, ret={"y": "two:y:0"})
    g.const("x", 1.0, float32)
    g("y", "F0", "x", f=NameAttrList("A", {"f": NameAttrList("A", {})}))
    return g.graph_def, _request("y")


def functions_in_a_row(size: int) -> tuple[proto.GraphDef, Request]:
    """Each function calls the next one, with the handle of a variable that the last one reads."""
    g = GraphBuilder()
    for number in range(size):
        if number == size - 1:
            body: Any = [("r", "ReadVariableOp", ["v"], {"dtype": float32})]
            ret = "r:value:0"
        else:
            body = [("r", f"F{number + 1}", ["v"], {})]
            ret = "r:y:0"
        _function(g, f"F{number}(v: resource) -> y: float", body=body, ret={"y": ret}, stateful=True)
    g("v", "VarHandleOp", dtype=float32, shape=[])
    g.const("one", 1.0, float32)
    g("a", "AssignVariableOp", "v", "one", dtype=float32)
    g("y", "F0", "v", "^a")
    return g.graph_def, _request("y")


def functions_that_call_each_other(size: int) -> tuple[proto.GraphDef, Request]:
    """Each of `size` functions calls two others, in a ring."""
    g = GraphBuilder()
    for number in range(size):
        body = [("one", f"F{(number + 1) % size}", ["x"], {}), ("two", f"F{(number + 7) % size}", ["one:y:0"], {})]
        _function(g, f"F{number}(x: float) -> y: float", body=body, ret={"y": "two:y:0"})
    g.const("x", 1.0, float32)
    g("y", "F0", "x")
    return g.graph_def, _request("y")


def function_fan(size: int) -> tuple[proto.GraphDef, Request]:
    """Calls of ever new instances of one function with many nodes, which must not be inlined."""
    g = GraphBuilder()
    body = [("n0", "Neg", ["x"], _F), *((f"n{i}", "Neg", [f"n{i - 1}:y:0"], _F) for i in range(1, 190))]
    _function(g, "F(x: float) -> y: float", "k: int", body=body, ret={"y": "n189:y:0"})
    g.graph_def.library.function[0].attr["_noinline"].b = True
    g.const("x", 1.0, float32)
    calls = [g(f"c{number}", "F", "x", k=number) for number in range(size)]
    g("y", "AddN", *calls, N=size, **_F)
    return g.graph_def, _request("y")


def branches(size: int) -> tuple[proto.GraphDef, Request]:
    """A Case of `size` branches."""
    g = GraphBuilder()
    _function(g, "F(x: float) -> y: float", body=[("n", "Neg", ["x"], _F)], ret={"y": "n:y:0"})
    g.const("x", 1.0, float32)
    g.const("i", 0, int32)
    g("y", "Case", "i", "x", Tin=[float32], Tout=[float32], branches=[NameAttrList("F")] * size)
    return g.graph_def, _request("y")


def nested_conditions(size: int) -> tuple[proto.GraphDef, Request]:
    """An If in each branch of an If, in loops, and so on."""
    g = GraphBuilder()
    types = {"Tin": [float32], "Tout": [float32]}
    _function(g, "Smaller(x: float) -> y: bool", body=[("n", "Less", ["x", "x"], _F)], ret={"y": "n:z:0"})
    for number in range(size):
        inner = NameAttrList(f"F{number + 1}")
        if number == size - 1:
            body: Any = [("n", "Neg", ["x"], _F)]
            ret = "n:y:0"
        elif number % 2:
            body = [("n", "While", ["x"], {"T": [float32], "cond": NameAttrList("Smaller"), "body": inner})]
            ret = "n:output:0"
        else:
            condition = ("c", "Less", ["x", "x"], _F)
            body = [condition, ("n", "If", ["c:z:0", "x"], {**types, "then_branch": inner, "else_branch": inner})]
            body[1][3]["Tcond"] = dtypes.bool_
            ret = "n:output:0"
        _function(g, f"F{number}(x: float) -> y: float", body=body, ret={"y": ret})
    g.const("x", 1.0, float32)
    g("y", "F0", "x")
    return g.graph_def, _request("y")


def gradients_of_gradients(size: int) -> tuple[proto.GraphDef, Request]:
    g = GraphBuilder()
    _function(g, "F0(x: float) -> y: float", body=[("m", "Mul", ["x", "x"], _F)], ret={"y": "m:z:0"})
    types = {"Tin": [float32, float32], "Tout": [float32]}
    for number in range(1, size):
        gradient = ("g", "SymbolicGradient", ["x", "x"], {"f": NameAttrList(f"F{number - 1}"), **types})
        body = [gradient, ("m", "Mul", ["g:output:0", "x"], _F)]
        _function(g, f"F{number}(x: float) -> y: float", body=body, ret={"y": "m:z:0"})
    g.const("x", 1.0, float32)
    g("y", "SymbolicGradient", "x", "x", f=NameAttrList(f"F{size - 1}"), **types)
    return g.graph_def, _request("y")


def gradient_of_a_long_body(size: int) -> tuple[proto.GraphDef, Request]:
    g = GraphBuilder()
    body = [("n0", "Sin", ["x"], _F), *((f"n{i}", "Sin", [f"n{i - 1}:y:0"], _F) for i in range(1, size))]
    _function(g, "F(x: float) -> y: float", body=body, ret={"y": f"n{size - 1}:y:0"})
    g.const("x", 1.0, float32)
    g("y", "SymbolicGradient", "x", "x", f=NameAttrList("F"), Tin=[float32, float32], Tout=[float32])
    return g.graph_def, _request("y")


def many_arguments(size: int) -> tuple[proto.GraphDef, Request]:
    """A function of `size` arguments, called twice."""
    g = GraphBuilder()
    body = [("n", "AddN", ["x"], {"N": "$N", "T": float32})]
    _function(g, "F(x: N * float) -> y: float", "N: int >= 1", body=body, ret={"y": "n:sum:0"})
    g.const("x", 1.0, float32)
    g("a", "F", *["x"] * size, N=size)
    g("y", "F", *["a"] * size, N=size)
    return g.graph_def, _request("y")


def large_library(size: int) -> tuple[proto.GraphDef, Request]:
    """`size` functions, of which one is called."""
    g = GraphBuilder()
    _function(g, "F(x: float) -> y: float", body=[("n", "Neg", ["x"], _F)], ret={"y": "n:y:0"})
    first = g.graph_def.library.function[0]
    for number in range(size):
        function = g.graph_def.library.function.add()
        function.CopyFrom(first)
        function.signature.name = f"F{number}"
    g.const("x", 1.0, float32)
    g("y", "F0", "x")
    return g.graph_def, _request("y")


# Constants


def constant(dtype: DType, shape: Iterable[int], **fields: Any) -> proto.GraphDef:
    """Return a graph of `c`, a Const whose TensorProto has these fields, and `y`, its first element."""
    g = GraphBuilder()
    tensor = proto.TensorProto(dtype=dtype.enum, **fields)
    for size in shape:
        tensor.tensor_shape.dim.add(size=size)
    node = g.graph_def.node.add(name="c", op="Const")
    node.attr["dtype"].type = dtype.enum
    node.attr["value"].tensor.CopyFrom(tensor)
    g.const("zero", 0, int32)
    g("y", "GatherV2", "c", "zero", "zero", Tparams=dtype, Tindices=int32, Taxis=int32, batch_dims=0)
    return g.graph_def


def _constant(dtype: DType, count: Callable[[int], int], fields: Callable[[int], Mapping[str, Any]]) -> Bomb:
    return lambda size: (constant(dtype, [count(size)], **fields(size)), _request("y"))


def _kilo(size: int) -> int:
    return 1000 * size


_CONSTANTS: dict[str, Bomb] = {
    "constant that is filled": _constant(float32, _kilo, lambda size: {"float_val": [1.0, 2.0]}),
    "strings that are filled": _constant(string, _kilo, lambda size: {"string_val": [b"a", b"b"]}),
    "constant of one value": _constant(float32, _kilo, lambda size: {"float_val": [1.0]}),
    "constant of no value": _constant(float32, _kilo, lambda size: {}),
    "dense constant": _constant(float32, _kilo, lambda size: {"tensor_content": bytes(4000 * size)}),
    "dense booleans": _constant(dtypes.bool_, _kilo, lambda size: {"tensor_content": bytes(1000 * size)}),
    "dense strings": _constant(string, _kilo, lambda size: {"tensor_content": bytes(1000 * size)}),
    "numbers one by one": _constant(int64, _kilo, lambda size: {"int64_val": [1] * (1000 * size)}),
    "halves one by one": _constant(dtypes.float16, _kilo, lambda size: {"half_val": [1] * (1000 * size)}),
    "strings one by one": _constant(string, _kilo, lambda size: {"string_val": [b""] * (1000 * size)}),
}


def products_with_repeated_values(size: int) -> tuple[proto.GraphDef, Request]:
    """Each weight is one value in a few bytes, and a separate matrix of 10 MB."""
    g = GraphBuilder()
    g.placeholder("x", float32, [1, 1600])
    last = "x"
    for number in range(size):
        node = g.graph_def.node.add(name=f"w{number}", op="Const")
        node.attr["dtype"].type = float32.enum
        tensor = node.attr["value"].tensor
        tensor.dtype = float32.enum
        tensor.float_val.append(0.5)
        for _ in range(2):
            tensor.tensor_shape.dim.add(size=1600)
        g.const(f"scale{number}", 2.0, float32)
        product = g(f"p{number}", "MatMul", last, f"w{number}", T=float32, transpose_a=False, transpose_b=True)
        last = g(f"m{number}", "Mul", product, f"scale{number}", **_F)
    return g.graph_def, _request(last, x=[[1.0] * 1600])


# Many nodes


def long_chain(size: int) -> tuple[proto.GraphDef, Request]:
    return chain_of("Sin", size, **_F), _request(f"n{size - 1}", x=1.0)


def identities(size: int) -> tuple[proto.GraphDef, Request]:
    return chain_of("Identity", size, **_F), _request(f"n{size - 1}", x=1.0)


def nested_frames(size: int) -> tuple[proto.GraphDef, Request]:
    """A loop in a loop, and so on."""
    g = GraphBuilder()
    g.const("x", 1.0, float32)
    last = "x"
    attrs = {"is_constant": False, "parallel_iterations": 1}
    for number in range(size):
        last = g(f"e{number}", "Enter", last, frame_name=f"{number}".encode(), **attrs, **_F)
    for number in range(size):
        last = g(f"x{number}", "Exit", last, **_F)
    return g.graph_def, _request(last)


def one_consumer_of_many(size: int) -> tuple[proto.GraphDef, Request]:
    g = GraphBuilder()
    g.placeholder("x")
    g("y", "AddN", *["x"] * size, N=size, **_F)
    return g.graph_def, _request("y", x=1.0)


def many_consumers_of_one(size: int) -> tuple[proto.GraphDef, Request]:
    g = GraphBuilder()
    g.placeholder("x")
    names = _repeated(g, size, "n", "Neg", "x", **_F)
    g("y", "AddN", *names, N=size, **_F)
    return g.graph_def, _request("y", x=1.0)


def wide_nodes(size: int) -> tuple[proto.GraphDef, Request]:
    """Nodes of a thousand outputs each."""
    g = GraphBuilder()
    g.placeholder("x", float32, [1000])
    g.const("axis", 0, int32)
    names = _repeated(g, size, "s", "Split", "axis", "x", num_split=1000, T=float32)
    g("y", "AddN", *names, N=size, **_F)
    return g.graph_def, _request("y", x=[1.0] * 1000)


def reads_and_updates(size: int) -> tuple[proto.GraphDef, Request]:
    """`size` reads of a variable, and `size` updates, without order."""
    g = GraphBuilder()
    g("v", "VarHandleOp", dtype=float32, shape=[])
    g.const("one", 1.0, float32)
    updates = _repeated(g, size, "u", "AssignAddVariableOp", "v", "one", dtype=float32)
    reads = _repeated(g, size, "r", "ReadVariableOp", "v", dtype=float32)
    g("sum", "AddN", *reads, N=size, **_F)
    g("y", "Identity", "sum", *(f"^{name}" for name in updates), **_F)
    return g.graph_def, _request("y")


def updates_in_a_row(size: int) -> tuple[proto.GraphDef, Request]:
    """`size` updates of a variable, each after the previous one and with a read beside it."""
    g = GraphBuilder()
    g("v", "VarHandleOp", dtype=float32, shape=[])
    g.const("one", 1.0, float32)
    g("a", "AssignVariableOp", "v", "one", dtype=float32)
    last, reads = "a", []
    for number in range(size):
        last = g(f"u{number}", "AssignAddVariableOp", "v", "one", f"^{last}", dtype=float32)
        reads.append(g(f"r{number}", "ReadVariableOp", "v", f"^{last}", dtype=float32))
    g("y", "AddN", *reads, N=size, **_F)
    return g.graph_def, _request("y")


def updates_in_frames(size: int) -> tuple[proto.GraphDef, Request]:
    """Like `updates_in_a_row`, in loops within loops."""
    g = GraphBuilder()
    g("v", "VarHandleOp", dtype=float32, shape=[])
    g.const("one", 1.0, float32)
    handle, number_of, controls = "v", "one", []
    attrs = {"is_constant": True, "parallel_iterations": 1}
    for number in range(size):
        frame = f"{number}".encode()
        handle = g(f"h{number}", "Enter", handle, frame_name=frame, T=dtypes.resource, **attrs)
        number_of = g(f"e{number}", "Enter", number_of, frame_name=frame, T=float32, **attrs)
        controls.append(g(f"u{number}", "AssignAddVariableOp", handle, number_of, dtype=float32))
        controls.append(g(f"r{number}", "ReadVariableOp", handle, dtype=float32))
    last = number_of
    for number in range(size):
        last = g(f"x{number}", "Exit", last, *([f"^u{size - 1 - number}"]), **_F)
    return g.graph_def, _request(last)


def groups(size: int) -> tuple[proto.GraphDef, Request]:
    """Each node is colocated with a hundred others."""
    g = GraphBuilder()
    g.placeholder("x")
    names = _repeated(g, size, "n", "Neg", "x", **_F)
    for node in g.graph_def.node[1:]:
        node.attr["_class"].list.s.extend(f"loc:@n{random.randrange(size)}".encode() for _ in range(100))
    g("y", "AddN", *names, N=size, **_F)
    return g.graph_def, _request("y", x=1.0)


# Attrs


def known_shapes(size: int) -> tuple[proto.GraphDef, Request]:
    """Long lists of the shapes that a node claims for its outputs."""
    g = GraphBuilder()
    g.placeholder("x")
    for number in range(20):
        g(f"n{number}", "Neg", "x" if not number else f"n{number - 1}", **_F)
        shape = g.graph_def.node[-1].attr["_output_shapes"].list.shape.add()
        shape.CopyFrom(proto.TensorShapeProto(dim=[proto.TensorShapeProto.Dim(size=1)] * size))
    return g.graph_def, _request("n19", x=1.0)


def long_lists(size: int) -> tuple[proto.GraphDef, Request]:
    g = GraphBuilder()
    g.placeholder("x")
    for number in range(20):
        g(f"n{number}", "Neg", "x" if not number else f"n{number - 1}", **_F)
        g.graph_def.node[-1].attr["_numbers"].CopyFrom(attr_value.encode([number] * size))
    return g.graph_def, _request("n19", x=1.0)


def long_names(size: int) -> tuple[proto.GraphDef, Request]:
    g = GraphBuilder()
    g.placeholder("x")
    last = "x"
    for number in range(100):
        last = g("a/" * size + f"n{number}", "Neg", last, **_F)
    g("y", "Neg", last, **_F)
    return g.graph_def, _request("y", x=1.0)


def patterns(size: int) -> tuple[proto.GraphDef, Request]:
    """Nodes with regular expressions, each of which takes as long to compile as is allowed."""
    g = GraphBuilder()
    g.const("text", b"a", string)
    names = []
    for number in range(size):
        pattern = rb"(?i)\pL\pN\pS\pP" * 6 + f"{number}".encode() + rb"(x{900})|[a-z]{500}"
        names.append(g(f"m{number}", "StaticRegexFullMatch", "text", pattern=pattern))
    return g.graph_def, {"fetches": names[:1], "feeds": {}, "targets": names}


def groups_of_patterns(size: int) -> tuple[proto.GraphDef, Request]:
    g = GraphBuilder()
    g.const("text", b"a", string)
    attrs = {"rewrite": rb"\1", "replace_global": True}
    g("y", "StaticRegexReplace", "text", pattern=b"(" * size + b"b" + b")" * size, **attrs)
    return g.graph_def, _request("y")


BOMBS: dict[str, Bomb] = {
    "functions that double": functions_that_double,
    "functions of ever new attrs": functions_of_ever_new_attrs,
    "functions in a row": functions_in_a_row,
    "functions that call each other": functions_that_call_each_other,
    "function fan": function_fan,
    "branches": branches,
    "nested conditions": nested_conditions,
    "gradients of gradients": gradients_of_gradients,
    "gradient of a long body": gradient_of_a_long_body,
    "many arguments": many_arguments,
    "large library": large_library,
    **_CONSTANTS,
    "products with repeated values": products_with_repeated_values,
    "long chain": long_chain,
    "identities": identities,
    "nested frames": nested_frames,
    "one consumer of many": one_consumer_of_many,
    "many consumers of one": many_consumers_of_one,
    "wide nodes": wide_nodes,
    "reads and updates": reads_and_updates,
    "updates in a row": updates_in_a_row,
    "updates in frames": updates_in_frames,
    "groups": groups,
    "known shapes": known_shapes,
    "long lists": long_lists,
    "long names": long_names,
    "patterns": patterns,
    "groups of patterns": groups_of_patterns,
}


def random_bomb(seed: int) -> tuple[str, int, proto.GraphDef, Request]:
    """Return a random bomb of any size up to some ten thousand: its name, its size, and its result."""
    random_ = random.Random(seed)
    name = random_.choice(list(BOMBS))
    size = int(10 ** random_.uniform(0.5, 4.5))
    return (name, size, *BOMBS[name](size))
