"""What is refused, when, and with which words: one row per kind of bad input.

Every row says how a good graph is spoilt, which error comes and which node it names.
After each refusal a session made before of the good graph still answers: nothing bad
may stick.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

import aexec
from aexec import errors, proto
from aexec.framework import dtypes
from aexec.framework.shape import PartialTensorShape
from tests.support.programs.graphs import GraphBuilder

F, I = dtypes.float32, dtypes.int32  # noqa: E741
INVALID, NOT_FOUND = errors.InvalidArgumentError, errors.NotFoundError
Attr = proto.AttrValue
Spoil = Callable[[GraphBuilder], object]


def good() -> GraphBuilder:
    """What every row starts from: `c` [1, 2] float, `i` 3 int32, `b` true, `x` fed; `y` = x + c."""
    g = GraphBuilder()
    g.const("c", np.array([1, 2], np.float32))
    g.const("i", 3, I)
    g.const("b", True)
    g.placeholder("x", F, [None])
    g("y", "AddV2", "x", "c", T=F)
    return g


async def check_answers(session: aexec.Session) -> None:
    np.testing.assert_array_equal(await session.run("y:0", {"x:0": [1, 1]}), [2, 3])


@dataclass(frozen=True)
class Row:
    """One kind of bad input.

    Attributes:
        name: says what is wrong.
        spoil: adds the bad nodes.
        node: the node that the error must name, "" if there is none to name.
        words: what its text must hold.
        error: its class.
    """

    name: str
    spoil: Spoil
    node: str
    words: tuple[str, ...]
    error: type[errors.OpError] = INVALID


def row(name: str, spoil: Spoil, node: str, *words: str, error: type[errors.OpError] = INVALID) -> Any:
    return pytest.param(Row(name, spoil, node, words, error), id=name.replace(" ", "_"))


def check_error(error: errors.OpError, wanted: Row) -> None:
    assert type(error) is wanted.error, f"{type(error).__name__}: {error}"
    for words in wanted.words:
        assert words in str(error)
    if wanted.node:
        named = (f"'{wanted.node}'", f"{{{{node {wanted.node}}}}}")
        assert error.node == wanted.node or any(text in error.message for text in named), f"{error.node!r}: {error}"


def attr(**value: Any) -> proto.AttrValue:
    return Attr(**value)


def tensor(dtype: Any, dims: tuple[int, ...], **values: Any) -> proto.AttrValue:
    """A TensorProto in an attr, as broken as wanted."""
    message = proto.TensorProto(dtype=dtype.enum, **values)
    for size in dims:
        message.tensor_shape.dim.add(size=size)
    return attr(tensor=message)


def library(text: str) -> Spoil:
    """Merges a FunctionDefLibrary in text form."""

    def spoil(g: GraphBuilder) -> None:
        text_format.Merge(text, g.graph_def.library)

    return spoil


def several(*spoils: Spoil) -> Spoil:
    def spoil(g: GraphBuilder) -> None:
        for one in spoils:
            one(g)

    return spoil


def node(name: str, op: str, *inputs: str, **attrs: Any) -> Spoil:
    """Adds one node."""
    device = attrs.pop("device", "")
    return lambda g: g(name, op, *inputs, device=device, **attrs)


def function(name: str, body: str, signature: str = "", ret: str = "key: 'z' value: 'n:y:0'") -> str:
    """A FunctionDef from float `x` to float `z`, in text form."""
    signature = signature or "input_arg { name: 'x' type: DT_FLOAT } output_arg { name: 'z' type: DT_FLOAT }"
    return f"function {{ signature {{ name: '{name}' {signature} }} node_def {{ {body} }} ret {{ {ret} }} }}"


SQUARE = "name: 'n' op: 'Square' input: 'x' attr { key: 'T' value { type: DT_FLOAT } }"
T_ARG = "input_arg { name: 'x' type_attr: 'T' } output_arg { name: 'z' type_attr: 'T' } attr { name: 'T' type: 'type' }"


def call(name: str, function: str, op: str = "PartitionedCall") -> Spoil:
    reference = attr(func=proto.NameAttrList(name=function))
    return node(name, op, "x", f=reference, Tin=[F], Tout=[F])


NAMES = [
    row("name with a space", node("a a", "NoOp"), "a a", "Node name contains invalid characters"),
    row("empty name", node("", "NoOp"), "", "Node ''", "invalid characters"),
    row("name with a leading underscore", node("_a", "NoOp"), "_a", "invalid characters"),
    row("name that begins with a slash", node("/a", "NoOp"), "/a", "invalid characters"),
    row("name with a colon", node("a:0", "NoOp"), "a:0", "invalid characters"),
    row("name with a caret", node("^a", "NoOp"), "^a", "invalid characters"),
    row("name with an empty last piece", node("a>", "NoOp"), "a>", "invalid characters"),
    row("name that is not ASCII", node("é", "NoOp"), "é", "invalid characters"),
    row("name with a newline at its end", node("a\n", "NoOp"), "a\n", "invalid characters"),
    row("name taken twice", several(node("d", "NoOp"), node("d", "NoOp")), "d", "Node 'd' is not unique"),
    row("name of a node taken", node("c", "NoOp"), "c"),
]

OPS = [
    row("no op", node("a", ""), "a", "Node 'a' does not specify an operation"),
    row(
        "unknown op",
        node("a", "Sqare", "c"),
        "a",
        "Op type not registered 'Sqare'",
        "Square",
        "(1 node needs it)",
        error=NOT_FOUND,
    ),
    row(
        "unknown op that several nodes need",
        several(node("a", "Nowhere"), node("b2", "Nowhere"), node("b3", "Nowhere")),
        "a",
        "Op type not registered 'Nowhere'",
        "(3 nodes need it)",
        error=NOT_FOUND,
    ),
    row("op name in other case", node("a", "noop"), "a", "Op type not registered 'noop'", error=NOT_FOUND),
    row(
        "op removed long ago",
        node("a", "TopK", "c", k=1, T=F),
        "a",
        "Op TopK is not available in GraphDef version 2474. It has been removed in version 7. Use TopKV2 instead",
        error=errors.UnimplementedError,
    ),
]

INPUTS = [
    row("unknown input", node("a", "Square", "cc", T=F), "a", "Node 'a': Unknown input node 'cc'"),
    row("unknown input with a port", node("a", "Square", "cc:1", T=F), "a", "Unknown input node 'cc:1'"),
    row("empty input", node("a", "Square", "", T=F), "a", "Unknown input node ''"),
    row("negative port", node("a", "Square", "c:-1", T=F), "a", "Unknown input node 'c:-1'"),
    row("two ports", node("a", "Square", "c:0:0", T=F), "a", "Unknown input node 'c:0:0'"),
    row("port without number", node("a", "Square", "c:", T=F), "a", "Unknown input node 'c:'"),
    row("only a port", node("a", "Square", ":0", T=F), "a", "Unknown input node ':0'"),
    row("input with a space", node("a", "Square", "c ", T=F), "a", "Unknown input node 'c '"),
    row("unknown control input", node("a", "NoOp", "^cc"), "a", "Unknown input node '^cc'"),
    row("control input with a port", node("a", "NoOp", "^c:0"), "a", "Unknown input node '^c:0'"),
    row("control input without a name", node("a", "NoOp", "^"), "a", "Unknown input node '^'"),
    row("control input with two carets", node("a", "NoOp", "^^c"), "a", "Unknown input node '^^c'"),
    row(
        "control input before a data input",
        node("a", "Square", "^i", "c", T=F),
        "a",
        "Node 'a': Control dependencies must come after regular dependencies",
    ),
    row(
        "port that is not there",
        node("a", "Square", "c:3", T=F),
        "a",
        "Connecting to invalid output 3 of source node c which has 1 outputs",
    ),
    row("port beyond any number", node("a", "Square", f"c:{10**30}", T=F), "a", "Connecting to invalid output"),
    row(
        "output of an op without outputs",
        several(node("n", "NoOp"), node("a", "Square", "n", T=F)),
        "a",
        "Connecting to invalid output 0 of source node n which has 0 outputs",
    ),
    row(
        "too few inputs",
        node("a", "AddV2", "c", T=F),
        "a",
        "NodeDef expected inputs 'float, float' do not match 1 inputs specified",
        "Op<name=AddV2;",
    ),
    row(
        "too many inputs",
        node("a", "Square", "c", "c", T=F),
        "a",
        "NodeDef expected inputs 'float' do not match 2 inputs specified",
    ),
    row(
        "fewer inputs than N says",
        node("a", "AddN", "c", "c", N=3, T=F),
        "a",
        "NodeDef expected inputs 'float, float, float' do not match 2 inputs specified",
    ),
    row("an input where none is taken", node("a", "NoOp", "c"), "a", "do not match 1 inputs specified"),
    row(
        "more inputs than a list of types says",
        node("a", "IdentityN", "c", "i", T=[F]),
        "a",
        "NodeDef expected inputs 'float' do not match 2 inputs specified",
    ),
    row(
        "wrong type on an edge",
        node("a", "Square", "c", T=I),
        "a",
        "Input 0 of node a was passed float from c:0 incompatible with expected int32.",
    ),
    row("wrong type on the second edge", node("a", "AddV2", "c", "i", T=F), "a", "Input 1 of node a was passed int32"),
    row(
        "wrong type in a list",
        node("a", "IdentityN", "c", "i", T=[F, F]),
        "a",
        "Input 1 of node a was passed int32 from i:0 incompatible with expected float.",
    ),
    row(
        "wrong fixed type",
        node("a", "LogicalNot", "c"),
        "a",
        "Input 0 of node a was passed float from c:0 incompatible with expected bool.",
    ),
    row(
        "value where a variable is wanted",
        node("a", "Assign", "c", "c", T=F),
        "a",
        "Input 0 of node a was passed float from c:0 incompatible with expected float_ref.",
    ),
    row(
        "resource where a value is wanted",
        several(node("v", "VarHandleOp", dtype=F, shape=[2]), node("a", "Square", "v", T=F)),
        "a",
        "was passed resource from v:0 incompatible with expected float.",
    ),
]

CYCLES = [
    row("node that feeds itself", node("a", "Square", "a", T=F), "a", "1 nodes in a cycle"),
    row("node that waits for itself", node("a", "NoOp", "^a"), "a", "1 nodes in a cycle"),
    row(
        "cycle of data",
        several(node("a", "Square", "a2", T=F), node("a2", "Square", "a", T=F)),
        "a",
        "2 nodes in a cycle: a, a2",
    ),
    row("cycle of controls", several(node("a", "NoOp", "^a2"), node("a2", "NoOp", "^a")), "a", "2 nodes in a cycle"),
    row(
        "cycle of both",
        several(node("a", "Square", "c", "^a2", T=F), node("a2", "Square", "a", T=F)),
        "a",
        "2 nodes in a cycle",
    ),
    row(
        "back edge to a node that is no Merge",
        several(node("a", "AddV2", "c", "next", T=F), node("next", "NextIteration", "a", T=F)),
        "a",
        "2 nodes in a cycle",
        "only Merge nodes can have back edges",
    ),
    row(
        "back edge to a Merge from a node that is no NextIteration",
        several(node("a", "Merge", "c", "s", T=F, N=2), node("s", "Square", "a", T=F)),
        "a",
        "2 nodes in a cycle",
    ),
    row(
        "back edge by a control input of a Merge",
        several(node("a", "Merge", "c", "c", "^next", T=F, N=2), node("next", "NextIteration", "a", T=F)),
        "a",
        "2 nodes in a cycle",
    ),
]

ATTRS = [
    row("attr missing", node("a", "Square", "c"), "a", "NodeDef missing attr 'T' from Op<name=Square;"),
    row(
        "several attrs missing",
        node("a", "Conv2D", "c", "c"),
        "a",
        "NodeDef missing attrs 'T', 'strides', 'padding' from Op<name=Conv2D;",
    ),
    row(
        "int where a type is wanted",
        node("a", "Square", "c", T=attr(i=1)),
        "a",
        "AttrValue had value with type 'int' when 'type' expected",
        "for attr 'T'",
    ),
    row("attr without a value", node("a", "Square", "c", T=attr()), "a", "AttrValue missing value", "for attr 'T'"),
    row(
        "bool where an int is wanted",
        node("a", "AddN", "c", N=attr(b=True), T=F),
        "a",
        "AttrValue had value with type 'bool' when 'int' expected",
    ),
    row(
        "string where a bool is wanted",
        node("a", "MatMul", "c", "c", T=F, transpose_a=attr(s=b"yes")),
        "a",
        "AttrValue had value with type 'string' when 'bool' expected",
    ),
    row(
        "int where a float is wanted",
        node("a", "LeakyRelu", "c", T=F, alpha=attr(i=1)),
        "a",
        "AttrValue had value with type 'int' when 'float' expected",
    ),
    row(
        "float where a string is wanted",
        node("a", "VarHandleOp", dtype=F, shape=[], container=attr(f=1.0)),
        "a",
        "AttrValue had value with type 'float' when 'string' expected",
    ),
    row(
        "type where a shape is wanted",
        node("a", "Placeholder", dtype=F, shape=attr(type=1)),
        "a",
        "AttrValue had value with type 'type' when 'shape' expected",
    ),
    row(
        "shape where a tensor is wanted",
        node("a", "Const", dtype=F, value=attr(shape=proto.TensorShapeProto())),
        "a",
        "AttrValue had value with type 'shape' when 'tensor' expected",
    ),
    row(
        "string where a function is wanted",
        node("a", "PartitionedCall", "c", Tin=[F], Tout=[F], f=attr(s=b"f")),
        "a",
        "AttrValue had value with type 'string' when 'func' expected",
    ),
    row(
        "tensor where a list is wanted",
        node("a", "Squeeze", "c", T=F, squeeze_dims=tensor(I, (1,))),
        "a",
        "AttrValue had value with type 'tensor' when 'list(int)' expected",
    ),
    row(
        "scalar where a list is wanted",
        node("a", "Squeeze", "c", T=F, squeeze_dims=attr(i=0)),
        "a",
        "AttrValue had value with type 'int' when 'list(int)' expected",
    ),
    row(
        "list where a scalar is wanted",
        node("a", "AddN", "c", T=F, N=attr(list=Attr.ListValue(i=[1]))),
        "a",
        "AttrValue had value with type 'list(int)' when 'int' expected",
    ),
    row(
        "empty list where a scalar is wanted",
        node("a", "AddN", "c", T=F, N=attr(list=Attr.ListValue())),
        "a",
        "for attr 'N'",
    ),
    row(
        "list of another kind",
        node("a", "Squeeze", "c", T=F, squeeze_dims=attr(list=Attr.ListValue(s=[b"0"]))),
        "a",
        "AttrValue had value with type 'list(string)' when 'list(int)' expected",
    ),
    row(
        "list of two kinds",
        node("a", "Squeeze", "c", T=F, squeeze_dims=attr(list=Attr.ListValue(i=[0], s=[b"0"]))),
        "a",
        "list(",
        "for attr 'squeeze_dims'",
    ),
    row(
        "type that the op does not take",
        node("a", "AddV2", "b", "b", T=dtypes.bool_),
        "a",
        "Value for attr 'T' of bool is not in the list of allowed values: bfloat16, half, float",
    ),
    row(
        "string that the op does not take",
        node("a", "Conv2D", "c", "c", T=F, strides=[1, 1, 1, 1], padding=b"FULL"),
        "a",
        """Value for attr 'padding' of "FULL" is not in the list of allowed values: "SAME", "VALID", "EXPLICIT\"""",
    ),
    row(
        "number of outputs below its minimum",
        node("a", "Unpack", "c", T=F, num=-1),
        "a",
        "Value for attr 'num' of -1 must be at least minimum 0",
    ),
    row(
        "int below its minimum",
        node("a", "AddN", N=0, T=F),
        "a",
        "Value for attr 'N' of 0 must be at least minimum 1",
    ),
    row(
        "list shorter than its minimum",
        node("a", "IdentityN", T=attr(list=Attr.ListValue())),
        "a",
        "Length for attr 'T' of 0 must be at least minimum 1",
    ),
    row(
        "number that is no type",
        node("a", "Square", "c", T=attr(type=9999)),
        "a",
        "AttrValue has invalid DataType enum: 9999",
    ),
    row("type zero", node("a", "Square", "c", T=attr(type=0)), "a", "invalid DataType", "for attr 'T'"),
    row(
        "number in a list that is no type",
        node("a", "IdentityN", "c", T=attr(list=Attr.ListValue(type=[77]))),
        "a",
        "AttrValue has invalid DataType enum: 77",
    ),
    row(
        "ref type as an attr",
        node("a", "Identity", "c", T=attr(type=101)),
        "a",
        "AttrValue must not have reference type value of float_ref",
    ),
    row(
        "ref type in a list",
        node("a", "IdentityN", "c", T=attr(list=Attr.ListValue(type=[101]))),
        "a",
        "AttrValue must not have reference type value of float_ref",
    ),
    row(
        "placeholder outside of a function",
        node("a", "Square", "c", T=attr(placeholder="T")),
        "a",
        "AttrValue had value with unexpected type 'placeholder'",
    ),
    row(
        "negative size in a shape",
        node("a", "Placeholder", dtype=F, shape=attr(shape=proto.TensorShapeProto(dim=[{"size": -2}]))),
        "a",
        "Shape [-2] has invalid size -2",
    ),
    row(
        "shape of more elements than can be counted",
        node("a", "Placeholder", dtype=F, shape=attr(shape=proto.TensorShapeProto(dim=[{"size": 2**40}] * 2))),
        "a",
        "is too large (more than 2**63 - 1 entries)",
    ),
    row(
        "shape of 300 dimensions",
        node("a", "Placeholder", dtype=F, shape=attr(shape=proto.TensorShapeProto(dim=[{"size": 1}] * 300))),
        "a",
        "is too large: 300 dimensions",
    ),
    row(
        "N so large that its inputs cannot be listed",
        node("a", "AddN", "c", N=2**40, T=F),
        "a",
    ),
]

