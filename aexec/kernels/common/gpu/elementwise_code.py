"""The ops that are one launch on a GPU: activations, their gradients, and products that skip zero factors.

Each expression is the formula of the op's kernel for arrays.  Ops whose kernel is one function of the module would gain
nothing.  Next to read: `device_code.py`; `common/portable.py`, which wraps the kernels of devices with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aexec.framework.kernel_contract.op_kernel import OpKernelConstruction
from aexec.kernels.common.gpu.device_code import Code, compiled

__all__ = ["CODES", "in_one_launch"]

# Self-normalising networks, https://arxiv.org/abs/1706.02515
_SCALE, _SCALE_ALPHA = "W(1.0507009873554804934193349852946)", "W(1.7580993408473768599402175208123)"


def _of(inputs: str, expression: str, *, narrow: bool = True) -> Code:
    return Code(tuple(inputs.split()), {"y": expression}, narrow=narrow)


CODES: Mapping[str, Code] = {
    "DivNoNan": _of("a b", "b == 0 ? W(0) : a / b"),
    "Elu": _of("x", "x > 0 ? x : expm1(x)"),
    "EluGrad": _of("g y", "g * ((y < 0 ? y : W(0)) + 1)"),
    # In double, TensorFlow's quotient of polynomials is infinity over infinity there.
    "Erf": _of("x", "sizeof(W) == 8 && isinf(x) ? x - x : erf(x)"),
    "Erfc": _of("x", "erfc(x)"),
    # CuPy's `remainder` computes by a quotient: it is NaN for infinity, and loses digits.
    "FloorMod": Code(
        ("a", "b"),
        {"y": "r != 0 ? ((r < 0) != (b < 0) ? r + b : r) : copysign(W(0), b)"},
        before="const W r = fmod(a, b);",
    ),
    "InvGrad": _of("y g", "g == 0 ? W(0) : -g * y * y"),
    "LeakyRelu": _of("x alpha", "x > 0 ? x : x * alpha"),
    "LeakyReluGrad": _of("g x alpha", "x > 0 ? g : g * alpha"),
    "MulNoNan": _of("a b", "b == 0 ? W(0) : a * b"),
    "ReciprocalGrad": _of("y g", "g == 0 ? W(0) : -g * y * y"),
    "Relu6Grad": _of("g x", "g * W(x > 0 && x < 6)"),
    "ReluGrad": _of("g x", "g * W(x > 0)"),
    "Rsqrt": _of("x", "1 / sqrt(x)"),
    "RsqrtGrad": _of("y g", "g == 0 ? W(0) : W(-0.5) * g * (y * y * y)"),
    "Selu": _of("x", f"x > 0 ? {_SCALE} * x : {_SCALE_ALPHA} * expm1(x)"),
    "SeluGrad": _of("g y", f"y < 0 ? g * (y + {_SCALE_ALPHA}) : g * {_SCALE}"),
    "Sigmoid": _of("x", "1 / (1 + exp(-x))"),
    "SigmoidGrad": _of("y g", "g * y * (1 - y)"),
    "Softplus": _of("x", "(x > 0 ? x : W(0)) + log1p(exp(-fabs(x)))"),
    "SoftplusGrad": _of("g x", "g / (exp(-x) + 1)"),
    "Softsign": _of("x", "x / (1 + fabs(x))"),
    "SoftsignGrad": _of("g x", "g / ((1 + fabs(x)) * (1 + fabs(x)))"),
    "SqrtGrad": _of("y g", "g == 0 ? W(0) : W(0.5) * g / y"),
    "SquaredDifference": _of("a b", "(a - b) * (a - b)", narrow=False),
    "TanhGrad": _of("y g", "g * (1 - y * y)"),
    "Xdivy": _of("a b", "a == 0 ? W(0) : a / b"),
    "Xlog1py": _of("a b", "a == 0 ? W(0) : a * log1p(b)"),
    "Xlogy": _of("a b", "a == 0 ? W(0) : a * log(b)"),
}


def in_one_launch(op: str, builder: Callable[[OpKernelConstruction], Any]) -> Callable[[OpKernelConstruction], Any]:
    """The builder of an op's kernel for devices: by its code if that can be compiled, else `builder`."""
    code = CODES.get(op)
    if code is None:
        return builder

    def build(c: OpKernelConstruction) -> Any:
        plain = builder(c)
        kernel = compiled(c.xp, op, code, c.input_types[0].base)
        if kernel is None:
            return plain
        scalars = [np.float32(c.attr("alpha")).astype(c.input_types[0].np)] if "alpha" in code.inputs else []
        is_gradient = op.endswith("Grad")

        def compute(*inputs: Any) -> Any:
            if is_gradient and inputs[0].shape != inputs[1].shape:
                return plain(*inputs)  # it refuses the inputs, or takes the elements in their order
            return kernel(*inputs, *scalars)

        return compute

    return build
