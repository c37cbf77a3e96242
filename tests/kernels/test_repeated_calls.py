"""A kernel that answered other calls before answers as one that is new: what it keeps of a call has a complete key.

The calls are those of `kernel_calls`, and neighbours of them: the same bytes in another shape, the same shape with
other values, a zero with another sign.  They come in random order to one kernel, each several times.  An input is
sometimes a constant, the same array each time, and sometimes a buffer that has other values the next time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import proto
from aexec.framework import errors
from aexec.framework.op_contract import op_registry
from aexec.kernels.array.constant_inputs import freeze
from tests.kernels import kernel_calls
from tests.kernels.kernel_calls import KernelCall
from tests.support.programs.seeds import Seeds

# Inputs of more elements have no neighbours: what is kept is kept of shapes, axes and the like.
_FEW = 16
_NEIGHBOURS = 10

# Besides the stateful ones.
_DRAWN = {"ExtractGlimpse", "ExtractGlimpseV2"}

# Their shapes must be known when a graph is made.
_KNOWN_SHAPES = {"BatchToSpaceND", "IFFTND", "ParallelConcat", "SpaceToBatchND"}

Inputs = tuple[Any, ...]


@cache
def nodes() -> dict[str, list[list[KernelCall]]]:
    """The recorded calls by op and by node; without those of ops whose answers are drawn at random."""
    found: dict[str, dict[bytes, list[KernelCall]]] = {}
    for call in kernel_calls.load():
        if call.op not in _DRAWN and not call.construction(np).op_def.is_stateful:
            of_op = found.setdefault(call.op, {})
            of_op.setdefault(call.node.SerializeToString(deterministic=True), []).append(call)
    return {op: list(of_op.values()) for op, of_op in found.items()}


def neighbours(inputs: Inputs) -> Iterator[Inputs]:
    """The same inputs but for one of them."""
    for position, x in enumerate(inputs):
        if 0 < x.size <= _FEW:
            for other in _other_shapes(x) if x.size > 1 or x.ndim else [x.reshape(1), *_other_values(x)]:
                yield (*inputs[:position], other, *inputs[position + 1 :])
            for other in _other_values(x):
                yield (*inputs[:position], other, *inputs[position + 1 :])


def _other_shapes(x: Any) -> Iterator[Any]:
    shapes = {(x.size,), (1, *x.shape), x.shape[::-1], x.shape[1:] if x.shape[:1] == (1,) else (*x.shape, 1)}
    yield from (x.reshape(shape) for shape in sorted(shapes - {x.shape}))


def _other_values(x: Any) -> Iterator[Any]:
    yield np.ascontiguousarray(x[::-1] if x.ndim else x)
    if x.dtype.kind not in "Vb":
        yield np.where(x == 0, -x, x).astype(x.dtype)
        yield np.where(x == x.max(), x.min(), x).astype(x.dtype)


def answer(compute: Callable[..., Any], explain: Any, inputs: Inputs) -> Any:
    """What comes of a call, to be compared: types, shapes and bytes, or the error's text."""
    try:
        with np.errstate(all="ignore"):
            outputs = compute(*inputs)
    except Exception as error:
        if explain is not None and not isinstance(error, errors.OpError):
            error = explain(error, *inputs)
        return f"{type(error).__name__}: {error}"
    return _content(outputs if isinstance(outputs, tuple) else (outputs,))


def _content(outputs: Iterable[Any]) -> Any:
    return [None if x is None else (x.dtype, x.shape, _bytes(np.asarray(x))) for x in outputs]


def _bytes(x: Any) -> bytes:
    """All NaNs are one."""
    if x.dtype.kind in "fc":
        x = np.where(np.isnan(x), x.dtype.type(np.nan), x)
    return bytes(x.tobytes())