SHAPES = [
    row(
        "constant of negative size",
        node("a", "Const", dtype=F, value=tensor(F, (2, -1), float_val=[1])),
        "a",
        "Shape [2,?] is not fully defined",
    ),
    row(
        "constant of a size that means nothing",
        node("a", "Const", dtype=F, value=tensor(F, (-7,), float_val=[1])),
        "a",
        "Shape [-7] is not fully defined",
    ),
    row(
        "constant of more elements than can be counted",
        node("a", "Const", dtype=F, value=tensor(F, (2**60, 2**60), float_val=[1])),
        "a",
        "is too large (more than 2**63 - 1 entries)",
    ),
    row(
        "shapes that do not broadcast",
        several(lambda g: g.const("d", np.zeros(3, np.float32)), node("a", "AddV2", "c", "d", T=F)),
        "a",
        "Dimensions must be equal, but are 2 and 3 for '{{node a}} = AddV2[T=DT_FLOAT](c, d)'",
    ),
    row("matrix product of vectors", node("a", "MatMul", "c", "c", T=F), "a", "Shape must be rank 2 but is rank 1"),
    row(
        "too few _output_shapes",
        node("a", "Square", "c", T=F, _output_shapes=attr(list=Attr.ListValue())),
        "a",
        "Node 'a' has 1 outputs but the _output_shapes attribute specifies shapes for 0 outputs",
    ),
    row(
        "_output_shapes that contradict",
        node("a", "Square", "c", T=F, _output_shapes=[PartialTensorShape([3])]),
        "a",
        "Node 'a' has an _output_shapes attribute inconsistent with the GraphDef for output #0",
    ),
    row(
        "colocation with a node that is not there",
        node("a", "Square", "c", T=F, _class=[b"loc:@nobody"]),
        "a",
        "Node 'a' expects to be colocated with unknown node 'nobody'",
    ),
]

