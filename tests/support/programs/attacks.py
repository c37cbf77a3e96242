"""Small calls that cost much, because the inputs by which costs are counted are empty, or repeat one value.

`attack(op, seed)` is a valid call with the changes that an attacker of a server would make: zeros beside huge sizes in
shapes, a value that is repeated millions of times, splits of a million rows, huge numbers among attrs and where sizes
are expected, and lists and queues of very many elements. `chained_attack` is the same as a graph without feeds: other
ops make the call's inputs, and another op consumes its outputs.
"""

from __future__ import annotations

import random
from functools import cache
from math import prod
from typing import Any

import numpy as np

from aexec.framework import dtypes
from aexec.framework.shape import PartialTensorShape
from tests.kernels import kernel_calls
from tests.support.programs.extreme_calls import Call, ExtremeCall, recorded
from tests.support.programs.graphs import GraphBuilder

__all__ = ["attack", "chained_attack"]

# Sizes beside a size of 0, sizes of arrays that repeat a value, and sizes of lists and queues.
_HOLLOW = [100_000, 1_000_000, 3_000_000, 10**8, 2**40]
_REPEATED = [30_000, 300_000, 3_000_000]
_COUNTS = [5, 2000, 100_000, 1_000_000]
# Replacements of numbers that may be sizes.
_NUMBERS = [0, 1, 3000, 50_000, 1_000_000, 10**8, 2**31 - 1, 2**40]
_MOST_ELEMENTS = 10**7
_FEW = 16
_TRIES = 40


def attack(op: str, seed: int) -> ExtremeCall:
    """Return a call of an op, determined by the seed."""
    call = _attacked(op, seed).graph()
    call.as_it_is = seed % 2 == 0
    return call


def _attacked(op: str, seed: int) -> Call:
    rng = random.Random(f"{op} attack {seed}")
    call = _good(rng, op)
    attrs, inputs = dict(call.attrs), list(call.inputs)
    for _ in range(_TRIES):
        call.attrs, call.inputs = dict(attrs), list(inputs)
        _change(call)
        if call.is_accepted():  # calls that the shape function refuses do not reach the kernel
            break
    return call


def _good(rng: random.Random, op: str) -> Call:
    call = Call(rng, op, plain=True)
    good = recorded().get(op) or _of_strings().get(op)
    if good:
        call.repeat(rng.choice(good))
        return call
    call.count = rng.choice(_COUNTS)
    call.shape = rng.choice([(2,), (4, 3), (0, call.count), (call.count, 0)])
    for _ in range(_TRIES):
        call.draw()
        _say_what_fits(call)
        if call.is_accepted():
            break
    return call


def _say_what_fits(call: Call) -> None:
    """Fill in inputs that are valid for lists, queues, tables and variables."""
    is_update = "Apply" in call.op or "Assign" in call.op
    for i, name in enumerate(call.input_names()):
        value = call.inputs[i]
        if isinstance(value, tuple):
            continue
        if name in _FITTING:
            call.inputs[i] = np.array(call.rng.choice(_FITTING[name]), value.dtype)
        elif is_update:
            fits = call.shape if name in _LIKE_VARIABLES else ()
            one = np.array(b"1", object) if value.dtype.hasobject else np.ones((), value.dtype)
            call.inputs[i] = np.broadcast_to(one, fits)


_LIKE_VARIABLES = ("grad", "delta", "value", "ref", "alpha_grad")
_FITTING: dict[str, list[Any]] = {
    "element_shape": [-1, -1, [0], [2]],
    "index": [0, 1],
    "indices": [[0, 1, 0], [0, 1]],
    "n": [1, 3],
    "num_elements": [1, 3, 100_000],
    "leading_dims": [[], [1, 2]],
}


# Changes


