"""OpDef and the specification mini-language."""

from __future__ import annotations

import pytest
from google.protobuf import json_format

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.op_contract.op_def_builder import OpDefBuilder, parse_signature
from aexec.framework.shape import UNKNOWN_RANK, PartialTensorShape
from aexec.framework.wire.attr_value import Placeholder
from aexec.framework.wire.op_def import ArgDef, OpDef


def op(*, inputs=(), outputs=(), attrs=(), name="Op") -> OpDef:
    builder = OpDefBuilder(name)
    for spec in attrs:
        builder.attr(spec)
    for spec in inputs:
        builder.input(spec)
    for spec in outputs:
        builder.output(spec)
    return builder.finalize()


def attr(spec: str):
    return op(attrs=[spec]).attrs[0]


# ---- attr specifications


@pytest.mark.parametrize(
    ("spec", "name", "type_", "default", "minimum"),
    [
        ("a: int", "a", "int", None, None),
        ("a:int>=2", "a", "int", None, 2),
        ("a : int >= -5 = -1", "a", "int", -1, -5),
        ("a: list(int) >= 2 = [1, 2]", "a", "list(int)", [1, 2], 2),
        ("a: list(float) = []", "a", "list(float)", [], None),
        ("Tidx: type = DT_INT32", "Tidx", "type", dtypes.int32, None),
        ("a_1: string = 'x'", "a_1", "string", b"x", None),
        ("a: bool = true", "a", "bool", True, None),
        ("s: shape = { unknown_rank: true }", "s", "shape", UNKNOWN_RANK, None),
        ("s: list(shape) = [{ dim { size: 1 } }]", "s", "list(shape)", [PartialTensorShape([1])], None),
        ("f: func", "f", "func", None, None),
        ("f: list(func) = []", "f", "list(func)", [], None),
        ("t: tensor", "t", "tensor", None, None),
    ],
)
def test_attr(spec, name, type_, default, minimum):
    found = attr(spec)
    assert (found.name, found.type, found.minimum, found.allowed) == (name, type_, minimum, None)
    assert found.has_default == (default is not None)
    if default is not None:
        assert found.default == default


@pytest.mark.parametrize(
    ("spec", "type_", "allowed"),
    [
        ("T: {float, int32}", "type", [dtypes.float32, dtypes.int32]),
        ("T: { float32 , DT_HALF, }", "type", [dtypes.float32, dtypes.float16]),
        ("T: list({string, bool})", "list(type)", [dtypes.string, dtypes.bool_]),
        ("T: quantizedtype", "type", [dtypes.qint8, dtypes.quint8, dtypes.qint32, dtypes.qint16, dtypes.quint16]),
        ("T: {quantizedtype, variant}", "type",
         [dtypes.qint8, dtypes.quint8, dtypes.qint32, dtypes.qint16, dtypes.quint16, dtypes.variant]),
        ("p: {'SAME', \"VALID\"}", "string", [b"SAME", b"VALID"]),
        ("p: {'a\\'b', '}'} = '}'", "string", [b"a'b", b"}"]),
        ("p: list({'x'})", "list(string)", [b"x"]),
    ],
)  # fmt: skip
def test_attr_allowed_values(spec, type_, allowed):
    found = attr(spec)
    assert found.type == type_
    assert list(found.allowed) == allowed