FUNCTIONS = [
    row(
        "two different functions of one name",
        library(function("f", SQUARE) + function("f", SQUARE.replace("Square", "Neg"))),
        "",
        "Cannot add function 'f' because a different function with the same name already exists.",
    ),
    row(
        "function named as an op",
        library(function("Square", SQUARE)),
        "",
        "Cannot add function 'Square' because an op with the same name already exists.",
    ),
    row(
        "argument without a type",
        library(function("f", SQUARE, "input_arg { name: 'x' } output_arg { name: 'z' type: DT_FLOAT }")),
        "",
        "No type fields in argument 'x' of function 'f'",
    ),
    row(
        "result without a type",
        library(function("f", SQUARE, "input_arg { name: 'x' type: DT_FLOAT } output_arg { name: 'z' }")),
        "",
        "No type fields in argument 'z' of function 'f'",
    ),
    row(
        "return of a node that is not there",
        library(function("f", SQUARE, ret="key: 'z' value: 'nobody:y:0'")),
        "",
        "Return z -> nobody:y:0 is not found. (in function 'f')",
    ),
    row(
        "return of an output that is not there",
        library(function("f", SQUARE, ret="key: 'z' value: 'n:w:0'")),
        "",
        "Return z -> n:w:0 is not found.",
    ),
    row(
        "return of an index that is not there",
        library(function("f", SQUARE, ret="key: 'z' value: 'n:y:1'")),
        "",
        "Return z -> n:y:1 is not found.",
    ),
    row(
        "no return",
        library(function("f", SQUARE, ret="key: 'w' value: 'n:y:0'")),
        "",
        "Return z missing in function 'f'",
    ),
    row(
        "return of another type",
        library(
            function("f", SQUARE, "input_arg { name: 'x' type: DT_FLOAT } output_arg { name: 'z' type: DT_INT32 }")
        ),
        "",
        "Invalid ret types z : int32 vs. float in function 'f'",
    ),
    row(
        "control return of a node that is not there",
        several(
            library(function("f", SQUARE, ret="key: 'z' value: 'n:y:0'")),
            lambda g: g.graph_def.library.function[0].control_ret.update({"done": "nobody"}),
        ),
        "",
        "Control return done -> nobody is not found. (in function 'f')",
    ),
    row(
        "unknown op in a body",
        library(function("f", SQUARE.replace("Square", "Sqare"))),
        "",
        "Op type not registered 'Sqare'",
        "used by node 'n' of function 'f'",
        error=NOT_FOUND,
    ),
    row(
        "unknown op in a polymorphic body",
        library(function("f", SQUARE.replace("Square", "Sqare"), T_ARG)),
        "",
        "used by node 'n' of function 'f'",
        error=NOT_FOUND,
    ),
    row(
        "unknown input in a body",
        library(function("f", SQUARE.replace("input: 'x'", "input: 'w'"))),
        "n",
        "Node 'n' -> w is not found. (in function 'f')",
    ),
    row(
        "unknown control input in a body",
        library(function("f", SQUARE.replace("input: 'x'", "input: 'x' input: '^w'"))),
        "n",
        "Unknown input node '^w'",
    ),
    row(
        "attr missing in a body",
        library(function("f", "name: 'n' op: 'Square' input: 'x'")),
        "n",
        "missing attr 'T'",
        "in function 'f'",
    ),
    row("cycle in a body", library(function("f", SQUARE.replace("'x'", "'n:y:0'"))), "n", "1 nodes in a cycle"),
    row(
        "attr that nothing binds",
        library(function("f", SQUARE.replace("type: DT_FLOAT", "placeholder: 'T'"))),
        "",
        "Failed to bind all placeholders in f",
        "$T",
    ),
    row(
        "call without an attr of the function",
        several(library(function("f", SQUARE, T_ARG)), node("a", "f", "c")),
        "a",
        "missing attr 'T'",
    ),
    row(
        "call of a function that is not there",
        call("a", "nobody"),
        "a",
        'Failed to find function "nobody" in function library',
    ),
    row(
        "branch that is not there",
        several(
            library(function("f", SQUARE)),
            node(
                "a",
                "If",
                "b",
                "c",
                Tcond=dtypes.bool_,
                Tin=[F],
                Tout=[F],
                then_branch=attr(func=proto.NameAttrList(name="f")),
                else_branch=attr(func=proto.NameAttrList(name="g")),
            ),
        ),
        "a",
        'Failed to find function "g" in function library',
    ),
    row(
        "two gradients of one function",
        library(
            function("f", SQUARE)
            + "gradient { function_name: 'f' gradient_func: 'g1' } gradient { function_name: 'f' gradient_func: 'g2' }"
        ),
        "",
        "Cannot assign gradient function 'g2' to 'f' because it already has gradient function 'g1'",
    ),
]