def _change(call: Call) -> None:
    rng = call.rng
    arrays = [i for i, x in enumerate(call.inputs) if not isinstance(x, tuple)]
    numbers = [i for i in arrays if call.inputs[i].dtype.kind in "iu" and 0 < call.inputs[i].size <= _FEW]
    ints = [a for a in call.op_def.attrs if a.type in ("int", "list(int)") and a.allowed is None]
    kinds = ["rows"] * 4 * bool(arrays) + ["repeat"] * 3 * bool(arrays)
    kinds += ["number"] * 3 * bool(numbers) + ["attr"] * bool(ints)
    for kind in rng.choices(kinds, k=rng.choice([1, 1, 2])) if kinds else ():
        if kind == "rows":
            _empty(call, rng.choice(arrays))
        elif kind == "repeat":
            _repeat(call, rng.choice(arrays))
        elif kind == "number":
            _enlarge_number(call, rng.choice(numbers))
        else:
            call.spoil_attr(rng.choice(ints), _NUMBERS)


def _empty(call: Call, position: int) -> None:
    """Make one axis empty and another one very long, in all inputs that agree in it."""
    rng, array = call.rng, call.inputs[position]
    old = (1,) * (2 - array.ndim) + array.shape
    gone, long = rng.sample(range(len(old)), 2)
    _resize(call, position, {gone: 0, long: rng.choice(_HOLLOW)}, old)


def _repeat(call: Call, position: int) -> None:
    """Make one axis very long, with all elements equal."""
    rng, array = call.rng, call.inputs[position]
    old = array.shape or (1,)
    if array.size:
        _resize(call, position, {rng.randrange(len(old)): rng.choice(_REPEATED)}, old)


def _resize(call: Call, position: int, sizes: dict[int, int], old: tuple[int, ...]) -> None:
    alike = call.rng.random() < 0.85
    for i, other in enumerate(call.inputs):
        if isinstance(other, tuple) or (i != position and not alike):
            continue
        before = old if i == position else other.shape
        shape = [
            sizes[axis] if axis in sizes and axis < len(old) and size == old[axis] else size
            for axis, size in enumerate(before)
        ]
        if prod(shape) <= _MOST_ELEMENTS and prod(size or 1 for size in shape) < 2**56:
            call.inputs[i] = _of_shape(other, shape)


def _of_shape(array: Any, shape: list[int]) -> Any:
    """Return an array of a shape that repeats the first element of another."""
    if array.size:
        return np.broadcast_to(array.reshape(-1)[:1].reshape(()), shape)
    return np.broadcast_to(np.array(b"", object), shape) if array.dtype.hasobject else np.zeros(shape, array.dtype)


def _enlarge_number(call: Call, position: int) -> None:
    rng = call.rng
    array = call.inputs[position] = call.inputs[position].copy()
    for _ in range(rng.choice([1, 2]) if 0 < array.size <= _FEW else 0):  # an earlier change may have been made
        array.flat[rng.randrange(array.size)] = min(int(np.iinfo(array.dtype).max), rng.choice(_NUMBERS))


# Graphs without feeds


def chained_attack(op: str, seed: int) -> ExtremeCall:
    """Return a graph that contains a call of an op, `y`, determined by the seed."""
    call = _attacked(op, seed)
    rng, graph = call.rng, call.graph()
    builder = GraphBuilder(call.producer)
    for node in graph.graph_def.node:
        value = graph.feeds.get(f"{node.name}:0")
        if value is None or node.attr["dtype"].type in (20, 21):
            builder.graph_def.node.add().CopyFrom(node)
        else:
            _add_value(builder, node.name, value, dtypes.as_dtype(node.attr["dtype"].type), rng)
    placeholders = {f"{node.name}:0" for node in builder.graph_def.node if node.op == "Placeholder"}
    fed = {name: value for name, value in graph.feeds.items() if name in placeholders}
    chained = ExtremeCall(op, builder.graph_def, fed, graph.fetches, as_it_is=False, elements=graph.elements)
    if rng.random() < 0.5:
        _add_consumer(chained, builder, call)
    return chained


