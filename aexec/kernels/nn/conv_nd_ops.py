"""The op `Conv`: a convolution over two or three spatial dimensions, depending on the filter's rank.

Any number of leading dimensions may count as batch.  Channels last only, and no groups, as in TensorFlow's CPU kernel.
Next to read: `convolution.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.kernels.common import windowing
from aexec.kernels.nn import convolution
from aexec.kernels.nn.conv_ops import announce_wider_convolution, conv_cost, explicit_pairs
from aexec.kernels.nn.convolution_geometry import Geometry

__all__: list[str] = []

_TYPES = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, dtypes.int32)


class _Conv:
    """The attrs; their lengths can only be checked once the number of spatial dimensions is known."""

    def __init__(self, c: OpKernelConstruction) -> None:
        if c.attr("groups") != 1:
            raise errors.UnimplementedError("Grouped/Depthwise Convolutions are not supported yet.")
        self.construction = c
        self.batch_dims: int = c.attr("batch_dims")
        self.last = c.text("data_format") == "CHANNELS_LAST"

    def _per_dim(self, name: str, message: str, spatial: int) -> Sequence[int]:
        values: Sequence[int] = self.construction.attr(name)
        if name == "dilations" and not values:
            return (1,) * spatial
        if len(values) != spatial + 2:
            raise errors.InvalidArgumentError(message)
        if values[0] != 1 or values[-1] != 1:
            raise errors.InvalidArgumentError(
                f"Current implementation does not support {name} in the batch and depth dimensions."
            )
        if min(values) <= 0:
            raise errors.InvalidArgumentError(f"{name} must be positive, got {list(values)}")
        return values[1:-1]

    def geometry(self, x: Any, weights: Any) -> Geometry:
        """The geometry for these shapes.  Raises InvalidArgumentError for shapes that do not match each other or the
        attrs.
        """
        c, spatial = self.construction, x.ndim - self.batch_dims - 1
        if spatial not in (2, 3):
            raise errors.InvalidArgumentError(f"The input must have 2 or 3 spatial dimensions but got {spatial}")
        if weights.ndim not in (4, 5):
            raise errors.InvalidArgumentError(f"The filter must be rank 4 or 5 but got {weights.ndim}")
        if weights.ndim != spatial + 2:
            raise errors.InvalidArgumentError(
                f"The filter must have {spatial} spatial dimensions as the input but got rank {weights.ndim}"
            )
        if not self.last:
            raise errors.InvalidArgumentError(
                f"CPU implementation of Conv{spatial}D currently only supports the NHWC tensor format."
            )
        if x.shape[-1] != weights.shape[-2]:
            raise errors.InvalidArgumentError(
                f"Input depth must be equal to filter depth: {x.shape[-1]} vs {weights.shape[-2]}"
            )
        if not weights.size:
            raise errors.InvalidArgumentError(
                "filter must not have zero elements (i.e. all dimensions must be non-zero)"
            )
        rank = spatial + 2
        strides = self._per_dim("strides", f"Sliding window strides field must specify {rank} dimensions", spatial)
        dilations = self._per_dim("dilations", f"Dilation rates field must specify{rank}dimensions", spatial)
        pairs = explicit_pairs(c, rank, rank - 1)
        shape = (prod(x.shape[: self.batch_dims]), *x.shape[self.batch_dims :])
        spec = tuple(
            windowing.extent(n, k, s, d, c.text("padding"), pair, centred=spatial == 3)
            for n, k, s, d, pair in zip(shape[1:-1], weights.shape[:-2], strides, dilations, pairs, strict=True)
        )
        return Geometry(shape, weights.shape, spec, c.xp is np)


@kernel("Conv", T=_TYPES, cost=conv_cost)
def conv(c: OpKernelConstruction) -> Compute:
    """input [batch..., spatial..., c] with filter [spatial..., c, f]."""
    xp, own, dtype = c.xp, _Conv(c), c.output_types[0]
    inner = np.dtype(np.float32) if dtype.np.itemsize == 2 else dtype.np

    def compute(x: Any, weights: Any) -> Any:
        geometry = own.geometry(x, weights)
        announce_wider_convolution(inner, dtype.np, geometry.output_shape, x, weights)
        out = convolution.forward(
            xp,
            x.reshape(geometry.input_shape).astype(inner, copy=False),
            weights.astype(inner, copy=False),
            geometry,
        )
        return out.reshape(*x.shape[: own.batch_dims], *out.shape[1:]).astype(dtype.np, copy=False)

    return compute