def versions(**fields: Any) -> Spoil:
    return lambda g: g.graph_def.versions.MergeFrom(proto.VersionDef(**fields))


VERSIONS = [
    row(
        "graph for newer readers", versions(min_consumer=99999), "", "min consumer version 99999 above current version"
    ),
    row("graph that this version reads wrongly", versions(bad_consumers=[2474]), "", "disallows consumer version 2474"),
    row(
        "producer below zero",
        versions(producer=-1),
        "",
        "GraphDef producer version -1 below min producer 0",
    ),
]

REFUSED_AT_IMPORT = NAMES + OPS + INPUTS + CYCLES + ATTRS + SHAPES + FUNCTIONS + VERSIONS


@pytest.mark.parametrize("wanted", REFUSED_AT_IMPORT)
async def test_refused_at_import(wanted: Row) -> None:
    async with aexec.Session(good().graph()) as session:
        await check_answers(session)
        g = good()
        wanted.spoil(g)
        with pytest.raises(errors.OpError) as caught:
            aexec.Graph.from_bytes(g.graph_def.SerializeToString())
        check_error(caught.value, wanted)
        before = session.graph.to_bytes()
        more = GraphBuilder()
        wanted.spoil(more)
        with pytest.raises(errors.OpError):
            await session.extend(more.graph_def)
        assert session.graph.to_bytes() == before
        await check_answers(session)


