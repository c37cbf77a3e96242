"""One-op graphs with extreme attrs, shapes and values, made from the op's definition, for tests that run every op.

`extreme_call(op, seed)` depends only on its arguments, so that failures can be repeated. Types are chosen among those
of a kernel, shapes are drawn until the op's shape function accepts them (sometimes a refused one is kept), and numbers
are mostly small, with one extreme number among them. A handle comes from an op that makes handles of its kind.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.op_contract import op_registry
from aexec.framework.shape import PartialTensorShape
from aexec.framework.shape_functions.shape_inference import InferenceContext, Shape
from aexec.framework.wire import node_def
from aexec.framework.wire.attr_value import TensorAttr
from aexec.framework.wire.op_def import ArgDef, AttrDef, OpDef
from aexec.ops.families import FAMILIES
from tests.kernels import kernel_calls
from tests.support.programs.graphs import PRODUCER, GraphBuilder
from tests.support.programs.handles import Maker

__all__ = ["Call", "ExtremeCall", "enlarged_call", "extreme_call", "ops_to_run", "recorded"]

# Ops that call functions, wait for a peer or another step, or end the process on purpose.
_LEFT_OUT = frozenset(
    """_Arg _HostRecv _HostSend _If _Recv _Retval _Send _While Abort BatchFunction Case CollectiveBcastRecv
    CollectiveBcastSend CollectiveGather CollectiveReduce Const ConsumeMutexLock FakeQueue For HostConst If MutexLock
    PartitionedCall Placeholder PlaceholderV2 PlaceholderWithDefault Recv RemoteCall Send StatefulPartitionedCall
    StatelessCase StatelessIf StatelessWhile SymbolicGradient While""".split()
)
_CONTROL_FLOW = "Enter Exit Merge NextIteration Switch LoopCond RefEnter RefExit RefMerge RefNextIteration RefSwitch"
_INTS = [0, 1, 2, 3, 5, -1]
_LARGE_INTS = [100, 10_000, 1_000_000, 10**9, 2**31 - 1, -(2**31), 2**31, 2**62, 2**63 - 1, -(2**63)]
_SIZES = [0, 1, 2, 3, 4, 7]
_LARGE_SIZES = [100, 1000, 10_000, 200_000]
_MOST_ELEMENTS = 300_000
# Numbers of rows of calls that are valid but large: on both sides of small, and of the share of a slice that a call may
# take if an element takes from 1 to 1000 ns.
_ROWS = [400, 2000, 8000, 16_000, 50_000, 150_000, 300_000]
_FLOATS = [0.0, 1.0, -1.0, 0.5, 2.5, 1e-3]
_LARGE_FLOATS = [1e9, -1e15, 1e300, math.inf, -math.inf, math.nan, 1e-300]
_STRINGS = [b"", b"a", b"abc", b"1", b"a,b", b"SAME", b"VALID", b"\xff\xfe", b"UTF-8", b"%s"]
_LARGE_STRINGS = [b"a" * 10_000, b"-" * 200, b"1e999", b"\0", b"(" * 50]
_TRIES = 30
# Elements of a vector where a shape is expected: computing the product of that many numbers would take an hour.
_LONG_VECTOR = 1_000_000


@dataclass
class ExtremeCall:
    """A graph whose node `y` is the call; `x0`, `x1`, … are fed.

    Attributes:
        feeds: tensor name → array.
        fetches: the outputs that can be fetched.
        targets: nodes to run.
        as_it_is: True to run the graph without graph passes.
        elements: number of elements of all inputs.
    """

    op: str
    graph_def: proto.GraphDef
    feeds: dict[str, Any] = field(default_factory=dict)
    fetches: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=lambda: ["y"])
    as_it_is: bool = True
    elements: int = 0

    def __str__(self) -> str:
        node = next(node for node in self.graph_def.node if node.name == "y")
        attrs = ", ".join(f"{name}={_attr_text(value)}" for name, value in sorted(node.attr.items()))
        fed = ", ".join(f"{a.dtype}{list(a.shape)}{_value_text(a)}" for a in self.feeds.values())
        return f"{self.op}({fed}; {attrs})"


def _attr_text(value: proto.AttrValue) -> str:
    return " ".join(str(value).split())[:80]


def _value_text(array: Any) -> str:
    return f"={array.ravel().tolist()}"[:80] if array.size <= 8 else ""


def ops_to_run() -> list[str]:
    """Return the names of aexec's ops that have a kernel for the CPU, and need no function or peer."""
    left_out = _LEFT_OUT | set(_CONTROL_FLOW.split())
    ours = {op for names in FAMILIES.values() for op in names.split()}  # tests register ops of their own
    known = [op for op in kernel_registry.global_registry.ops() if op in ours - left_out]
    return [op for op in known if not _takes_function(op)]


