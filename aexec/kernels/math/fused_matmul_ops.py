"""_FusedMatMul: a product of matrices, with a bias and an activation applied block by block (`fusions.py`).

Next to read: `matmul_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from aexec.framework import dtypes
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.kernels.common.elementwise import CLIP_ABOVE
from aexec.kernels.common.epilogue import Epilogue, apply_in_blocks
from aexec.kernels.common.fusions import BIAS_THEN, Fusion
from aexec.kernels.common.products import matrix_product
from aexec.kernels.math.matmul_ops import LARGE, PRODUCT_COST, announce_wider_product, explained_by, mat_mul_error

__all__: list[str] = []


@kernel("_FusedMatMul", T=(dtypes.bfloat16, dtypes.float16, dtypes.float32), cost=PRODUCT_COST)
def fused_mat_mul(c: OpKernelConstruction) -> Compute:
    """Return the product of two matrices with the fused ops applied."""
    xp, result = c.xp, c.output_types[0].np
    transpose_a, transpose_b = c.attr("transpose_a"), c.attr("transpose_b")
    fusion = Fusion(c, "MatMul", BIAS_THEN, c.attr("num_args"))

    def compute(a: Any, b: Any, *args: Any) -> Any:
        if not a.ndim == b.ndim == 2:
            raise mat_mul_error(a, b)
        left, right = a.T if transpose_a else a, b.T if transpose_b else b
        if left.shape[1] != right.shape[0]:
            raise mat_mul_error(a, b)
        if result != np.float32:
            announce_wider_product(left, right, 4, 4)
        wide = left.astype(np.float32, copy=False), right.astype(np.float32, copy=False)
        out = fusion.of((len(left), right.shape[1]), args, partial(_product, xp, *wide))
        return out.astype(result, copy=False)

    finish = fusion.of_small()
    if finish is None or result != np.float32:
        return compute
    c.explain = explained_by(lambda a, b, *_: mat_mul_error(a, b))
    return _small_or(compute, finish, xp, transpose_a, transpose_b)


def _product(xp: Any, a: Any, b: Any, epilogue: Epilogue | None) -> Any:
    """Multiplies by the call that MatMul would make, since it affects rounding."""
    if a.size * b.size >= LARGE:
        return matrix_product(xp, a, b, epilogue)
    out = a.dot(b)
    apply_in_blocks(out, epilogue)
    return out


def _small_or(
    compute: Compute, finish: Callable[[Any, Any], bool], xp: Any, transpose_a: bool, transpose_b: bool
) -> Compute:
    """`compute`, with a shorter path for small outputs, for which it would be mostly overhead."""

    def small_or(a: Any, b: Any, bias: Any) -> Any:
        if a.ndim == b.ndim == 2:
            left, right = a.T if transpose_a else a, b.T if transpose_b else b
            if len(left) * right.shape[1] <= CLIP_ABOVE:
                out = left.dot(right) if a.size * b.size < LARGE else matrix_product(xp, left, right)
                if finish(out, bias):
                    return out
        return compute(a, b, bias)

    return small_or