DEVICES = [
    row(
        "device that is none",
        node("a", "Square", "c", T=F, device="/nonsense:1"),
        "a",
        "Unknown attribute 'nonsense' is encountered while parsing the device spec",
    ),
    row("device with a bad number", node("a", "Square", "c", T=F, device="/device:CPU:x"), "a", "Malformed device"),
    row("device of two types", node("a", "Square", "c", T=F, device="/cpu:0/gpu:0"), "a", "Multiple device types"),
    row(
        "device that is not there",
        node("a", "Square", "c", T=F, device="/device:CPU:7"),
        "a",
        "Cannot assign a device for operation a: {{node a}} was explicitly assigned to /device:CPU:7 "
        "but available devices are [ /job:localhost/replica:0/task:0/device:CPU:0 ]",
    ),
    row("job that is not there", node("a", "Square", "c", T=F, device="/job:worker"), "a", "/job:worker"),
    row("type that is not there", node("a", "Square", "c", T=F, device="/device:XYZ:0"), "a", "/device:XYZ:0"),
    row(
        "colocation of two devices",
        several(
            node("a", "Square", "c", T=F, device="/device:CPU:0"),
            node("a2", "Square", "c", T=F, device="/device:CPU:1", _class=[b"loc:@a"]),
        ),
        "a2",
        "Cannot colocate nodes {{colocation_node a2}} and {{colocation_node a}}",
        "Cannot merge devices with incompatible ids",
    ),
    row(
        "variables of two devices in one switch",
        several(
            node("v", "VarHandleOp", dtype=F, shape=[2], device="/device:CPU:0"),
            node("w", "VarHandleOp", dtype=F, shape=[2], device="/device:CPU:1"),
            node("a", "Merge", "v", "w", T=dtypes.resource, N=2),
        ),
        "a",
        "Cannot place the graph because a reference or resource edge connects colocation groups with incompatible "
        "resource devices: /device:CPU:1 vs /device:CPU:0.",
    ),
    row(
        "op that has no kernel",
        node("a", "CudnnRNNCanonicalToParams", "i", "i", "i", "c", "c", T=F, num_params=1),
        "a",
        "No OpKernel was registered to support Op 'CudnnRNNCanonicalToParams' used by {{node a}}",
        "T=DT_FLOAT",
    ),
    row(
        "type that no kernel takes",
        several(lambda g: g.const("h", np.float16(1)), node("a", "Rint", "h", T=dtypes.float16)),
        "a",
        "No OpKernel was registered to support Op 'Rint' used by {{node a}}",
        "T in [DT_FLOAT",
    ),
]


@pytest.mark.parametrize("wanted", DEVICES)
async def test_refused_when_a_session_is_made(wanted: Row) -> None:
    async with aexec.Session(good().graph()) as session:
        await check_answers(session)
        g = good()
        wanted.spoil(g)
        graph = g.graph()
        with pytest.raises(errors.OpError) as caught:
            aexec.Session(graph)
        check_error(caught.value, wanted)
        before = session.graph.to_bytes()
        more = GraphBuilder()
        wanted.spoil(more)
        with pytest.raises(errors.OpError):
            await session.extend(more.graph_def)
        assert session.graph.to_bytes() == before
        await check_answers(session)
        # Nodes that a run does not need are none of its business if the session is told so.
        async with aexec.Session(graph, config=aexec.SessionConfig(place_pruned_graph=True)) as pruned:
            await check_answers(pruned)


def enter(name: str, value: str, frame: str, dtype: Any = F) -> Spoil:
    return node(name, "Enter", value, T=dtype, frame_name=frame.encode(), parallel_iterations=1)