class Node:
    """A kernel that lives on, and those that are new for each call.

    Args:
        calls: of one node.
        rng: decides about neighbours and their order.
    """

    def __init__(self, calls: list[KernelCall], rng: random.Random) -> None:
        self._call = calls[0]
        self._rng = rng
        self._one = self._built()
        self._buffers: dict[Any, Any] = {}
        own = [call.inputs for call in calls]
        others = [other for inputs in own for other in neighbours(inputs)]
        chosen = own + rng.sample(others, min(_NEIGHBOURS, len(others)))
        self._calls = [tuple(freeze(x.copy()) for x in inputs) for inputs in chosen]

    def _built(self) -> tuple[Callable[..., Any], Any]:
        c = self._call.construction(np)
        built = self._call.registration(c).build(c)
        return built.compute, built.explain

    def check(self) -> None:
        """AssertionError for a call that another one changed."""
        for number, expected in self._in_order():
            given = tuple(self._as_given(at, x) for at, x in enumerate(self._calls[number]))
            self._compare(answer(*self._one, given), expected, given)

    async def check_in_session(self) -> None:
        """The same of steps of one session, whose plans keep things too; all dimensions are unknown there."""
        graph = self._graph()
        fetches = [graph.node("y").output(at) for at in range(graph.node("y").num_outputs)]
        async with aexec.Session(graph) as session:
            for number, expected in self._in_order():
                feeds = {f"x{at}:0": x for at, x in enumerate(self._calls[number])}
                try:
                    found = _content(await session.run(fetches, feeds))
                except errors.OpError as error:
                    found = "error" if isinstance(expected, str) else str(error)
                self._compare(found, "error" if isinstance(expected, str) else expected, feeds)

    def _in_order(self) -> Iterator[tuple[int, Any]]:
        """Each call several times: its number, and what a new kernel answers."""
        expected = [answer(*self._built(), tuple(x.copy() for x in inputs)) for inputs in self._calls]
        order = [*range(len(expected))] * 2
        self._rng.shuffle(order)
        for number in order:
            yield number, expected[number]

    def _compare(self, found: Any, expected: Any, given: Any) -> None:
        assert found == expected, f"{self._call.node}\n{given}\ngives {found}, alone {expected}"

    def _graph(self) -> aexec.Graph:
        message, types = proto.GraphDef(), self._call.construction(np).input_types
        for at, dtype in enumerate(types):
            fed = message.node.add(name=f"x{at}", op="Placeholder")
            fed.attr["dtype"].type = dtype.enum
            fed.attr["shape"].shape.unknown_rank = True
        node = message.node.add()
        node.CopyFrom(self._call.node)
        node.name = "y"
        node.input[:] = [f"x{at}" for at in range(len(types))]
        if "_class" in node.attr:
            del node.attr["_class"]  # colocated with nodes that are not here
        return aexec.Graph.from_bytes(message.SerializeToString())

    def _as_given(self, position: int, x: Any) -> Any:
        if self._rng.random() < 0.5:
            return x
        buffer = self._buffers.setdefault((position, x.shape, x.dtype), np.empty_like(x))
        buffer[...] = x
        return buffer


@pytest.mark.parametrize("part", range(8))
def test_answers_do_not_depend_on_the_calls_before(part: int) -> None:
    """One node of each op."""
    rng = random.Random(part)
    for _, of_op in sorted(nodes().items())[part::8]:
        Node(max(of_op, key=len), rng).check()


def steps() -> list[list[KernelCall]]:
    """A node of each op that GraphDefs may have whatever is fed."""
    ops = op_registry.global_registry
    removed = {op for op in nodes() if ops.lookup(op).op_def.deprecation is not None}
    return [max(of_op, key=len) for op, of_op in sorted(nodes().items()) if op not in removed | _KNOWN_SHAPES]


async def test_steps_do_not_depend_on_the_steps_before() -> None:
    for calls in steps()[::12]:
        await Node(calls, random.Random(1)).check_in_session()


@pytest.mark.soak
async def test_steps_do_not_depend_on_the_steps_before_for_all_ops() -> None:
    for seed in range(3):
        for calls in steps():
            await Node(calls, random.Random(seed)).check_in_session()


@pytest.mark.soak
def test_answers_do_not_depend_on_the_calls_before_in_many_orders() -> None:
    seeds = Seeds(30)
    for seed in seeds:
        rng = random.Random(f"order {seed}")
        for of_op in nodes().values():
            for calls in of_op:
                with seeds.trying(seed):
                    Node(calls, rng).check()
    seeds.check()
