"""Iterators: the ops that make them, give them a dataset, and take elements from them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.state.resource_manager import (
    ContainerInfo,
    ResourceHandle,
    handle_from_tensor,
    make_handle_tensor,
)
from aexec.framework.wire import variant
from aexec.kernels.common.handles import anonymous, delete_by_handle
from aexec.kernels.common.variants import boxed
from aexec.kernels.datasets.arguments import ONE_DATASET, Called
from aexec.kernels.datasets.string_handles import from_string_handle, to_string_handle
from aexec.resources.datasets.dataset import NOT_YET, Element, Pass, dataset_of
from aexec.resources.datasets.iterator_position import IteratorPosition
from aexec.resources.datasets.iterator_resource import IteratorResource, check_compatible
from aexec.resources.optional_value import OptionalValue

__all__ = ["checked_element"]


def _of(context: OpKernelContext, handle: Any) -> IteratorResource:
    return context.resources.lookup_handle(handle_from_tensor(handle, IteratorResource), IteratorResource)


# Making iterators


def _made(c: OpKernelConstruction) -> Callable[[str], IteratorResource]:
    """A function that makes the node's iterator, given its name."""
    types, shapes = c.attr("output_types"), c.attr("output_shapes")
    return lambda name: IteratorResource(name, types, shapes)


def _named(c: OpKernelConstruction) -> tuple[Callable[[OpKernelContext], IteratorResource], Any]:
    """A function that finds the iterator with the node's name, or makes it; and the handle to it."""
    make, info = _made(c), ContainerInfo.from_attrs(c.attrs, c.name)
    c.need_context()

    def find(context: OpKernelContext) -> IteratorResource:
        return context.resources.lookup_or_create(info.container, info.name, IteratorResource, lambda: make(info.name))

    return find, make_handle_tensor(ResourceHandle.of_type(IteratorResource, info, c.device))


@kernel("Iterator", "IteratorV2", cost=0)
def iterator(c: OpKernelConstruction) -> Compute:
    types, shapes = c.attr("output_types"), c.attr("output_shapes")
    find, handle = _named(c)

    def compute(context: OpKernelContext) -> Any:
        found = find(context)
        check_compatible(types, shapes, found.types, found.shapes)
        return handle

    return compute


@kernel("AnonymousIterator", "AnonymousIteratorV2", "AnonymousIteratorV3", cost=0)
def anonymous_iterator(c: OpKernelConstruction) -> Compute:
    return anonymous(c, IteratorResource, _made(c), names=True)


@kernel("DeleteIterator", cost=0)
def delete_iterator(c: OpKernelConstruction) -> Compute:
    return delete_by_handle(c, IteratorResource)


@kernel("OneShotIterator", cost=0)
def one_shot_iterator(c: OpKernelConstruction) -> Compute:
    """An iterator over the dataset that a function gives.  It is called within the first step; others wait for it."""
    factory = Called(c, "dataset_factory", ONE_DATASET).with_captured((), ())
    find, handle = _named(c)
    line = asyncio.Lock()

    async def first(context: OpKernelContext, found: IteratorResource) -> Any:
        async with line:
            if not found.has_begun:
                (tensor,) = await factory(context, ())
                found.begin(dataset_of(tensor), context)
        return handle

    def compute(context: OpKernelContext) -> Any:
        found = find(context)
        return handle if found.has_begun else first(context, found)

    return compute


@kernel("MakeIterator", cost=0)
def make_iterator(c: OpKernelConstruction) -> Compute:
    c.need_context()
    return lambda context, dataset, handle: _of(context, handle).begin(dataset_of(dataset), context)


# Taking elements


def checked_element(element: Element, types: list[Any], shapes: list[Any]) -> Any:
    """The element as the outputs of a node, which has promised these types and shapes.  Raises InvalidArgumentError."""
    if len(element) != len(types):
        raise errors.InvalidArgumentError(
            f"Number of components does not match: expected {len(types)} types but got {len(element)}."
        )
    for index, (component, dtype, shape) in enumerate(zip(element, types, shapes, strict=True)):
        if component.dtype != dtype.np:  # a dataset's node promises types that may be others than its input's
            raise errors.InvalidArgumentError(
                f"Data type mismatch at component {index}: expected {dtype} but got {component.dtype}."
            )
        if not shape.is_compatible_with(component.shape):
            raise errors.InvalidArgumentError(
                f"Incompatible shapes at component {index}: expected {shape} but got {list(component.shape)}."
            )
    return element if len(element) != 1 else element[0]


