"""Handles of the first kind: a ref to two strings, container and name.  Readers and tables of old graphs have them."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.ref_cell import RefCell
from aexec.framework.resource_manager import ContainerInfo, ResourceManager, handle_from_tensor
from aexec.framework.shape import PartialTensorShape, shape_text

__all__ = ["lookup_either", "old_handle"]

R = TypeVar("R")


def old_handle(info: ContainerInfo) -> RefCell:
    """The handle to a resource, as a cell with its names."""
    names = np.array([info.container.encode(), info.name.encode()], object)
    return RefCell(dtypes.string, PartialTensorShape([2]), names)


def lookup_either(resources: ResourceManager, handle: Any, resource_type: type[R]) -> R:
    """The resource that a handle of either kind names.

    Raises:
        NotFoundError: there is none.
        InvalidArgumentError: it is a handle to something else.
    """
    if not isinstance(handle, RefCell):
        return resources.lookup_handle(handle_from_tensor(handle, resource_type), resource_type)
    names = handle.read("handle")
    if names.shape != (2,):
        raise errors.InvalidArgumentError(f"Handle must have two elements, but had shape: {shape_text(names.shape)}")
    container, name = (str(part, "utf-8", "replace") for part in names.tolist())
    return resources.lookup(container, name, resource_type)