def test_compound_types():
    number, real = attr("T: numbertype").allowed, attr("T: realnumbertype").allowed
    assert (number, real) == (attr("T: numerictype").allowed, attr("T: realnumerictype").allowed)
    assert len(number) == 19
    assert [d for d in number if not d.is_complex and not d.is_quantized] == list(real)


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ("a", "expected ':'"),
        ("1a: int", "the name of an attr"),
        ("_a: int", "no name for an attr"),
        ("a: integer", "the type of an attr"),
        ("a: list(list(int))", "the type of an attr"),
        ("a: list(int", r"expected '\)'"),
        ("a: int >= x", "integer as minimum"),
        ("a: float >= 1", "cannot have a minimum"),
        ("a: string >= 1", "cannot have a minimum"),
        ("a: int = 'x'", "value of type int"),
        ("a: int 3", "'>=', '=' or the end"),
        ("a: {float, 'x'}", "either types or strings"),
        ("a: {}", "either types or strings"),
        ("a: {floating}", "'floating' is not a data type"),
        ("a: {float int32}", "',' or '}'"),
        ("a: int >= 2 = 1", "must be at least minimum 2"),
        ("a: list(int) >= 2 = [1]", "Length for attr 'a' of 1 must be at least minimum 2"),
        ("a: {float} = DT_INT32", "of int32 is not in the list of allowed values: float"),
        ("a: {'x', 'y'} = 'z'", 'of "z" is not in the list of allowed values: "x", "y"'),
        ("float: int", "the name of a data type"),
        ("a: int; b", "expected a name"),
    ],
)
def test_attr_refused(spec, error):
    with pytest.raises(errors.InvalidArgumentError, match=error):
        attr(spec)


# ---- argument specifications


def test_arg_kinds():
    made = op(
        attrs=["T: type", "N: int", "M: int >= 0", "L: list(type)", "L0: list(type) >= 0"],
        inputs=["a: float", "b: T", "c: N * T", "d: M*int32", "e: L", "f: Ref(T)", "g: Ref(N * float)", "h: Ref(L0)"],
        outputs=["y: Ref(resource)"],
    )
    assert made.inputs == (
        ArgDef("a", type=dtypes.float32),
        ArgDef("b", type_attr="T"),
        ArgDef("c", type_attr="T", number_attr="N"),
        ArgDef("d", type=dtypes.int32, number_attr="M"),
        ArgDef("e", type_list_attr="L"),
        ArgDef("f", type_attr="T", is_ref=True),
        ArgDef("g", type=dtypes.float32, number_attr="N", is_ref=True),
        ArgDef("h", type_list_attr="L0", is_ref=True),
    )
    # Lengths and type lists have at least one element unless the attr says otherwise.
    assert {a.name: a.minimum for a in made.attrs} == {"T": None, "N": 1, "M": 0, "L": 1, "L0": 0}


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ("X: float", "no name for an argument"),
        ("x", "expected ':'"),
        ("x: U", "'U' is neither a data type nor an attr"),
        ("x: N", "expected attr 'N' of type type, it is of type int"),
        ("x: T * float", "expected attr 'T' of type int, it is of type type"),
        ("x: Z * float", "expected attr 'Z' of type int, it is not declared"),
        ("x: N * L", "both a length"),
        ("x: Ref(T", r"expected '\)'"),
        ("x: T T", "expected the end"),
        ("T: float", "no name for an argument"),
        ("n: float", "duplicate name 'n'"),
    ],
)
def test_arg_refused(spec, error):
    with pytest.raises(errors.InvalidArgumentError, match=error):
        op(attrs=["T: type", "N: int", "L: list(type)", "n: int"], inputs=[spec])


def test_names_share_one_space():
    with pytest.raises(errors.InvalidArgumentError, match="duplicate name 'x' for output: it is an input already"):
        op(inputs=["x: float"], outputs=["x: float"])
    with pytest.raises(errors.InvalidArgumentError, match="duplicate name 'a' for attr"):
        op(attrs=["a: int", "a: float"])


def test_errors_are_reported_together():
    with pytest.raises(errors.InvalidArgumentError) as caught:
        op(name="lower", attrs=["a: what"], inputs=["x: U"], outputs=["y: V"])
    for part in ("Op lower", "CamelCase", "a: what", "'U'", "'V'"):
        assert part in caught.value.message


def test_resource_argument_makes_stateful_but_a_resource_attr_does_not():
    assert op(inputs=["r: resource"]).is_stateful
    assert op(outputs=["r: resource"]).is_stateful
    assert not op(attrs=["T: type = DT_RESOURCE"], inputs=["x: T"]).is_stateful


