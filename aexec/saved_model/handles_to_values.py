"""Makes nodes take the values of variables instead of handles to them.

Reads become identities, gathers from a variable become gathers from a tensor, and a function that is called with a
handle gets a twin that takes the value.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.wire import tensor_codec

__all__ = ["FunctionTwins", "take_values"]

# Ops that call functions: (attrs that name them, attr of the arguments' types, inputs before the arguments).
_CALLS = {
    **dict.fromkeys(("PartitionedCall", "StatefulPartitionedCall"), (("f",), "Tin", 0)),
    **dict.fromkeys(("If", "StatelessIf"), (("then_branch", "else_branch"), "Tin", 1)),
    **dict.fromkeys(("Case", "StatelessCase"), (("branches",), "Tin", 1)),
    **dict.fromkeys(("While", "StatelessWhile"), (("cond", "body"), "T", 0)),
}


def take_values(
    node: proto.NodeDef, types: Mapping[int, DType], twins: FunctionTwins, *, in_function: bool = False
) -> list[proto.NodeDef]:
    """A node for inputs that were handles and are values now, with the other nodes that it needs.

    Args:
        node: the node, unchanged.
        types: input position → type of the value there.
        twins: makes functions that take values.
        in_function: inputs are named as in the body of a function.

    Raises:
        UnimplementedError: it needs the variable itself, not only its value.
    """
    attr = node.attr
    if node.op in _CALLS:
        return [_call(node, types, twins)]
    if list(types) == [0]:
        value_type = proto.AttrValue(type=types[0].enum)
        if node.op in ("Identity", "ReadVariableOp"):
            return [_rewritten(node, "Identity", T=value_type)]
        if node.op == "VariableShape":
            return [_rewritten(node, "Shape", T=value_type, out_type=attr["out_type"])]
        if node.op == "ResourceGather":
            axis = _scalar(f"{node.name}/axis", attr["batch_dims"].i)
            kinds = {"Tparams": value_type, "Tindices": attr["Tindices"], "Taxis": axis.attr["dtype"]}
            gather = _rewritten(node, "GatherV2", batch_dims=proto.AttrValue(i=attr["batch_dims"].i), **kinds)
            gather.input.insert(2, f"{axis.name}:output:0" if in_function else axis.name)
            return [axis, gather]
    raise errors.UnimplementedError(
        f"Node '{node.name}' ({node.op}) needs a variable itself, not only its value: it cannot be frozen",
        node=node.name,
        op=node.op,
    )


def _call(node: proto.NodeDef, types: Mapping[int, DType], twins: FunctionTwins) -> proto.NodeDef:
    function_attrs, types_attr, before = _CALLS[node.op]
    message = proto.NodeDef()
    message.CopyFrom(node)
    arguments = {position - before: dtype for position, dtype in types.items()}
    for name in function_attrs:
        attr = message.attr[name]
        for function in attr.list.func if attr.WhichOneof("value") == "list" else [attr.func]:
            # The body of a loop returns what it takes.
            function.name = twins.twin(function.name, arguments, returned=name == "body")
    for position, dtype in arguments.items():
        message.attr[types_attr].list.type[position] = dtype.enum
    return message


def _rewritten(node: proto.NodeDef, op: str, **attrs: proto.AttrValue) -> proto.NodeDef:
    return proto.NodeDef(name=node.name, op=op, input=node.input, device=node.device, attr=attrs)


def _scalar(name: str, value: int) -> proto.NodeDef:
    message = proto.NodeDef(name=name, op="Const")
    message.attr["dtype"].type = dtypes.int32.enum
    message.attr["value"].tensor.CopyFrom(tensor_codec.to_proto(np.int32(value)))
    return message


class FunctionTwins:
    """Functions that take values where those of a library take handles.

    Attributes:
        library: the functions, with the twins made so far.
    """

    def __init__(self, library: proto.FunctionDefLibrary) -> None:
        self.library = proto.FunctionDefLibrary()
        self.library.CopyFrom(library)
        self._functions = {function.signature.name: function for function in library.function}
        self._names: dict[tuple[str, tuple[tuple[int, int], ...], bool], str] = {}

    def twin(self, name: str, types: Mapping[int, DType], *, returned: bool = False) -> str:
        """The name of the twin of a function for values of these types at these positions.

        Args:
            returned: the values are returned at the same positions, as from the body of a loop.

        Raises:
            InvalidArgumentError: there is no such function.
            UnimplementedError: its body needs a variable itself, not only its value.
        """
        key = (name, tuple(sorted((position, dtype.enum) for position, dtype in types.items())), returned)
        if key not in self._names:
            if name not in self._functions:
                raise errors.InvalidArgumentError(f"Function '{name}' is not defined")
            self._names[key] = self._free_name(f"{name}_frozen")  # before the body is made: it may call itself
            self.library.function.append(self._make(self._functions[name], self._names[key], types, returned))
        return self._names[key]

    def _free_name(self, name: str) -> str:
        taken = {*self._functions, *self._names.values()}
        number, free = 0, name
        while free in taken:
            number += 1
            free = f"{name}_{number}"
        return free

    def _make(
        self, function: proto.FunctionDef, name: str, types: Mapping[int, DType], returned: bool
    ) -> proto.FunctionDef:
        made = proto.FunctionDef()
        made.CopyFrom(function)
        made.signature.name = name
        del made.node_def[:]
        values: dict[str, DType] = {}  # names in the body of former handles
        for position, dtype in types.items():
            argument = made.signature.input_arg[position]
            argument.type = dtype.enum
            del argument.handle_data[:]
            values[argument.name] = dtype
            made.resource_arg_unique_id.pop(position, None)
        _name_identities(function, values)
        renamed = {}  # the output of a read is called `value`, that of an identity `output`
        for node in function.node_def:
            handles = {i: values[ref] for i, ref in enumerate(node.input) if ref in values}
            made.node_def.extend(take_values(node, handles, self, in_function=True) if handles else [node])
            if handles and node.op == "ReadVariableOp":
                renamed[f"{node.name}:value:0"] = f"{node.name}:output:0"
        for node in made.node_def:
            node.input[:] = [renamed.get(ref, ref) for ref in node.input]
        for position, result in enumerate(made.signature.output_arg):
            ref = function.ret[result.name]
            if (ref in values) != (returned and position in types):
                raise errors.UnimplementedError(
                    f"Function '{function.signature.name}' returns a variable: it cannot be frozen"
                )
            if ref in values:
                result.type = values[ref].enum
                del result.handle_data[:]
            made.ret[result.name] = renamed.get(ref, ref)
        return made


def _name_identities(function: proto.FunctionDef, values: dict[str, DType]) -> None:
    """Add the identities that pass a handle on, in whatever order the nodes are."""
    passing = [node for node in function.node_def if node.op == "Identity"]
    found = True
    while found:
        found = False
        for node in passing:
            if node.input[0] in values and f"{node.name}:output:0" not in values:
                values[f"{node.name}:output:0"] = values[node.input[0]]
                found = True
