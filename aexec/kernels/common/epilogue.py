"""Elementwise operations after a product or a convolution: a bias, an activation, a residual.

A kernel that makes its output block by block applies them to each block while it is in the cache, instead of passing
over the whole output again.  `convolution.py`, `depthwise.py` and `products.py` take an `Epilogue`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["BLOCK_BYTES", "Epilogue", "apply_in_blocks"]

# Called once for each block, to change it in place: `block` is a contiguous view [pixels, channels]; `pixels` is the
# range of its rows in the output, seen as a matrix [-1, channels].  The blocks cover the output once, in any order;
# several threads may process blocks at once.
Epilogue = Callable[[Any, slice], None]

# Bytes of a block: it stays in a core's second-level cache together with its inputs.
BLOCK_BYTES = 1 << 18


def apply_in_blocks(out: Any, epilogue: Epilogue | None, first: int = 0) -> None:
    """Apply `epilogue`, if any, to a contiguous array [..., channels] that is complete.

    `first` is the number of its first pixel in the whole output.
    """
    if epilogue is None or not out.size:
        return
    matrix = out.reshape(-1, out.shape[-1])
    step = max(1, BLOCK_BYTES // matrix[0].nbytes)
    for start in range(0, len(matrix), step):
        block = matrix[start : start + step]
        epilogue(block, slice(first + start, first + start + len(block)))