def test_builder_flags():
    builder = OpDefBuilder("All").control_output("done").doc("Summary.\n\nMore\ntext.").deprecated(7, "Use Any")
    builder.set_is_commutative().set_is_aggregate().set_is_stateful()
    builder.set_allows_uninitialized_input().set_is_distributed_communication()
    made = builder.finalize()
    message = made.to_proto()
    assert message.is_commutative
    assert message.is_aggregate
    assert message.is_stateful
    assert message.allows_uninitialized_input
    assert message.is_distributed_communication
    assert message.control_output == ["done"]
    assert (message.summary, message.description) == ("Summary.", "More\ntext.")
    assert (message.deprecation.version, message.deprecation.explanation) == (7, "Use Any")
    assert OpDef.from_proto(message) == made


def test_builder_refuses_what_is_said_twice():
    builder = OpDefBuilder("Op").deprecated(1, "x").deprecated(2, "y")
    builder.set_shape_fn(print).set_shape_fn(print).control_output("c").control_output("c")
    with pytest.raises(errors.InvalidArgumentError, match=r"(?s)deprecated.*set_shape_fn.*control output"):
        builder.finalize()


# ---- signatures


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NoOp()", ("NoOp", [], [])),
        ("Const() -> output: dtype", ("Const", [], ["output: dtype"])),
        ("MatMul(a: T, b: T) -> product: T", ("MatMul", ["a: T", "b: T"], ["product: T"])),
        ("_Retval(input: T)", ("_Retval", ["input: T"], [])),
        ("F(a: Ref(N * T), b: N*float) -> (c: Ref(T), d: T)",
         ("F", ["a: Ref(N * T)", "b: N*float"], ["c: Ref(T)", "d: T"])),
        ("Lib>Op(x: string)", ("Lib>Op", ["x: string"], [])),
    ],
)  # fmt: skip
def test_parse_signature(text, expected):
    assert parse_signature(text) == expected


@pytest.mark.parametrize(
    "text",
    ["NoOp", "noop()", "F(a)", "F(a: T", "F(a: T) ->", "F(a: T) b: T", "F(a: T,)", "F(a: T) -> b: T)", "F(a: Ref(T)"],
)
def test_parse_signature_refuses(text):
    def define():
        name, inputs, outputs = parse_signature(text)
        op(name=name, attrs=["T: type"], inputs=inputs, outputs=outputs)

    with pytest.raises(errors.InvalidArgumentError):
        define()


# ---- what follows for a node


MIXED = op(
    attrs=["T: type", "N: int >= 0", "L: list(type) >= 0"],
    inputs=["a: float", "b: N * T", "c: L", "d: Ref(T)"],
    outputs=["y: L", "z: N * int64", "w: T"],
)


def test_types_and_ranges():
    attrs = {"T": dtypes.string, "N": 2, "L": [dtypes.int8, dtypes.bool_, dtypes.float16]}
    f32, text = dtypes.float32, dtypes.string
    assert MIXED.input_types(attrs) == (f32, text, text, *attrs["L"], text.ref)
    assert MIXED.output_types(attrs) == (*attrs["L"], dtypes.int64, dtypes.int64, text)
    assert MIXED.input_ranges(attrs) == {"a": (0, 1), "b": (1, 3), "c": (3, 6), "d": (6, 7)}
    assert MIXED.output_ranges(attrs) == {"y": (0, 3), "z": (3, 5), "w": (5, 6)}
    empty = {"T": dtypes.int8, "N": 0, "L": []}
    assert MIXED.input_types(empty) == (f32, dtypes.int8.ref)
    assert MIXED.input_ranges(empty) == {"a": (0, 1), "b": (1, 1), "c": (1, 1), "d": (1, 2)}


def test_outputs_are_fewer_than_inputs_may_be():
    many = {"T": dtypes.int8, "N": 2**16 + 1, "L": []}
    assert len(MIXED.input_types(many)) > 2**16
    listed = {"T": dtypes.int8, "N": 1, "L": [dtypes.int8] * (2**16 + 1)}
    for attrs, attr in ((many, "N"), (listed, "L")):
        for asked in (MIXED.output_types, MIXED.output_ranges):
            with pytest.raises(errors.InvalidArgumentError, match=f"with attr '{attr}', at most 65536 are allowed"):
                asked(attrs)