def _takes_function(op: str) -> bool:
    attrs = op_registry.global_registry.lookup(op).op_def.attrs
    return any(attr.type in ("func", "list(func)") for attr in attrs)


def extreme_call(op: str, seed: int) -> ExtremeCall:
    """Return a call of an op, determined by the seed."""
    rng = random.Random(f"{op} {seed}")
    good = recorded().get(op)
    if good and rng.random() < 0.5:
        call = rng.choice(good)
        made = Call(rng, op)
        made.repeat(call)
        made.spoil()
        made.lengthen()
        return made.graph()
    best: Call | None = None
    for _ in range(_TRIES):
        made = Call(rng, op)
        made.draw()
        best = made
        if made.is_accepted() or rng.random() < 0.02:
            break
    assert best is not None
    best.lengthen()
    return best.graph()


def enlarged_call(op: str, seed: int) -> ExtremeCall:
    """Return a valid but large call of an op: calls just below the threshold hold the loop longest.

    Sometimes all values of an input are extreme: special functions take longer for these.
    """
    rng = random.Random(f"{op} enlarged {seed}")
    good = recorded().get(op)
    made = Call(rng, op)
    if good:
        made.repeat(good[seed % len(good)])
    else:
        for _ in range(_TRIES):
            made.draw(extreme=False)
            if made.is_accepted():
                break
    made.grow()
    return made.graph()


@cache
def recorded() -> dict[str, list[kernel_calls.KernelCall]]:
    """Return valid calls by op."""
    calls: dict[str, list[kernel_calls.KernelCall]] = {}
    for call in kernel_calls.load():
        calls.setdefault(call.op, []).append(call)
    return calls


def _of_type(array: Any, dtype: np.dtype[Any]) -> Any:
    """Convert numbers, which some tests pass to kernels in a wider type than graphs have, to the graph's type."""
    return array.astype(dtype) if {array.dtype.kind, dtype.kind} <= set("iufc") else array