def _add_value(builder: GraphBuilder, name: str, value: Any, dtype: Any, rng: random.Random) -> None:
    """Add a node that makes a value; a constant value is made by an op that needs few bytes for it."""
    dtype = dtypes.string if value.dtype.hasobject else dtype
    if value.base is None and value.size:
        builder.const(name, value, dtype)
        return
    one = value.reshape(-1)[0] if value.size else _zero(dtype)
    builder.const(f"{name}s", list(value.shape), dtypes.int64)
    made = rng.choice(["Fill", "BroadcastTo", "Tile", "ZerosLike", "Const"])
    if made == "Const":
        _add_const(builder, name, value.shape, one, dtype)
        return
    builder.const(f"{name}o", np.full((1,) * value.ndim if made == "Tile" else (), one, dtype.np), dtype)
    if made == "Fill":
        builder(name, "Fill", f"{name}s", f"{name}o", T=dtype, index_type=dtypes.int64)
    elif made == "BroadcastTo":
        builder(name, "BroadcastTo", f"{name}o", f"{name}s", T=dtype, Tidx=dtypes.int64)
    elif made == "Tile":
        builder(name, "Tile", f"{name}o", f"{name}s", T=dtype, Tmultiples=dtypes.int64)
    else:
        builder(f"{name}f", "Fill", f"{name}s", f"{name}o", T=dtype, index_type=dtypes.int64)
        builder(name, "ZerosLike", f"{name}f", T=dtype)


def _zero(dtype: Any) -> Any:
    return b"" if dtype is dtypes.string else np.zeros((), dtype.np)[()]


def _add_const(builder: GraphBuilder, name: str, shape: tuple[int, ...], one: Any, dtype: Any) -> None:
    """Add a constant whose message has one value for all its elements."""
    builder.const(name, np.full((1,), one, dtype.np), dtype)
    tensor = builder.graph_def.node[-1].attr["value"].tensor
    tensor.tensor_shape.CopyFrom(PartialTensorShape(shape).to_proto())


def _add_consumer(chained: ExtremeCall, builder: GraphBuilder, call: Call) -> None:
    """Add a node `z` of another op that consumes the outputs of `y`."""
    try:
        given = call.op_def.output_types(call.attrs)
    except Exception:
        return
    slots = [i for i, dtype in enumerate(given) if dtype in _consumers()]
    if not slots:
        return
    slot = call.rng.choice(slots)
    other = call.rng.choice(_consumers()[given[slot]])
    consumer = Call(call.rng, other.op)
    consumer.repeat(other)
    types = consumer.op_def.input_types(consumer.attrs)
    if any(value.dtype != dtype.np for value, dtype in zip(consumer.inputs, types, strict=True)):
        return
    position = call.rng.choice([i for i, dtype in enumerate(types) if dtype is given[slot]])
    names = []
    for i, (value, dtype) in enumerate(zip(consumer.inputs, types, strict=True)):
        names.append(f"y:{slot}" if i == position else builder.const(f"z{i}", value, dtype))
    builder("z", other.op, *names, **{n: value for n, value in consumer.attrs.items() if value is not None})
    chained.fetches = [f"z:{i}" for i in range(len(consumer.op_def.output_types(consumer.attrs)))]
    chained.targets.append("z")


@cache
def _of_strings() -> dict[str, list[kernel_calls.KernelCall]]:
    """Return valid calls of ops on strings."""
    found: dict[str, list[kernel_calls.KernelCall]] = {}
    for call in kernel_calls.load_of_strings():
        found.setdefault(call.op, []).append(call)
    return found


@cache
def _consumers() -> dict[Any, list[kernel_calls.KernelCall]]:
    """Return valid calls by the types of their inputs."""
    found: dict[Any, list[kernel_calls.KernelCall]] = {}
    for call in (*kernel_calls.load(), *kernel_calls.load_of_strings()):
        for dtype in dict.fromkeys(call.construction(np).input_types):
            found.setdefault(dtype, []).append(call)
    return found