RUNS = [
    row(
        "constant with too little content",
        node("a", "Const", dtype=F, value=tensor(F, (2,), tensor_content=b"1234567")),
        "a",
        "Cannot parse tensor from proto: expected 8 bytes of tensor_content, got 7",
    ),
    row(
        "constant with too much content",
        node("a", "Const", dtype=F, value=tensor(F, (), tensor_content=b"12345678")),
        "a",
        "expected 4 bytes of tensor_content, got 8",
    ),
    row(
        "constant of another type than it says",
        node("a", "Const", dtype=I, value=tensor(F, (), float_val=[1])),
        "a",
        "Type mismatch between value (float) and dtype (int32)",
    ),
    row(
        "string constant that holds handles",
        node("a", "Const", dtype=dtypes.string, value=tensor(dtypes.resource, ())),
        "a",
        "Type mismatch between value (resource) and dtype (string)",
    ),
    row(
        "integer constant that is quantised",
        node("a", "Const", dtype=dtypes.int8, value=tensor(dtypes.qint8, (), int_val=[1])),
        "a",
        "Type mismatch between value (qint8) and dtype (int8)",
    ),
    row(
        "constant of a petabyte in a few bytes",
        node("a", "Const", dtype=F, value=tensor(F, (2**20, 2**20, 2**10), float_val=[1])),
        "a",
        "[1048576,1048576,1024]",
        error=errors.ResourceExhaustedError,
    ),
    row(
        "string constant with broken lengths",
        node("a", "Const", dtype=dtypes.string, value=tensor(dtypes.string, (2,), tensor_content=b"\x05a")),
        "a",
        "Cannot parse tensor from proto",
    ),
    row(
        "bool constant that is no bool",
        node("a", "Const", dtype=dtypes.bool_, value=tensor(dtypes.bool_, (1,), tensor_content=b"\x07")),
        "a",
        "expected bytes 0 and 1 as bool content",
    ),
    row(
        "inputs from different frames",
        several(enter("e", "c", "w"), node("a", "AddV2", "c", "e", T=F)),
        "a",
        "{{node a}} has inputs from different frames. The input {{node ",
        "is in frame 'w'",
        "is in frame ''",
    ),
    row(
        "control input from another frame",
        several(enter("e", "c", "w"), node("a", "Square", "c", "^e", T=F)),
        "a",
        "{{node a}} has inputs from different frames",
    ),
    row(
        "exit outside of any frame",
        node("a", "Exit", "c", T=F),
        "a",
        "The Exit {{node a}} is not inside a frame",
    ),
    row("frame without a name", enter("a", "c", ""), "a", "The Enter {{node a}} must have a frame name"),
    row(
        "frame with two parents",
        several(
            enter("e1", "c", "outer"),
            enter("e2", "e1", "inner"),
            enter("e3", "c", "inner"),
            node("out1", "Exit", "e2", T=F),
            node("out2", "Exit", "out1", T=F),
            node("out3", "Exit", "e3", T=F),
            node("a", "AddV2", "out2", "out3", T=F),
        ),
        "inner",
        "frame 'inner'",
        "already has the parent",
    ),
    row(
        "two LoopConds in one frame",
        several(
            enter("e", "b", "w", dtypes.bool_),
            node("l1", "LoopCond", "e"),
            node("l2", "LoopCond", "e"),
            node("both", "LogicalAnd", "l1", "l2"),
            node("a", "Exit", "both", T=dtypes.bool_),
        ),
        "l2",
        "A while loop has more than one LoopCond node",
    ),
    row(
        "placeholder that is not fed",
        node("a", "Placeholder", dtype=F, shape=[2]),
        "a",
        "You must feed a value for placeholder tensor 'a' with dtype float and shape [2]",
    ),
    row(
        "call of a function that fails",
        several(
            library(
                function(
                    "f",
                    "name: 'n' op: 'CheckNumerics' input: 'x' attr { key: 'T' value { type: DT_FLOAT } } "
                    "attr { key: 'message' value { s: 'oops' } }",
                    ret="key: 'z' value: 'n:output:0'",
                )
            ),
            lambda g: g.const("nan", np.float32("nan")),
            node("a", "f", "nan"),
        ),
        "a/n",
        "oops",
    ),
    row(
        "function that calls itself for ever",
        several(
            library(function("f", "name: 'n' op: 'f' input: 'x'", ret="key: 'z' value: 'n:z:0'")), node("a", "f", "c")
        ),
        "",
        "Function f: calls are nested more than 100 deep",
        error=errors.ResourceExhaustedError,
    ),
]


@pytest.mark.parametrize("wanted", RUNS)
async def test_refused_by_the_run_that_needs_it(wanted: Row) -> None:
    g = good()
    wanted.spoil(g)
    async with aexec.Session(g.graph()) as session:
        await check_answers(session)
        for _ in range(2):
            with pytest.raises(errors.OpError) as caught:
                await session.run([], {"x:0": [1, 1]}, targets=["a"])
            check_error(caught.value, wanted)
        await check_answers(session)


BYTES = {
    "garbage": b"This is no protocol buffer at all.",
    "wrong wire type": b"\x0d\x01\x02\x03\x04\x0f",
    "cut off": good().graph_def.SerializeToString()[:-7],
    "length beyond the end": b"\x0a\xff\xff\xff\xff\x0f",
    "endless varint": b"\x08" + b"\xff" * 20,
    "name that is no UTF-8": b"\x0a\x04\x0a\x02\xff\xfe",
    "nested too deeply": b"\x0a\x7f" * 200,
}


@pytest.mark.parametrize("data", BYTES.values(), ids=[name.replace(" ", "_") for name in BYTES])
async def test_bytes_that_are_no_graph(data: bytes) -> None:
    async with aexec.Session(good().graph()) as session:
        with pytest.raises(INVALID, match="Cannot parse GraphDef"):
            aexec.Graph.from_bytes(data)
        with pytest.raises(INVALID, match="Cannot parse GraphDef"):
            await session.extend(data)
        await check_answers(session)


@pytest.mark.parametrize("text", ["node {", "node { nme: 'a' }", "nodes", "node { name: 3 }", "\0"])
def test_text_that_is_no_graph(text: str) -> None:
    with pytest.raises(INVALID, match="Cannot parse GraphDef from text"):
        aexec.Graph.from_text(text)


@pytest.mark.parametrize("text", ["", "{", "3", '{"node": 3}', '{"nodes": []}', '{"node": [{"name": 3}]}', "null x"])
def test_json_that_is_no_graph(text: str) -> None:
    with pytest.raises(INVALID, match="Cannot parse GraphDef from JSON"):
        aexec.Graph.from_json(text)


_FUNC = 'func { attr { key: "b" value { '


@pytest.mark.parametrize(
    "text",
    [
        'node { attr { key: "f" value { ' + _FUNC * 40 + "} } } " * 40 + "} } }",
        'node { attr { key: "f" value { ' + _FUNC * 2000,
        'node { name: "\ud800" }',
        "x" * 10**6,
        "versions { producer: " + "9" * 5000 + " }",
    ],
)
def test_hostile_text(text: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="Cannot parse GraphDef from text") as caught:
        aexec.Graph.from_text(text)
    assert len(caught.value.message.encode()) < 5000


@pytest.mark.parametrize(
    "text", ["[" * 10**5, '{"node":' * 10**5, '{"versions": 3}', '{"node": [{"attr": {"a": 3}}]}', "3"]
)
def test_hostile_json(text: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="Cannot parse GraphDef from JSON"):
        aexec.Graph.from_json(text)


