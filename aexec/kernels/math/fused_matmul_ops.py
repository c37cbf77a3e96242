"""_FusedMatMul: a product of matrices, with a bias and an activation done to it block by block (`fusions.py`).

Next to read: `matmul_ops.py`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from aexec.framework import dtypes
from aexec.framework.kernel_registry import kernel
from aexec.framework.op_kernel import Compute, OpKernelConstruction
from aexec.kernels.common.fusions import BIAS_THEN, Fusion
from aexec.kernels.common.products import matrix_product
from aexec.kernels.math.matmul_ops import mat_mul_error, product_ns

__all__: list[str] = []


def _cost(a: Any, b: Any, *_: Any) -> float:
    return product_ns(a, b)


@kernel("_FusedMatMul", T=(dtypes.bfloat16, dtypes.float16, dtypes.float32), cost=_cost)
def fused_mat_mul(c: OpKernelConstruction) -> Compute:
    """The product of two matrices, with the fused ops done to it."""
    xp, result = c.xp, c.output_types[0].np
    transpose_a, transpose_b = c.attr("transpose_a"), c.attr("transpose_b")
    fusion = Fusion(c, "MatMul", BIAS_THEN, c.attr("num_args"))

    def compute(a: Any, b: Any, *args: Any) -> Any:
        if not a.ndim == b.ndim == 2:
            raise mat_mul_error(a, b)
        left, right = a.T if transpose_a else a, b.T if transpose_b else b
        if left.shape[1] != right.shape[0]:
            raise mat_mul_error(a, b)
        wide = left.astype(np.float32, copy=False), right.astype(np.float32, copy=False)
        out = fusion.of((len(left), right.shape[1]), args, partial(matrix_product, xp, *wide))
        return out.astype(result, copy=False)

    return compute