@pytest.mark.parametrize(
    ("attrs", "error"),
    [
        ({"N": 1, "L": []}, "No attr named 'T' in NodeDef"),
        ({"T": dtypes.int8, "L": []}, "No attr named 'N' in NodeDef"),
        ({"T": dtypes.int8, "N": -1, "L": []}, "< 0"),
        ({"T": dtypes.int8, "N": 2**40, "L": []}, "is too big: 1099511627777"),
        ({"T": Placeholder("X"), "N": 1, "L": []}, r"placeholder.*\$X"),
        ({"T": dtypes.int8, "N": Placeholder("M"), "L": []}, r"placeholder.*\$M"),
        ({"T": dtypes.int8, "N": 0, "L": Placeholder("Ls")}, r"placeholder.*\$Ls"),
    ],
)
def test_types_refused(attrs, error):
    with pytest.raises(errors.InvalidArgumentError, match=error):
        MIXED.input_types(attrs)
    if "T" not in error and "$X" not in error:
        with pytest.raises(errors.InvalidArgumentError):
            MIXED.input_ranges(attrs)


def test_argument_without_any_type():
    message = proto.OpDef(name="f", input_arg=[proto.OpDef.ArgDef(name="x")])
    with pytest.raises(errors.InvalidArgumentError, match='No type fields in ArgDef name: "x"'):
        OpDef.from_proto(message).input_types({})


# ---- text, equality, messages


def test_text():
    made = op(
        name="AddN", attrs=["N: int >= 1", "T: {numbertype, variant}"], inputs=["inputs: N * T"], outputs=["sum: T"]
    )
    assert str(made) == (
        "Op<name=AddN; signature=inputs:N*T -> sum:T; attr=N:int,min=1; attr=T:type,allowed=[DT_FLOAT, DT_DOUBLE, "
        "DT_INT32, DT_UINT8, DT_INT16, DT_INT8, DT_COMPLEX64, DT_INT64, DT_QINT8, DT_QUINT8, DT_QINT32, DT_BFLOAT16, "
        "DT_QINT16, DT_QUINT16, DT_UINT16, DT_COMPLEX128, DT_HALF, DT_UINT32, DT_UINT64, DT_VARIANT]>"
    )
    builder = OpDefBuilder("Op").attr("s: string = 'x'").attr("T: type = DT_INT32").input("r: Ref(T)").input("f: float")
    builder.set_is_stateful().set_allows_uninitialized_input()
    assert str(builder.finalize()) == (
        'Op<name=Op; signature=r:Ref(T), f:float -> ; attr=s:string,default="x"; attr=T:type,default=DT_INT32; '
        "is_stateful=true; allows_uninitialized_input=true>"
    )


def test_equality_ignores_texts_and_the_order_of_attrs():
    one = OpDefBuilder("Op").attr("a: int").attr("b: float = 1").doc("One").finalize()
    other = OpDefBuilder("Op").attr("b: float = 1").attr("a: int").doc("Other").finalize()
    assert one == other
    assert hash(one) == hash(other)
    assert one != OpDefBuilder("Op").attr("a: int").attr("b: float = 2").finalize()
    assert one != OpDefBuilder("Op2").attr("a: int").attr("b: float = 1").finalize()


def test_message_of_a_function_signature_survives():
    text = {
        "name": "body_1",
        "input_arg": [
            {"name": "x", "type": "DT_FLOAT", "description": "first"},
            {"name": "h", "type": "DT_RESOURCE",
             "handle_data": [{"dtype": "DT_INT32", "shape": {"dim": [{"size": "2"}]}}],
             "experimental_full_type": {"type_id": "TFT_TENSOR"}},
        ],
        "output_arg": [{"name": "y", "type_attr": "T", "number_attr": "N", "is_ref": True}],
        "attr": [
            {"name": "T", "type": "type", "allowed_values": {"list": {"type": ["DT_INT8"]}}, "description": "d"},
            {"name": "N", "type": "int", "has_minimum": True, "minimum": "2", "default_value": {"i": "3"}},
            {"name": "l", "type": "list(int)", "default_value": {"list": {}}},
        ],
        "control_output": ["c"],
        "is_stateful": True,
        "description": "text",
    }  # fmt: skip
    message = json_format.ParseDict(text, proto.OpDef())
    assert OpDef.from_proto(message).to_proto() == message