ONES = np.ones(2, np.float32)
REQUESTS = [
    ("unknown fetch", "z:0", {}, (), NOT_FOUND, ("FetchOutputs node z:0: not found",)),
    ("fetch that is nearly a name", "yy:0", {}, (), NOT_FOUND, ("did you mean 'y'",)),
    ("fetch of a bad port", "y:1", {}, (), INVALID, ("FetchOutputs y:1: output index too large, must be < 1",)),
    ("fetch of a huge port", f"y:{10**25}", {}, (), INVALID, ("output index too large",)),
    ("fetch of a control output", ["^y"], {}, (), NOT_FOUND, ("^y",)),
    ("empty fetch", [""], {}, (), NOT_FOUND, ("not found",)),
    ("fetch of two ports", "y:0:0", {}, (), NOT_FOUND, ("y:0:0",)),
    ("fetch that is a number", 3, {}, (), INVALID, ("invalid type int",)),
    ("fetch that is None", [None], {}, (), INVALID, ("invalid type NoneType",)),
    ("nothing asked for", (), {"x:0": ONES}, (), INVALID, ("Must specify at least one target to fetch or execute.",)),
    ("unknown target", [], {}, ["train"], NOT_FOUND, ("PruneForTargets: Some target nodes not found: train",)),
    ("target that is nearly a name", [], {}, ["yy"], NOT_FOUND, ("did you mean 'y'",)),
    ("target with a port", [], {}, ["y:0"], NOT_FOUND, ("y:0",)),
    ("unknown feed", "y:0", {"z:0": ONES}, (), NOT_FOUND, ("FeedInputs node z:0: not found",)),
    ("feed that is nearly a name", "y:0", {"xx:0": ONES}, (), NOT_FOUND, ("did you mean 'x'",)),
    ("feed of a bad port", "y:0", {"x:1": ONES}, (), INVALID, ("FeedInputs x:1: output index too large",)),
    ("feed of a control output", "y:0", {"^x": ONES}, (), NOT_FOUND, ("^x",)),
    ("feed whose key is a number", "y:0", {0: ONES}, (), INVALID, ("A feed's key must be a tensor or its name",)),
    ("fed twice", "y:0", {"x": ONES, "x:0": ONES}, (), INVALID, ("fed more than once",)),
    ("fed by another type", "y:0", {"x:0": np.ones(2, np.int64)}, (), INVALID, ("arg[0] to be float but int64",)),
    ("fed by bools", "y:0", {"x:0": np.ones(2, bool)}, (), INVALID, ("to be float but bool is provided",)),
    ("fed by strings", "y:0", {"x:0": ["a", "b"]}, (), INVALID, ("to be float but", "x:0")),
    ("fed by objects", "y:0", {"x:0": [object(), None]}, (), INVALID, ("x:0",)),
    ("fed by complex numbers", "y:0", {"x:0": [1j, 2]}, (), INVALID, ("to be float but complex128",)),
    ("fed by a ragged list", "y:0", {"x:0": [[1, 2], [3]]}, (), INVALID, ("Cannot feed x:0",)),
    ("fed by None", "y:0", {"x:0": None}, (), INVALID, ("x:0",)),
    ("fed by a dict", "y:0", {"x:0": {"a": 1}}, (), INVALID, ("x:0",)),
    ("fed by dates", "y:0", {"x:0": np.array(["2020-01-01"], "datetime64[D]")}, (), INVALID, ("x:0",)),
    ("fed by a wrong rank", "y:0", {"x:0": 1.0}, (), INVALID, ("shape () for Tensor x:0, which has shape [?]",)),
    ("int32 fed by floats", "i2:0", {"i:0": 1.5}, (), INVALID, ("arg[0] to be int32 but",)),
    ("int32 fed by what does not fit", "i2:0", {"i:0": 2**31}, (), INVALID, ("a value does not fit int32",)),
    ("int32 fed by what fits nothing", "i2:0", {"i:0": 2**70}, (), INVALID, ("i:0",)),
    ("not fed", "y:0", {}, (), INVALID, ("You must feed a value for placeholder tensor 'x' with dtype float",)),
    (
        "incompatible shapes",
        "y:0",
        {"x:0": np.ones(3)},
        (),
        INVALID,
        ("Incompatible shapes: [3] vs. [2]", "{{node y}}"),
    ),
    ("fetch of a dead output", "s:0", {}, (), INVALID, ("Retval[0] does not have value",)),
    ("fetch of a dead output among others", ["i:0", "s:0"], {}, (), INVALID, ("Retval[1] does not have value",)),
    ("fetch of an op without outputs", "n:0", {}, (), INVALID, ("output index too large, must be < 0",)),
]


def for_requests() -> GraphBuilder:
    g = good()
    g("i2", "Identity", "i", T=I)
    g("s", "Switch", "i", "b", T=I)
    g("n", "NoOp")
    return g


@pytest.mark.parametrize(
    ("fetches", "feeds", "targets", "error", "words"),
    [pytest.param(*r[1:], id=r[0].replace(" ", "_")) for r in REQUESTS],
)
async def test_bad_requests(fetches: Any, feeds: Any, targets: Any, error: Any, words: tuple[str, ...]) -> None:
    async with aexec.Session(for_requests().graph()) as session:
        for _ in range(2):
            with pytest.raises(errors.OpError) as caught:
                await session.run(fetches, feeds, targets)
            assert type(caught.value) is error, caught.value
            for text in words:
                assert text in str(caught.value)
        with pytest.raises(error):
            await session.start(fetches, feeds, targets)
        assert session.steps == ()
        await check_answers(session)


def extension(*spoils: Spoil, producer: int = 2474) -> proto.GraphDef:
    g = GraphBuilder(producer)
    several(*spoils)(g)
    return g.graph_def


