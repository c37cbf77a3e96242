"""The derivative of gamma distributed numbers by their alpha.  Next to read: `_igamma_grad.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import dtypes
from aexec.framework.kernel_registry import kernel
from aexec.framework.op_kernel import OpKernelConstruction
from aexec.kernels._elementwise import broadcast_error
from aexec.kernels._igamma_grad import igamma_grad_a

__all__: list[str] = []


@kernel("RandomGammaGrad", T=(dtypes.float32, dtypes.float64), cost=2000.0)
def random_gamma_grad(c: OpKernelConstruction) -> Any:
    """d sample / d alpha at the same quantile: minus the derivative of the distribution over its density."""
    from scipy import special  # a tenth of a second: only for graphs that need it

    out = c.attr("T").np
    c.explain = broadcast_error

    def compute(alpha: Any, sample: Any) -> Any:
        a, x = np.broadcast_arrays(np.asarray(alpha, np.float64), np.asarray(sample, np.float64))
        density = np.exp((a - 1) * np.log(x) - x - special.gammaln(a))
        result = np.where(x == 0, np.where(a > 0, 0.0, np.nan), -igamma_grad_a(special, a, x) / density)
        return result.astype(out)

    return compute
