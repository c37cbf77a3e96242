"""The derivative of gamma distributed numbers by their alpha.  Next to read: `aexec/kernels/math/igamma_grad.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import dtypes
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.kernels.common.array_module import scipy_of
from aexec.kernels.common.elementwise import broadcast_error, piece_scratch, shared_rows
from aexec.kernels.math.igamma_grad import IGAMMA_GRAD_COST, igamma_grad_a

__all__: list[str] = []


@kernel(
    "RandomGammaGrad",
    T=(dtypes.float32, dtypes.float64),
    cost=IGAMMA_GRAD_COST,
    needs=("scipy.special",),
    scratch=piece_scratch(200),
)
def random_gamma_grad(c: OpKernelConstruction) -> Compute:
    """Return d sample / d alpha at the same quantile: minus the distribution's derivative divided by its density."""
    xp, out = c.xp, c.attr("T").np
    special = scipy_of(xp, "special")
    c.explain = broadcast_error

    def derivative(alpha: Any, sample: Any) -> Any:
        a, x = xp.broadcast_arrays(xp.asarray(alpha, np.float64), xp.asarray(sample, np.float64))
        density = xp.exp((a - 1) * xp.log(x) - x - special.gammaln(a))
        return xp.where(x == 0, xp.where(a > 0, 0.0, np.nan), -igamma_grad_a(xp, special, a, x) / density)

    return shared_rows(xp, derivative, out)