ONE_FUNCTION = library(function("f", SQUARE))
OTHER_FUNCTION = library(function("f", SQUARE.replace("Square", "Neg")))
EXTENSIONS = [
    ("name taken", extension(node("y", "NoOp")), INVALID, "GraphDef argument to Extend includes node 'y', which was"),
    ("another producer", extension(node("a", "NoOp"), producer=1395), INVALID, "Can't extend GraphDef at version 2474"),
    ("unknown input", extension(node("a", "Square", "z", T=F)), INVALID, "Node 'a': Unknown input node 'z'"),
    ("wrong type", extension(node("a", "Square", "y", T=I)), INVALID, "was passed float from y:0 incompatible"),
    ("bad port", extension(node("a", "Square", "y:2", T=F)), INVALID, "invalid output 2 of source node y"),
    ("unknown op", extension(node("a", "Sqare", "y", T=F)), NOT_FOUND, "Op type not registered 'Sqare'"),
    ("one good, one bad", extension(node("a", "NoOp"), node("d", "NoOp", "^z")), INVALID, "Unknown input node '^z'"),
    ("another function of a name", extension(OTHER_FUNCTION), INVALID, "a different function with the same name"),
    ("function that is not there", extension(call("a", "nobody")), INVALID, 'Failed to find function "nobody"'),
    ("no such device", extension(node("a", "NoOp", device="/gpu:3")), INVALID, "Cannot assign a device"),
    ("no kernel", extension(node("a", "Rint", "h", T=dtypes.float16)), INVALID, "No OpKernel was registered"),
    ("for newer readers", extension(versions(min_consumer=9999)), INVALID, "min consumer version 9999"),
]


@pytest.mark.parametrize(
    ("message", "error", "words"), [pytest.param(*r[1:], id=r[0].replace(" ", "_")) for r in EXTENSIONS]
)
async def test_bad_extensions(message: proto.GraphDef, error: Any, words: str) -> None:
    g = good()
    g.const("h", np.float16(1))
    ONE_FUNCTION(g)
    graph = g.graph()
    async with aexec.Session(graph) as session:
        before = session.graph.to_bytes()
        await check_answers(session)
        with pytest.raises(errors.OpError) as caught:
            await session.extend(message)
        assert type(caught.value) is error, caught.value
        assert words in str(caught.value)
        assert session.graph.to_bytes() == graph.to_bytes() == before
        await check_answers(session)
        # A good extension is still taken, and so is the same function again.
        await session.extend(extension(node("a", "Square", "y", T=F), ONE_FUNCTION, call("called", "f")))
        np.testing.assert_array_equal(await session.run("a:0", {"x:0": [0, 0]}), [1, 4])
        np.testing.assert_array_equal(await session.run("called:0", {"x:0": [3, 4]}), [9, 16])


async def test_closed_session_is_not_extended() -> None:
    session = aexec.Session(good().graph())
    await session.close()
    with pytest.raises(errors.CancelledError, match=r"Session has been closed\."):
        await session.extend(extension(node("a", "NoOp")))


class TestWhatIsAccepted:
    """The neighbours of what is refused."""

    @pytest.mark.parametrize("name", ["a", "A.b/c-d_e", ".a", "9", "a>b/c>d", "a/", "a//b", "x" * 1000])
    async def test_names(self, name: str) -> None:
        g = good()
        g(name, "Square", "c", T=F)
        async with aexec.Session(g.graph()) as session:
            np.testing.assert_array_equal(await session.run(f"{name}:0"), [1, 4])

    async def test_inputs_of_later_nodes_and_repeated_controls(self) -> None:
        g = good()
        g("a", "Square", "later:0", "^i", "^i", "^c", T=F)
        g("later", "Square", "c", T=F)
        graph = g.graph()
        assert len(graph.node("a").control_inputs) == 2
        async with aexec.Session(graph) as session:
            np.testing.assert_array_equal(await session.run("a:0"), [1, 16])

    async def test_attrs_that_nobody_knows(self, caplog: pytest.LogCaptureFixture) -> None:
        g = good()
        g("a", "Square", "c", T=F, from_the_future=7, _internal=attr(type=9999))
        async with aexec.Session(g.graph()) as session:
            np.testing.assert_array_equal(await session.run("a:0"), [1, 4])
        assert "from_the_future" in caplog.text
        assert "_internal" not in caplog.text

    async def test_outputs_that_share_an_allocation(self, caplog: pytest.LogCaptureFixture) -> None:
        """Where an output's memory comes from changes no result: each is an array of its own here."""
        g = good()
        scope = {"_scoped_allocator": attr(list=Attr.ListValue(i=[0, 7]))}
        g("one", "Square", "c", T=F, **scope)
        g("other", "Neg", "c", T=F, **scope)
        graph = g.graph()
        async with aexec.Session(graph) as session:
            one, other = await session.run(["one:0", "other:0"])
        np.testing.assert_array_equal([one, other], [[1, 4], [-1, -2]])
        assert not np.shares_memory(one, other)
        assert not caplog.text
        kept = {node.name: node.attr for node in graph.to_graph_def().node}
        assert list(kept["other"]["_scoped_allocator"].list.i) == [0, 7]

    @pytest.mark.parametrize("value", [attr(i=1), attr(s=b"loc:@c"), attr(list=Attr.ListValue(i=[1])), attr(type=1)])
    async def test_colocation_of_another_kind_says_nothing(self, value: proto.AttrValue) -> None:
        g = good()
        g("a", "Square", "c", T=F, _class=value)
        async with aexec.Session(g.graph()) as session:
            np.testing.assert_array_equal(await session.run("a:0"), [1, 4])

    async def test_old_producers_may_use_ops_removed_since(self, caplog: pytest.LogCaptureFixture) -> None:
        g = GraphBuilder(producer=6)
        g.const("c", np.array([1, 3, 2], np.float32))
        g("a", "TopK", "c", k=1, T=F)
        assert len(g.graph()) == 2

    async def test_more_output_shapes_than_outputs(self, caplog: pytest.LogCaptureFixture) -> None:
        g = good()
        g("a", "Square", "x", T=F, _output_shapes=[PartialTensorShape([2]), PartialTensorShape([5])])
        graph = g.graph()
        assert graph.tensor("a:0").shape == PartialTensorShape([2])
        assert "_output_shapes" in caplog.text

    def test_graph_without_nodes(self) -> None:
        assert len(aexec.Graph.from_bytes(b"")) == 0
        assert len(aexec.Graph.from_text("")) == 0
        assert len(aexec.Graph.from_json("{}")) == 0