class Call:
    """The parts of a call, before it becomes a graph.

    Args:
        plain: use no extreme values.
    """

    def __init__(self, rng: random.Random, op: str, *, plain: bool = False) -> None:
        self.rng = rng
        self.plain = plain
        self.extreme = False
        # Number of elements of lists, queues and the like, and shape of variables.
        self.count = 3
        self.shape: tuple[int, ...] = (4, 3)
        self.op = op
        self.op_def: OpDef = op_registry.global_registry.lookup(op).op_def
        self.attrs: dict[str, Any] = {}
        self.inputs: list[Any] = []

    def repeat(self, call: kernel_calls.KernelCall) -> None:
        """Set the call to a recorded one."""
        attrs = call.construction(np).attrs.items()
        # Remove the folders of test files from file names.
        self.attrs = {name: value.rpartition(b"/")[2] if type(value) is bytes else value for name, value in attrs}
        self.attrs.pop("_class", None)  # the colocated nodes are not in this graph
        types = [dtype.base.np for dtype in self.op_def.input_types(self.attrs)]
        self.inputs = [np.array(value) for value in call.inputs]
        if len(types) == len(self.inputs):
            self.inputs = list(map(_of_type, self.inputs, types))

    @property
    def producer(self) -> int:
        """Return a producer version of graphs in which the op exists."""
        gone = self.op_def.deprecation
        return PRODUCER if gone is None else min(PRODUCER, gone.version - 1)

    def changed(self, inputs: Mapping[int, Any]) -> Call:
        """Return the same call with other inputs at some positions."""
        made = Call(self.rng, self.op, plain=self.plain)
        made.attrs = dict(self.attrs)
        made.inputs = [inputs.get(i, value) for i, value in enumerate(self.inputs)]
        return made

    def input_names(self) -> list[str]:
        """Return the name of the argument that each input belongs to."""
        return [arg.name for arg in self.op_def.inputs for _ in self._types(arg)]

    # Attrs

    def draw(self, *, extreme: bool = True) -> None:
        rng = self.rng
        self.extreme = extreme and rng.random() < 0.6 and not self.plain  # True if one number of the call is extreme
        numbers = {arg.number_attr for arg in (*self.op_def.inputs, *self.op_def.outputs) if arg.number_attr}
        constraints = self._constraints()
        self.attrs = {}
        for attr in self.op_def.attrs:
            if attr.has_default and rng.random() < 0.6:
                self.attrs[attr.name] = attr.default
            elif attr.name in numbers:
                self.attrs[attr.name] = rng.choice([max(attr.minimum or 0, n) for n in (1, 1, 2, 3)])
            else:
                self.attrs[attr.name] = self._attr(attr, constraints.get(attr.name))
        base = rng.choice([[], [], [4], [3], [2, 3], [2, 2], [1, 4], [2, 3, 4], [1, 4, 4, 2]])
        base = [self._size() for _ in base] if rng.random() < 0.7 else list(base)
        self.inputs = []
        for arg in self.op_def.inputs:
            for dtype in self._types(arg):
                self.inputs.append(self._input(arg, dtype, base))

    def _constraints(self) -> dict[str, Any]:
        kernels = [
            k for k in kernel_registry.global_registry.kernels_of(self.op) if k.device_type in ("CPU", "DEFAULT")
        ]
        return dict(self.rng.choice(kernels).constraints) if kernels else {}

    def _attr(self, attr: AttrDef, types: Any) -> Any:
        if attr.is_list:
            kind = attr.type[5:-1]
            count = max(attr.minimum or 0, self.rng.choice([0, 1, 1, 2, 2, 4]))
            return [self._one(attr, kind, types) for _ in range(count)]
        return self._one(attr, attr.type, types)

    def _one(self, attr: AttrDef, kind: str, types: Any) -> Any:
        rng = self.rng
        if kind == "type":
            allowed = sorted(types or attr.allowed or dtypes.ALL, key=lambda t: t.enum)
            allowed = [t for t in allowed if not t.is_ref]
            common = [t for t in allowed if t.name in ("float", "int32", "int64", "string", "float32")]
            return rng.choice(common if common and rng.random() < 0.7 else allowed)
        if attr.allowed is not None:
            return rng.choice(attr.allowed)
        match kind:
            case "int":
                value = self._int()
                return value if attr.minimum is None or attr.is_list else max(attr.minimum, value)
            case "float":
                return self._float()
            case "bool":
                return rng.random() < 0.5
            case "string":
                return rng.choice(_STRINGS)
            case "shape":
                return PartialTensorShape(
                    None if rng.random() < 0.2 else [rng.choice([1, 2, 3]) for _ in range(rng.choice([0, 1, 2]))]
                )
            case "tensor":
                simple = [v for v in self.attrs.values() if isinstance(v, DType) and v.is_simple]
                dtype = simple[0] if simple else dtypes.float32
                return TensorAttr(np.zeros((2,), dtype.np), dtype)
        raise NotImplementedError(kind)

    def _int(self) -> int:
        if self.extreme and self.rng.random() < 0.25:
            self.extreme = False
            return self.rng.choice(_LARGE_INTS)
        return self.rng.choice(_INTS)

    def _float(self) -> float:
        if self.extreme and self.rng.random() < 0.25:
            return self.rng.choice(_LARGE_FLOATS)
        return self.rng.choice(_FLOATS)

    def _size(self) -> int:
        if self.plain:
            return self.rng.choice(_SIZES[1:])
        return self.rng.choice(
            _LARGE_SIZES if self.rng.random() < 0.15 else _SIZES[1:] if self.rng.random() < 0.9 else _SIZES
        )

    # Inputs

    def _types(self, arg: ArgDef) -> list[DType]:
        if arg.type_list_attr:
            return list(self.attrs[arg.type_list_attr])
        dtype = arg.type if arg.type is not None else self.attrs[arg.type_attr]
        return [dtype] * (self.attrs[arg.number_attr] if arg.number_attr else 1)

    def _input(self, arg: ArgDef, dtype: DType, base: list[int]) -> Any:
        if dtype.enum in (20, 21) or arg.is_ref:
            return (arg, dtype)
        rng = self.rng
        kind = rng.random()
        if kind < 0.4:
            shape = list(base)
        elif kind < 0.6:
            shape = []
        elif kind < 0.75:
            shape = [rng.choice([1, 2, 3, 4, max(1, len(base))])]
        elif kind < 0.85:
            shape = [n if rng.random() < 0.5 else 1 for n in base]
        else:
            shape = [self._size() for _ in range(rng.choice([1, 2, 3, 4]))]
        while math.prod(shape) > _MOST_ELEMENTS:
            shape[shape.index(max(shape))] = 2
        return self._values(dtype, shape)

    def _values(self, dtype: DType, shape: list[int]) -> Any:
        rng, count = self.rng, math.prod(shape)
        array = np.empty(count, dtype.np)
        if dtype.np.kind == "O":
            few = [rng.choice(_STRINGS if self.plain or rng.random() < 0.8 else _LARGE_STRINGS) for _ in range(5)]
            array[:] = [few[i % 5] for i in range(count)]
        elif dtype.np.kind in "iu" and count:
            info = np.iinfo(dtype.np)
            few = [min(max(self._int(), info.min), info.max) for _ in range(min(count, 8))]
            array[:] = np.resize(np.array(few, dtype.np), count)
        elif dtype.np.kind == "b":
            array[:] = rng.random() < 0.5
        elif count:
            with np.errstate(all="ignore"):
                few = np.array([self._float() for _ in range(min(count, 8))]).astype(dtype.np)
            array[:] = np.resize(few, count)
        return array.reshape(shape)

    def spoil(self) -> None:
        """Make something of a valid call extreme: an attr, a value, or the size of an input."""
        rng = self.rng
        self.extreme = False
        for _ in range(rng.choice([1, 1, 2])):
            kind = rng.random()
            ints = [a for a in self.op_def.attrs if a.type in ("int", "list(int)", "float") and a.allowed is None]
            if kind < 0.35 and ints:
                self.spoil_attr(rng.choice(ints))
            elif self.inputs and kind < 0.7:
                position = rng.randrange(len(self.inputs))
                array = self.inputs[position]
                if array.size and array.dtype.kind in "iu":
                    info = np.iinfo(array.dtype)
                    array.flat[rng.randrange(array.size)] = min(max(rng.choice(_LARGE_INTS), info.min), info.max)
                elif array.size and array.dtype.kind in "fc":
                    with np.errstate(all="ignore"):
                        array.flat[rng.randrange(array.size)] = rng.choice(_LARGE_FLOATS)
            elif self.inputs:
                self._enlarge(rng.randrange(len(self.inputs)))

    def lengthen(self) -> None:
        """Sometimes make an input that may be a shape very long."""
        vectors = [
            i for i, x in enumerate(self.inputs) if not isinstance(x, tuple) and x.ndim == 1 and x.dtype.kind in "iu"
        ]
        if vectors and self.rng.random() < 0.05:
            i = self.rng.choice(vectors)
            self.inputs[i] = np.full(_LONG_VECTOR, self.rng.choice([1, 3]), self.inputs[i].dtype)

    def spoil_attr(self, attr: AttrDef, large: Sequence[int] = _LARGE_INTS) -> None:
        numbers = {arg.number_attr for arg in (*self.op_def.inputs, *self.op_def.outputs)}
        if attr.name in numbers:
            return
        draw: Callable[[], Any] = (
            (lambda: self.rng.choice(_LARGE_FLOATS)) if attr.type == "float" else (lambda: self.rng.choice(large))
        )
        old = self.attrs[attr.name]
        if isinstance(old, list):
            if old:
                new = list(old)
                new[self.rng.randrange(len(new))] = draw()
                self.attrs[attr.name] = new
        else:
            self.attrs[attr.name] = draw()

    def grow(self) -> None:
        """Enlarge the inputs of a valid call together, and sometimes make all values of one extreme."""
        rng = self.rng
        arrays = [i for i, x in enumerate(self.inputs) if not isinstance(x, tuple) and x.ndim and x.size]
        if not arrays:
            return
        position = rng.choice(arrays)
        self._enlarge(position, _ROWS, alike=1.0)
        if rng.random() < 0.3:
            position = rng.choice(arrays)
            array = self.inputs[position]
            if array.dtype.kind in "fc":
                with np.errstate(all="ignore"):
                    self.inputs[position] = np.full(array.shape, rng.choice(_LARGE_FLOATS)).astype(array.dtype)
            elif array.dtype.kind in "iu":
                info = np.iinfo(array.dtype)
                value = min(max(rng.choice(_LARGE_INTS), info.min), info.max)
                self.inputs[position] = np.full(array.shape, value, array.dtype)

    def _enlarge(self, position: int, sizes: list[int] = _LARGE_SIZES, alike: float = 0.7) -> None:
        array = self.inputs[position]
        if not array.ndim or not array.size:
            return
        axis = self.rng.randrange(array.ndim)
        size = self.rng.choice(sizes)
        rows = max(1, min(size, _MOST_ELEMENTS * array.shape[axis] // array.size))
        # Inputs with as many rows mostly keep the same number of rows.
        old = array.shape[axis]
        for i, other in enumerate(self.inputs):
            if isinstance(other, tuple):
                continue
            as_long = other.ndim > axis and other.shape[axis] == old
            fits = as_long and rows * (other.size // old) <= _MOST_ELEMENTS
            if i == position or (fits and self.rng.random() < alike):
                self.inputs[i] = np.take(other, np.arange(rows) % max(1, other.shape[axis]), axis)

    def is_accepted(self) -> bool:
        """True if the op's shape function accepts the call."""
        data = op_registry.global_registry.lookup(self.op)
        try:
            attrs = node_def.check_attrs(self.op_def, self.attrs)
        except errors.OpError:
            return False
        if data.shape_fn is None:
            return True

        def value(index: int) -> Any:
            given = self.inputs[index]
            return None if isinstance(given, tuple) else given

        try:
            shapes = [Shape(None if isinstance(x, tuple) else x.shape) for x in self.inputs]
            context = InferenceContext(self.op_def, attrs, shapes, evaluate=value)
            data.shape_fn(context)
        except Exception:
            return False
        return True

    # The graph

    def graph(self) -> ExtremeCall:
        builder = GraphBuilder(self.producer)
        call = ExtremeCall(self.op, builder.graph_def)
        maker = Maker(builder, self.op, self.attrs, self.rng, self.count, self.shape)
        names: list[str] = []
        for index, value in enumerate(self.inputs):
            if isinstance(value, tuple):
                names.append(maker.make(f"x{index}", *value))
            else:
                name = f"x{index}"
                builder.placeholder(name, self._dtype_of(index))
                call.feeds[f"{name}:0"] = value
                names.append(name)
        call.elements = sum(value.size for value in call.feeds.values())
        attrs = {name: value for name, value in self.attrs.items() if value is not None}
        builder("y", self.op, *names, *maker.controls, **attrs)
        try:
            types = self.op_def.output_types(self.attrs)
        except Exception:
            types = ()
        call.fetches = [f"y:{i}" for i, t in enumerate(types) if t.base.enum not in (20, 21)]
        return call

    def _dtype_of(self, index: int) -> DType:
        return self.op_def.input_types(self.attrs)[index].base
