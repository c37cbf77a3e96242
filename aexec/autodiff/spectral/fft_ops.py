"""Gradients of Fourier transforms.

A transform is linear; its gradient is the other one, scaled.  A transform of real numbers keeps half of the
frequencies; those that stand for two count twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.autodiff.shapes import real_type
from aexec.framework.op_contract.gradient_registry import gradient
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import create_node


def _count(x: Tensor, rank: int) -> Any:
    """The number of elements of the last `rank` axes, in the type of the parts of `x`."""
    return ops.cast(ops.prod(ops.shape(x)[-rank:], [0]), DstT=_real(x))


def _real(x: Tensor) -> Any:
    return real_type(x.dtype) if x.dtype.is_complex else x.dtype.base


def _complex_of(scale: Tensor, x: Tensor) -> Tensor:
    return ops.cast(scale, DstT=x.dtype.base)


def _register(rank: int) -> None:
    suffix = "" if rank == 1 else f"{rank}D"

    def forward(op: ForwardOp, grad: Tensor) -> Tensor:
        made = create_node(f"IFFT{suffix}", {"input": grad}, {}).output(0)
        return made * _complex_of(_count(grad, rank), grad)

    def inverse(op: ForwardOp, grad: Tensor) -> Tensor:
        made = create_node(f"FFT{suffix}", {"input": grad}, {}).output(0)
        return made / _complex_of(_count(grad, rank), grad)

    gradient(f"FFT{suffix}")(forward)
    gradient(f"IFFT{suffix}")(inverse)


for _rank in (1, 2, 3):
    _register(_rank)


def _full(half: Tensor, width: Any) -> Tensor:
    """The transform with zeros for the frequencies that a transform of real numbers leaves out."""
    shape = ops.shape(half)
    rank = half.static_shape.rank
    missing = width - shape[-1]
    before: Any = np.zeros((rank - 1, 2), np.int32) if rank is not None else None
    if before is None:
        before = ops.fill(ops.pack([ops.rank(half) - 1, 2]), 0)
    paddings = ops.concat_v2([before, ops.reshape(ops.pack([0, missing]), [1, 2])], 0)
    return ops.pad(half, paddings)


def _fitted(made: Tensor, x: Tensor) -> Tensor:
    """Undo that the transform cuts its input to the requested lengths, or pads it with zeros."""
    have, want = ops.shape(made), ops.shape(x)
    cut = ops.slice(made, ops.zeros_like(have), ops.minimum(have, want))
    missing = ops.maximum(want - have, 0)
    return ops.pad(cut, ops.pack([ops.zeros_like(missing), missing], axis=1))


def _register_real(rank: int) -> None:
    suffix = "" if rank == 1 else f"{rank}D"

    def forward(op: ForwardOp, grad: Tensor) -> tuple[Tensor, None]:
        """The real part of the complex transform's gradient, cut or padded to the input's size."""
        x, lengths = op.inputs
        full = _full(grad, lengths[-1])
        made = create_node(f"IFFT{suffix}", {"input": full}, {}).output(0)
        scaled = ops.real(made, Tout=x.dtype.base) * _count(made, rank)
        return _fitted(scaled, x), None

    def inverse(op: ForwardOp, grad: Tensor) -> tuple[Tensor, None]:
        """Each frequency but the first and the middle one stands for two."""
        x, lengths = op.inputs
        made = create_node(f"RFFT{suffix}", {"input": grad, "fft_length": lengths}, {"Tcomplex": x.dtype.base}).output(
            0
        )
        width = lengths[-1]
        kept = ops.shape(made)[-1]
        places = ops.range(0, kept, 1)
        alone = ops.logical_or(ops.equal(places, 0), ops.equal(2 * places, width))
        twice = ops.select_v2(alone, ops.ones_like(places), 2 * ops.ones_like(places))
        weights = ops.cast(twice, DstT=_real(grad)) / _count(grad, rank)
        return _fitted(made * ops.cast(weights, DstT=x.dtype.base), x), None

    gradient(f"RFFT{suffix}")(forward)
    gradient(f"IRFFT{suffix}")(inverse)


for _rank in (1, 2, 3):
    _register_real(_rank)
