"""Staging areas: Stage, Unstage, and the families of MapStage and OrderedMapStage.

All nodes with one container and shared_name use one area, whichever of them runs first.
Next to read: `aexec/resources/staging_area.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.abridged_text import abridged_list
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.shape import shape_text
from aexec.framework.state.resource_manager import ContainerInfo
from aexec.kernels.data_flow.keeping import own
from aexec.resources.staging_area import StagingArea, StagingMap

_PREFIXES = ("Map", "OrderedMap")


def _area(c: OpKernelConstruction) -> Callable[[OpKernelContext], StagingArea]:
    info = ContainerInfo.from_attrs(c.attrs, c.name, use_node_name=True)
    limits = c.attr("capacity"), c.attr("memory_limit")
    c.need_context()
    return lambda context: context.resources.lookup_or_create(
        info.container, info.name, StagingArea, lambda: StagingArea(*limits)
    )


def _map(c: OpKernelConstruction) -> Callable[[OpKernelContext], StagingMap]:
    """A function that finds or makes the node's map: a Stage gives the width of tuples, others take parts of tuples."""
    info = ContainerInfo.from_attrs(c.attrs, c.name, use_node_name=True)
    ordered = c.op.startswith("Ordered")
    width = len(c.attr("dtypes")) if c.op.endswith("MapStage") else None
    limits = {"capacity": c.attr("capacity"), "memory_limit": c.attr("memory_limit")}
    c.need_context()

    def find(context: OpKernelContext) -> StagingMap:
        found = context.resources.lookup_or_create(
            info.container, info.name, StagingMap, lambda: StagingMap(width, ordered=ordered, **limits)
        )
        if found.width is None:
            found.width = width
        if found.ordered is not ordered or width not in (None, found.width):
            tuples = "" if width is None else f" of {width} components"
            raise errors.InvalidArgumentError(f"{info.name} is {found!r}, and no map for {c.op}{tuples}")
        return found

    return find


def _outputs(c: OpKernelConstruction, values: tuple[Any, ...], first: int = 0) -> tuple[Any, ...]:
    """Staged values as the node's outputs from number `first` on; raises unless they match the output types."""
    wanted = c.output_types[first:]
    if len(values) != len(wanted):
        raise errors.InvalidArgumentError(f"Mismatch stage/unstage: {len(values)} vs. {len(wanted)}")
    for output, (value, dtype) in enumerate(zip(values, wanted, strict=True), first):
        if value.dtype != dtype.np:
            raise errors.InvalidArgumentError(
                f"Mismatch stage/unstage: Output {output} of type {dtypes.from_numpy(value.dtype)} does not match "
                f"declared output type {dtype} for node {{{{node {c.name}}}}}"
            )
    return values


def _scalar(rule: str, value: Any) -> int:
    if np.ndim(value):
        raise errors.InvalidArgumentError(f"{rule}: {shape_text(np.shape(value))}")
    return int(value)


def _vector(indices: Any, count: int) -> list[int]:
    if not indices.size:
        raise errors.InvalidArgumentError("Indices are empty")
    if indices.size != count:
        raise errors.InvalidArgumentError(f"indices and values don't match: {indices.size} vs. {count}")
    positions: list[int] = indices.ravel().tolist()
    if any(position >= following for position, following in pairwise(positions)):
        raise errors.InvalidArgumentError(f"Indices are not strictly ordered: [{abridged_list(positions)}]")
    return positions


@kernel("Stage", cost=0)
def stage(c: OpKernelConstruction) -> Compute:
    find = _area(c)
    c.take_list()
    positions = range(len(c.input_types))

    async def put(context: OpKernelContext, inputs: list[Any]) -> None:
        area = find(context)
        await own(context, inputs, positions, area.kept)
        await area.put(tuple(inputs), context.cancellation)

    return lambda context, inputs: put(context, inputs)


@kernel("Unstage", cost=0)
def unstage(c: OpKernelConstruction) -> Compute:
    find = _area(c)

    async def compute(context: OpKernelContext) -> Any:
        return _outputs(c, await find(context).get(context.cancellation))

    return compute


@kernel("StagePeek", cost=0)
def stage_peek(c: OpKernelConstruction) -> Compute:
    find = _area(c)

    async def compute(context: OpKernelContext, index: Any) -> Any:
        return _outputs(c, await find(context).peek(_scalar("index must be scalar", index), context.cancellation))

    return compute


def _size(c: OpKernelConstruction) -> Compute:
    find: Callable[[OpKernelContext], Any] = _area(c) if c.op.startswith("Stage") else _map(c)
    return lambda context: np.int32(len(find(context)))


def _clear(c: OpKernelConstruction) -> Compute:
    find: Callable[[OpKernelContext], Any] = _area(c) if c.op.startswith("Stage") else _map(c)
    return lambda context: find(context).clear()


kernel("StageSize", *(f"{prefix}Size" for prefix in _PREFIXES), cost=0)(_size)
kernel("StageClear", *(f"{prefix}Clear" for prefix in _PREFIXES), cost=0)(_clear)


@kernel(*(f"{prefix}Stage" for prefix in _PREFIXES), cost=0)
def map_stage(c: OpKernelConstruction) -> Compute:
    find = _map(c)
    kinds = c.attr("dtypes")
    c.take_list()
    positions = range(2, len(c.input_types))

    async def put(context: OpKernelContext, inputs: list[Any]) -> None:
        indices = _vector(inputs[1], len(positions))
        for index, position in zip(indices, positions, strict=True):
            if 0 <= index < len(kinds) and inputs[position].dtype != kinds[index].np:
                raise errors.InvalidArgumentError(
                    f"Component {index} must be {kinds[index]}, not {dtypes.from_numpy(inputs[position].dtype)}"
                )
        area = find(context)
        await own(context, inputs, positions, area.kept)
        await area.put(
            _scalar("key must be an int64 scalar", inputs[0]), indices, tuple(inputs[2:]), context.cancellation
        )

    return lambda context, inputs: put(context, inputs)


@kernel(*(f"{prefix}{suffix}" for prefix in _PREFIXES for suffix in ("Unstage", "Peek")), cost=0)
def map_unstage_or_peek(c: OpKernelConstruction) -> Compute:
    find, peeks = _map(c), c.op.endswith("Peek")

    async def compute(context: OpKernelContext, key: Any, indices: Any) -> Any:
        positions = _vector(indices, len(c.output_types))
        area = find(context)
        take = area.peek if peeks else area.get
        return _outputs(c, await take(_scalar("key must be an int64 scalar", key), positions, context.cancellation))

    return compute


@kernel(*(f"{prefix}UnstageNoKey" for prefix in _PREFIXES), cost=0)
def map_unstage_no_key(c: OpKernelConstruction) -> Compute:
    find = _map(c)

    async def compute(context: OpKernelContext, indices: Any) -> Any:
        positions = _vector(indices, len(c.output_types) - 1)
        key, values = await find(context).get_any(positions, context.cancellation)
        return (np.int64(key), *_outputs(c, values, 1))

    return compute


@kernel(*(f"{prefix}IncompleteSize" for prefix in _PREFIXES), cost=0)
def map_incomplete_size(c: OpKernelConstruction) -> Compute:
    find = _map(c)
    return lambda context: np.int32(find(context).incomplete)
