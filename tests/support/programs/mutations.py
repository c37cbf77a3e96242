"""Random mutations of graphs: of their bytes, or of their nodes, edges, attrs and tensors.

Every mutation is a function of a message and a `random.Random`, so a failure can be repeated.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from aexec import proto
from aexec.framework import dtypes

__all__ = ["MUTATIONS", "mutate_bytes"]

_INTS = [0, 1, -1, 2, 3, 7, 100, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**63 - 1, -(2**63)]
_TYPES = [d.enum for d in dtypes.ALL]
_NAMES = ["", "a b", "_x", "^", "x:0", "a/b", "a" * 300, "é", "\0", "Const", "CPU:0"]
_DEVICES = ["/cpu:0", "/device:CPU:9", "/gpu:0", "/nonsense", "/job:worker/task:3", "cpu", "//", "\0"]

Mutation = Callable[[proto.GraphDef, random.Random], None]


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Change, remove, repeat or cut off some bytes."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if not changed:
            break
        at = rng.randrange(len(changed))
        kind = rng.randrange(6)
        if kind <= 1:
            changed[at] = rng.randrange(256)
        elif kind == 2:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 3:
            del changed[at : at + rng.randint(1, 8)]
        elif kind == 4:
            changed[at:at] = bytes(changed[at : at + rng.randint(1, 30)])
        else:
            del changed[at:]
    return bytes(changed)


def _scope(graph_def: proto.GraphDef, rng: random.Random) -> Any:
    """Return the repeated field of nodes to change: the graph's, sometimes a function's."""
    functions = graph_def.library.function
    if functions and rng.random() < 0.5:
        return rng.choice(functions).node_def
    return graph_def.node


def _pick(items: Sequence[Any], rng: random.Random) -> Any:
    return items[rng.randrange(len(items))] if len(items) else None


def _node(graph_def: proto.GraphDef, rng: random.Random) -> Any:
    return _pick(_scope(graph_def, rng), rng)


def _source(graph_def: proto.GraphDef, rng: random.Random) -> str:
    """Return an input string, mostly of an existing node."""
    node = _node(graph_def, rng)
    name = node.name if node is not None and rng.random() < 0.95 else rng.choice(_NAMES)
    kind = rng.randrange(8)
    if kind == 0:
        return f"^{name}"
    if kind == 1:
        return f"{name}:{rng.choice([0, 1, 2, 10**12])}"
    return f"{name}:1" if kind == 2 else str(name)


def drop_node(graph_def: proto.GraphDef, rng: random.Random) -> None:
    nodes = _scope(graph_def, rng)
    if len(nodes):
        del nodes[rng.randrange(len(nodes))]


def duplicate_node(graph_def: proto.GraphDef, rng: random.Random) -> None:
    nodes = _scope(graph_def, rng)
    node = _pick(nodes, rng)
    if node is not None:
        copy = nodes.add()
        copy.CopyFrom(node)
        if rng.random() < 0.8:
            copy.name = f"{node.name}_copy{len(nodes)}"


def rename_node(graph_def: proto.GraphDef, rng: random.Random) -> None:
    node, other = _node(graph_def, rng), _node(graph_def, rng)
    if node is not None and other is not None:
        node.name = other.name if rng.random() < 0.5 else rng.choice(_NAMES)


def rewire_input(graph_def: proto.GraphDef, rng: random.Random) -> None:
    node = _node(graph_def, rng)
    if node is not None and len(node.input):
        node.input[rng.randrange(len(node.input))] = _source(graph_def, rng)


def add_input(graph_def: proto.GraphDef, rng: random.Random) -> None:
    node = _node(graph_def, rng)
    if node is not None:
        node.input.insert(rng.randint(0, len(node.input)), _source(graph_def, rng))


def drop_input(graph_def: proto.GraphDef, rng: random.Random) -> None:
    node = _node(graph_def, rng)
    if node is not None and len(node.input):
        del node.input[rng.randrange(len(node.input))]


def swap_inputs(graph_def: proto.GraphDef, rng: random.Random) -> None:
    node = _node(graph_def, rng)
    if node is not None and len(node.input) > 1:
        inputs = list(node.input)
        rng.shuffle(inputs)
        node.input[:] = inputs


def change_op(graph_def: proto.GraphDef, rng: random.Random) -> None:
    """Replace an op by another op of the same graph, with or without its attrs."""
    node, other = _node(graph_def, rng), _node(graph_def, rng)
    if node is None or other is None:
        return
    node.op = other.op if rng.random() < 0.9 else rng.choice(_NAMES)
    if rng.random() < 0.7:
        for name in other.attr:
            if name not in node.attr or rng.random() < 0.5:
                node.attr[name].CopyFrom(other.attr[name])


def _random_value(rng: random.Random) -> proto.AttrValue:
    value = proto.AttrValue()
    kind = rng.randrange(9)
    if kind == 0:
        value.i = rng.choice(_INTS)
    elif kind == 1:
        value.f = rng.choice([0.0, -1.0, 1e38, float("nan"), float("inf")])
    elif kind == 2:
        value.b = rng.random() < 0.5
    elif kind == 3:
        value.s = rng.choice([b"", b"NHWC", b"\xff", b"loc:@x", b"x" * 100])
    elif kind == 4:
        value.type = rng.choice(_TYPES)
    elif kind == 5:
        for _ in range(rng.randrange(4)):
            value.shape.dim.add(size=rng.choice(_INTS))
        value.shape.unknown_rank = rng.random() < 0.2
    elif kind == 6:
        value.list.i.extend(rng.choice(_INTS) for _ in range(rng.randrange(5)))
    elif kind == 7:
        value.placeholder = "T"
    else:
        value.func.name = "nobody"
    return value


def change_attr(graph_def: proto.GraphDef, rng: random.Random) -> None:
    """Drop an attr, replace it by any value, or change it a little."""
    node = _node(graph_def, rng)
    if node is None or not len(node.attr):
        return
    name = rng.choice(sorted(node.attr))
    kind = rng.randrange(8)
    if kind == 0:
        del node.attr[name]
    elif kind == 1:
        node.attr[name].CopyFrom(_random_value(rng))
    else:
        _disturb(node.attr[name], rng)


def _disturb(value: proto.AttrValue, rng: random.Random) -> None:
    member = value.WhichOneof("value")
    if member == "i":
        value.i = rng.choice(_INTS)
    elif member == "f":
        value.f = rng.choice([0.0, -1.0, 1e38, float("nan")])
    elif member == "b":
        value.b = not value.b
    elif member == "s":
        value.s = rng.choice([b"", b"NCHW", b"VALID", value.s + b"x"])
    elif member == "type":
        value.type = rng.choice(_TYPES)
    elif member == "shape":
        _disturb_shape(value.shape, rng)
    elif member == "tensor":
        _disturb_tensor(value.tensor, rng)
    elif member == "list":
        _disturb_list(value.list, rng)
    elif member == "func":
        value.func.name += rng.choice(["", "x"])


def _disturb_shape(shape: proto.TensorShapeProto, rng: random.Random) -> None:
    kind = rng.randrange(4)
    if kind == 0 or not shape.dim:
        shape.dim.add(size=rng.choice(_INTS))
    elif kind == 1:
        del shape.dim[rng.randrange(len(shape.dim))]
    elif kind == 2:
        shape.dim[rng.randrange(len(shape.dim))].size = rng.choice(_INTS)
    else:
        shape.unknown_rank = not shape.unknown_rank


def _disturb_list(values: Any, rng: random.Random) -> None:
    fields = values.ListFields()
    if not fields:
        values.i.append(rng.choice(_INTS))
        return
    descriptor, elements = fields[0]
    kind = rng.randrange(3)
    at = rng.randrange(len(elements))
    if kind == 0:
        del elements[at]
    elif kind == 1 and descriptor.name in ("i", "type"):
        elements[at] = rng.choice(_INTS if descriptor.name == "i" else _TYPES)
    elif descriptor.name in ("i", "type", "s", "f", "b"):
        elements.append(elements[at])
    elif descriptor.name == "shape":
        _disturb_shape(elements[at], rng)


def _disturb_tensor(tensor: proto.TensorProto, rng: random.Random) -> None:
    kind = rng.randrange(6)
    if kind == 0:
        _disturb_shape(tensor.tensor_shape, rng)
    elif kind == 1:
        tensor.dtype = rng.choice(_TYPES)
    elif kind == 2:
        tensor.tensor_content = tensor.tensor_content[: rng.randint(0, len(tensor.tensor_content))]
    elif kind == 3 and tensor.tensor_content:
        tensor.tensor_content = mutate_bytes(tensor.tensor_content, rng)
    else:
        for descriptor, values in tensor.ListFields():
            if descriptor.name in ("int_val", "int64_val"):
                low, high = (-(2**31), 2**31 - 1) if descriptor.name == "int_val" else (-(2**63), 2**63 - 1)
                values[rng.randrange(len(values))] = min(max(rng.choice(_INTS), low), high)
            elif descriptor.name in ("float_val", "double_val"):
                values[rng.randrange(len(values))] = rng.choice([0.0, -1.0, 1e30, float("nan"), float("inf")])
            elif descriptor.name in ("string_val", "bool_val"):
                del values[rng.randrange(len(values))]


def change_tensor(graph_def: proto.GraphDef, rng: random.Random) -> None:
    """Change the value of a constant."""
    constants = [n.attr["value"].tensor for n in _scope(graph_def, rng) if n.op == "Const" and "value" in n.attr]
    if constants:
        _disturb_tensor(rng.choice(constants), rng)


def change_type(graph_def: proto.GraphDef, rng: random.Random) -> None:
    """Replace one data type by another, in one node or everywhere."""
    nodes = _scope(graph_def, rng)
    old, new = rng.choice(_TYPES), rng.choice(_TYPES)
    node = _pick(nodes, rng)
    if node is not None:
        used = [v.type for v in node.attr.values() if v.WhichOneof("value") == "type"]
        old = rng.choice(used) if used else old
    for one in nodes if rng.random() < 0.7 else [node] if node is not None else []:
        for value in one.attr.values():
            if value.WhichOneof("value") == "type" and value.type == old:
                value.type = new
            elif value.WhichOneof("value") == "list":
                value.list.type[:] = [new if t == old else t for t in value.list.type]
            elif value.WhichOneof("value") == "tensor" and value.tensor.dtype == old and rng.random() < 0.5:
                value.tensor.dtype = new


def change_device(graph_def: proto.GraphDef, rng: random.Random) -> None:
    node = _node(graph_def, rng)
    if node is not None:
        node.device = rng.choice(_DEVICES)


def change_function(graph_def: proto.GraphDef, rng: random.Random) -> None:
    """Change the signature or the returns of a function."""
    function = _pick(graph_def.library.function, rng)
    if function is None:
        return
    kind = rng.randrange(5)
    arguments = rng.choice([function.signature.input_arg, function.signature.output_arg])
    if kind == 0 and len(arguments):
        arguments[rng.randrange(len(arguments))].type = rng.choice(_TYPES)
    elif kind == 1 and len(arguments):
        del arguments[rng.randrange(len(arguments))]
    elif kind == 2 and function.ret:
        del function.ret[rng.choice(sorted(function.ret))]
    elif kind == 3 and function.ret:
        function.ret[rng.choice(sorted(function.ret))] = _source(graph_def, rng)
    else:
        function.signature.name = rng.choice([*_NAMES, *(f.signature.name for f in graph_def.library.function)])


def change_versions(graph_def: proto.GraphDef, rng: random.Random) -> None:
    graph_def.versions.producer = rng.choice([-1, 0, 5, 7, 20, 134, 2474, 2**31 - 1])
    if rng.random() < 0.2:
        graph_def.versions.min_consumer = rng.choice([0, 2474, 2475])


MUTATIONS: tuple[Mutation, ...] = (
    drop_node,
    duplicate_node,
    rename_node,
    rewire_input,
    rewire_input,
    add_input,
    drop_input,
    swap_inputs,
    change_op,
    change_op,
    change_attr,
    change_attr,
    change_attr,
    change_tensor,
    change_tensor,
    change_type,
    change_device,
    change_function,
    change_versions,
)
