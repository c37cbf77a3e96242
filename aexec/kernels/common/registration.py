"""Registers a kernel for the CPU and, as TensorFlow does, for any device that lacks its own (DEFAULT).

On such devices int32 is shape arithmetic and stays in host memory, as strings and handles do; other types live in the
device's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import numpy as np

from aexec.framework import dtypes
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import OpKernelFactory, kernel
from aexec.framework.kernel_contract.op_kernel import DEFAULT_COST, Builder, Cost, OpKernelConstruction

__all__ = ["DEVICE_TYPES", "INDEX", "on_any_device", "on_host"]

INDEX = (dtypes.int32, dtypes.int64)

# Types that a device holds in its own memory.
DEVICE_TYPES = tuple(t for t in dtypes.ALL if t not in (dtypes.int32, dtypes.string, dtypes.resource))


def on_host(builder: OpKernelFactory) -> Builder:
    """The builder of a kernel whose arrays are all in host memory on any device."""

    @wraps(builder)
    def build(c: OpKernelConstruction) -> Any:
        c.xp = np
        return builder(c)

    return build


def on_any_device(
    *ops: str,
    host_memory: tuple[str, ...] = (),
    all_memory: tuple[str, ...] = (),
    host_types: Iterable[DType] = (dtypes.int32,),
    device_types: Iterable[DType] = DEVICE_TYPES,
    type_attr: str = "T",
    cost: Cost = DEFAULT_COST,
    **constraints: Iterable[DType],
) -> Callable[[Builder], Builder]:
    """Register a builder of O(1) kernels for the CPU (every type) and for DEFAULT devices.

    Args:
        ops: op names.
        host_memory: inputs and outputs in host memory for every type (shapes, axes).
        all_memory: all inputs and outputs; they are in host memory for `host_types`.
        host_types: values of `type_attr` that stay in host memory on DEFAULT devices.
        device_types: values of `type_attr` that live on the device.
        type_attr: the name of the type attr.
        cost, constraints: as of `kernel`.
    """

    shared: Any = {**constraints, "cost": cost}
    on_the_host: Any = {type_attr: host_types, "host_memory": all_memory}
    on_the_device: Any = {type_attr: device_types, "host_memory": host_memory}

    def register(builder: Builder) -> Builder:
        kernel(*ops, host_memory=host_memory, **shared)(builder)
        kernel(*ops, device="DEFAULT", **on_the_host, **shared)(on_host(builder))
        kernel(*ops, device="DEFAULT", **on_the_device, **shared)(builder)
        return builder

    return register
