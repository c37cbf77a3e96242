"""FunctionDefs for tests, from the same language as op definitions.

f = function_def("Twice(x: T) -> y: T", "T: type", body=[("n", "AddV2", ["x", "x"], {"T": "$T"})], ret={"y": "n:z:0"})
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aexec import proto
from aexec.framework.op_contract.op_def_builder import OpDefBuilder, parse_signature
from aexec.framework.op_contract.op_registry import global_registry
from aexec.framework.wire import attr_value
from aexec.framework.wire.attr_value import NameAttrList, Placeholder

Body = Sequence[tuple[str, str, Sequence[str], Mapping[str, Any]]]


def function_def(
    signature: str,
    *attrs: str,
    body: Body,
    ret: Mapping[str, str],
    control_ret: Mapping[str, str] | None = None,
    stateful: bool = False,
) -> proto.FunctionDef:
    """Return a FunctionDef.

    Args:
        signature, attrs: as for `register_op`.
        body: (name, op, inputs, attrs) of each node; an attr `"$T"` is a placeholder.
        ret, control_ret: result → tensor of the body, control output → node.
    """
    name, inputs, outputs = parse_signature(signature)
    builder = OpDefBuilder(name)
    for spec in attrs:
        builder.attr(spec)
    for spec in inputs:
        builder.input(spec)
    for spec in outputs:
        builder.output(spec)
    for output in control_ret or ():
        builder.control_output(output)
    if stateful:
        builder.set_is_stateful()
    function = proto.FunctionDef(signature=builder.finalize().to_proto(), ret=ret, control_ret=control_ret or {})
    for node_name, op, node_inputs, node_attrs in body:
        node = function.node_def.add(name=node_name, op=op, input=node_inputs)
        kinds = {a.name: a.type for a in global_registry.lookup(op).op_def.attrs} if global_registry.has(op) else {}
        for key, value in node_attrs.items():
            if isinstance(value, str) and value.startswith("$"):
                value = Placeholder(value[1:])
            node.attr[key].CopyFrom(attr_value.encode(value, kinds.get(key)))
    return function


def calls(name: str, **attrs: Any) -> NameAttrList:
    """Return the value of an attr that names a function."""
    return NameAttrList(name, attrs)