def _get_next(make: Callable[[Element | None, list[Any], list[Any]], Any]) -> Callable[[OpKernelConstruction], Compute]:
    def build(c: OpKernelConstruction) -> Compute:
        types, shapes = list(c.attr("output_types")), list(c.attr("output_shapes"))
        checked: list[IteratorResource] = []
        c.need_context()

        async def later(context: OpKernelContext, found: IteratorResource) -> Any:
            return make(await found.next(context), types, shapes)

        def compute(context: OpKernelContext, handle: Any) -> Any:
            found = _of(context, handle)
            if not checked or checked[0] is not found:
                check_compatible(types, shapes, found.types, found.shapes)
                checked[:] = [found]
            element = found.next_at_once(context)
            return later(context, found) if element is NOT_YET else make(element, types, shapes)

        return compute

    return build


def _outputs(element: Element | None, types: list[Any], shapes: list[Any]) -> Any:
    if element is None:
        raise errors.OutOfRangeError("End of sequence")
    return checked_element(element, types, shapes)


def _optional(element: Element | None, types: list[Any], shapes: list[Any]) -> Any:
    return boxed(OptionalValue(element))


kernel("IteratorGetNext", "IteratorGetNextSync", cost=0)(_get_next(_outputs))
kernel("IteratorGetNextAsOptional", cost=0)(_get_next(_optional))


@kernel("DatasetToSingleElement", cost=0)
def dataset_to_single_element(c: OpKernelConstruction) -> Compute:
    types, shapes = list(c.attr("output_types")), list(c.attr("output_shapes"))
    c.need_context()

    async def compute(context: OpKernelContext, tensor: Any) -> Any:
        one = Pass(c.name, context)
        try:
            elements = one.begin(dataset_of(tensor))
            element = await elements.next(context)
            if element is None:
                raise errors.InvalidArgumentError("Dataset was empty.")
            if await elements.next(context) is not None:
                raise errors.InvalidArgumentError("Dataset had more than one element.")
        finally:
            one.close()
        return checked_element(element, types, shapes)

    return compute


@kernel("DatasetCardinality", "ExperimentalDatasetCardinality", cost=0)
def dataset_cardinality(c: OpKernelConstruction) -> Compute:
    return lambda tensor: np.int64(dataset_of(tensor).cardinality())


# Handles as strings


@kernel("IteratorToStringHandle", cost=0)
def iterator_to_string_handle(c: OpKernelConstruction) -> Compute:
    return to_string_handle(c, IteratorResource)


@kernel("IteratorFromStringHandle", "IteratorFromStringHandleV2", cost=0)
def iterator_from_string_handle(c: OpKernelConstruction) -> Compute:
    return from_string_handle(c, IteratorResource)


@kernel("IteratorGetDevice", "ExperimentalIteratorGetDevice", cost=0)
def iterator_get_device(c: OpKernelConstruction) -> Compute:
    """The name of the device that the iterator is on."""
    c.need_context()

    def compute(context: OpKernelContext, handle: Any) -> Any:
        _of(context, handle)
        return boxed(handle_from_tensor(handle, IteratorResource).device.encode())

    return compute


# Checkpoints

# external_state_policy: refuse to save what depends on state that is not saved.
_FAIL = 2


@kernel("SerializeIterator", cost=0)
def serialize_iterator(c: OpKernelConstruction) -> Compute:
    """A vector of one variant, the iterator's position."""
    if c.attr("external_state_policy") == _FAIL:
        raise errors.UnimplementedError(
            "SerializeIterator cannot tell whether a dataset depends on state that is not saved "
            "(external_state_policy FAIL); use WARN or IGNORE"
        )
    c.need_context()

    def compute(context: OpKernelContext, handle: Any) -> Any:
        return boxed(_of(context, handle).position()).reshape(1)

    return compute


@kernel("DeserializeIterator", cost=0)
def deserialize_iterator(c: OpKernelConstruction) -> Compute:
    """Begins a new pass, and goes through its elements up to the position."""
    c.need_context()

    async def compute(context: OpKernelContext, handle: Any, serialized: Any) -> None:
        value = serialized.item() if serialized.size == 1 else None
        position = variant.get(value, IteratorPosition)
        if position is None:
            raise errors.InvalidArgumentError("The saved state of an iterator is a vector of one IteratorPosition")
        await _of(context, handle).restore(position, context)

    return compute
