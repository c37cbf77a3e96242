"""Constants in files of their own, which are mapped into memory instead of being read."""

from __future__ import annotations

import math
import mmap
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.io.files import open_regular, reporting, text_path
from aexec.kernels.common.files import blocking

__all__: list[str] = []


def _mapped(path: str, dtype: DType, dims: tuple[int, ...]) -> Any:
    """The first elements of a file, read-only; pages are read when they are used."""
    needed = math.prod(dims) * dtype.np.itemsize
    with reporting(path), open_regular(path) as file:
        try:
            region = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise errors.InvalidArgumentError(f"{path}; Invalid argument: the file is empty") from None
    if len(region) < needed:
        raise errors.InternalError(f"Readonly memory region has wrong length ({len(region)}) when allocating {needed}")
    elements = np.frombuffer(region, np.uint8, needed)
    # Any byte but 0 is true; NumPy expects the byte 1.
    values = elements != 0 if dtype is dtypes.bool_ else elements.view(dtype.np)
    return values.reshape(dims)


@kernel("ImmutableConst", cost=blocking)
def immutable_const(c: OpKernelConstruction) -> Compute:
    """Return a constant whose bytes, in C order, are the file `memory_region_name`."""
    dtype, shape, path = c.attr("dtype"), c.attr("shape"), text_path(c.attr("memory_region_name"))
    if dtype in (dtypes.resource, dtypes.variant):
        raise errors.InvalidArgumentError("Resource and variant dtypes are invalid for this op.")
    if dtype is dtypes.string:
        raise errors.UnimplementedError("Sorry, DT_STRING is not currently supported for ImmutableConstOp.")
    if not shape.is_fully_defined:
        raise errors.InvalidArgumentError(f"Attr shape of ImmutableConst must be fully defined, not {shape}")
    dims = tuple(shape.dims)
    return lambda: _mapped(path, dtype, dims)
