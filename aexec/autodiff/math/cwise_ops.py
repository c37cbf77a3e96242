"""Gradients of elementwise functions.

The gradient of a holomorphic function of a complex x is `grad * conj(f'(x))`, TensorFlow's convention.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.autodiff.shapes import conjugated, like_input, real_type, summed_to, unbroadcast
from aexec.framework.op_contract.gradient_registry import gradient, no_gradient
from aexec.graph.nodes.node import Tensor

Pair = tuple[Tensor, Tensor]

no_gradient(
    *"Ceil Floor FloorDiv Rint Round TruncateDiv TruncateMod".split(),
    *"Less LessEqual Greater GreaterEqual Equal NotEqual ApproximateEqual LogicalAnd LogicalOr LogicalNot".split(),
    *"IsFinite IsInf IsNan Bitcast".split(),
)


def _unary(derivative: Callable[[Tensor], Any], *names: str) -> None:
    """Register functions of one argument by their derivatives, functions of the input."""
    gradient(*names)(lambda op, grad: grad * conjugated(derivative(op.inputs[0])))


_unary(ops.cos, "Sin")
_unary(lambda x: -ops.sin(x), "Cos")
_unary(lambda x: ops.reciprocal(ops.square(ops.cos(x))), "Tan")
_unary(ops.cosh, "Sinh")
_unary(ops.sinh, "Cosh")
_unary(lambda x: ops.rsqrt(1.0 - ops.square(x)), "Asin")
_unary(lambda x: -ops.rsqrt(1.0 - ops.square(x)), "Acos")
_unary(lambda x: ops.reciprocal(1.0 + ops.square(x)), "Atan")
_unary(lambda x: ops.reciprocal(1.0 - ops.square(x)), "Atanh")
_unary(ops.reciprocal, "Log")
_unary(lambda x: ops.reciprocal(1.0 + x), "Log1p")
_unary(ops.exp, "Expm1")
_unary(lambda x: 2.0 * x, "Square")


@gradient("Sign")
def _sign(op: ForwardOp, _: Tensor) -> Tensor:
    return ops.zeros_like(op.inputs[0])


@gradient("Asinh")
def _asinh(op: ForwardOp, grad: Tensor) -> Tensor:
    return grad / conjugated(ops.cosh(op.outputs[0]))


@gradient("Acosh")
def _acosh(op: ForwardOp, grad: Tensor) -> Tensor:
    return grad / conjugated(ops.sinh(op.outputs[0]))


@gradient("Exp")
def _exp(op: ForwardOp, grad: Tensor) -> Tensor:
    return grad * conjugated(op.outputs[0])


@gradient("Neg")
def _neg(op: ForwardOp, grad: Tensor) -> Tensor:
    return -grad


# Functions for which TensorFlow has an op that takes the output y and its gradient.  The ops of the first two do not #
# conjugate a complex y, those of the others do.


@gradient("Sigmoid")
def _sigmoid(op: ForwardOp, grad: Tensor) -> Tensor:
    return ops.sigmoid_grad(conjugated(op.outputs[0]), grad)


@gradient("Tanh")
def _tanh(op: ForwardOp, grad: Tensor) -> Tensor:
    return ops.tanh_grad(conjugated(op.outputs[0]), grad)


@gradient("Sqrt")
def _sqrt(op: ForwardOp, grad: Tensor) -> Tensor:
    return ops.sqrt_grad(op.outputs[0], grad)


@gradient("Rsqrt")
def _rsqrt(op: ForwardOp, grad: Tensor) -> Tensor:
    return ops.rsqrt_grad(op.outputs[0], grad)


@gradient("Inv", "Reciprocal")
def _reciprocal(op: ForwardOp, grad: Tensor) -> Tensor:
    return ops.reciprocal_grad(op.outputs[0], grad)


@gradient("SigmoidGrad")
def _sigmoid_grad(op: ForwardOp, grad: Tensor) -> Pair:
    y, dy = (conjugated(x) for x in op.inputs)
    product = grad * dy
    return product - 2.0 * product * y, ops.sigmoid_grad(y, grad)


@gradient("TanhGrad")
def _tanh_grad(op: ForwardOp, grad: Tensor) -> Pair:
    y, dy = (conjugated(x) for x in op.inputs)
    return -2.0 * grad * dy * y, ops.tanh_grad(y, grad)


@gradient("SqrtGrad")
def _sqrt_grad(op: ForwardOp, grad: Tensor) -> Pair:
    ratio = grad / op.inputs[0]
    return -conjugated(ratio) * op.outputs[0], 0.5 * ratio


@gradient("RsqrtGrad")
def _rsqrt_grad(op: ForwardOp, grad: Tensor) -> Pair:
    y, dy = op.inputs
    return -1.5 * conjugated(grad) * dy * ops.square(conjugated(y)), ops.rsqrt_grad(conjugated(y), grad)


@gradient("InvGrad", "ReciprocalGrad")
def _reciprocal_grad(op: ForwardOp, grad: Tensor) -> Pair:
    y, dy = op.inputs
    return -2.0 * conjugated(grad) * dy * conjugated(y), ops.reciprocal_grad(conjugated(y), grad)


# Two arguments, which may be broadcast


@gradient("Add", "AddV2")
def _add(op: ForwardOp, grad: Tensor) -> Pair:
    x, y = op.inputs
    return unbroadcast(grad, x, grad, y)


@gradient("Sub")
def _sub(op: ForwardOp, grad: Tensor) -> Pair:
    x, y = op.inputs
    return unbroadcast(grad, x, -grad, y)


@gradient("Mul")
def _mul(op: ForwardOp, grad: Tensor) -> Pair:
    x, y = op.inputs
    return unbroadcast(ops.mul(grad, conjugated(y)), x, ops.mul(grad, conjugated(x)), y)


@gradient("MulNoNan")
def _mul_no_nan(op: ForwardOp, grad: Tensor) -> Pair:
    x, y = op.inputs
    return unbroadcast(ops.mul_no_nan(grad, conjugated(y)), x, ops.mul_no_nan(conjugated(x), grad), y)


@gradient("Div", "RealDiv")
def _div(op: ForwardOp, grad: Tensor) -> Pair:
    x, y = op.inputs
    below = conjugated(y)
    return unbroadcast(grad / below, x, -grad * conjugated(op.outputs[0]) / below, y)


@gradient("DivNoNan")
def _div_no_nan(op: ForwardOp, grad: Tensor) -> Pair:
    x, y = op.inputs
    below = conjugated(y)
    by_y = ops.mul(grad, ops.div_no_nan(-conjugated(op.outputs[0]), below))
    return unbroadcast(ops.div_no_nan(grad, below), x, by_y, y)


@gradient("Pow")
def _pow(op: ForwardOp, grad: Tensor) -> Pair:
    x, y = op.inputs
    z, base, power = conjugated(op.outputs[0]), conjugated(x), conjugated(y)
    zeros = ops.zeros_like(x)
    # 0 ** y has no derivative by y, and negative real numbers have no logarithm.
    usable = ops.not_equal(x, zeros) if x.dtype.is_complex else ops.greater(x, zeros)
    logarithm = ops.select_v2(usable, ops.log(ops.select_v2(usable, base, ops.ones_like(x))), zeros)
    return unbroadcast(grad * power * ops.pow(base, power - 1.0), x, grad * z * logarithm, y)


@gradient("Maximum")
def _maximum(op: ForwardOp, grad: Tensor) -> Pair:
    x, y = op.inputs
    return _of_the_chosen(op, grad, ops.greater_equal(x, y))


@gradient("Minimum")
def _minimum(op: ForwardOp, grad: Tensor) -> Pair:
    x, y = op.inputs
    return _of_the_chosen(op, grad, ops.less_equal(x, y))


def _of_the_chosen(op: ForwardOp, grad: Tensor, first: Tensor) -> Pair:
    x, y = op.inputs
    zeros = ops.zeros_like(grad)
    return unbroadcast(ops.select_v2(first, grad, zeros), x, ops.select_v2(first, zeros, grad), y)


@gradient("SquaredDifference")
def _squared_difference(op: ForwardOp, grad: Tensor) -> Pair:
    x, y = op.inputs
    by_x = 2.0 * grad * conjugated(x - y)
    return unbroadcast(by_x, x, -by_x, y)


@gradient("FloorMod")
def _floor_mod(op: ForwardOp, grad: Tensor) -> Pair:
    x, y = op.inputs
    return unbroadcast(grad, x, -grad * ops.floor_div(x, y), y)


@gradient("Atan2")
def _atan2(op: ForwardOp, grad: Tensor) -> Pair:
    y, x = op.inputs
    scaled = grad / (ops.square(x) + ops.square(y))
    return unbroadcast(x * scaled, y, -y * scaled, x)


@gradient("Xdivy")
def _xdivy(op: ForwardOp, grad: Tensor) -> Pair:
    x, y = op.inputs
    some = _is_not_zero(x, y)
    return unbroadcast(grad * conjugated(ops.xdivy(some, y)), x, grad * conjugated(ops.xdivy(-x, ops.square(y))), y)


@gradient("Xlogy")
def _xlogy(op: ForwardOp, grad: Tensor) -> Pair:
    x, y = op.inputs
    some = _is_not_zero(x, y)
    return unbroadcast(grad * conjugated(ops.xlogy(some, y)), x, grad * conjugated(ops.xdivy(x, y)), y)


@gradient("Xlog1py")
def _xlog1py(op: ForwardOp, grad: Tensor) -> Pair:
    x, y = op.inputs
    some = _is_not_zero(x, y)
    return unbroadcast(grad * conjugated(ops.xlog1py(some, y)), x, grad * conjugated(ops.xdivy(x, y + 1.0)), y)


def _is_not_zero(x: Tensor, y: Tensor) -> Tensor:
    """Ones where x is not 0, else zeros, in the type of y."""
    return like_input(ops.not_equal(x, ops.zeros_like(x)), y)


@gradient("NextAfter")
def _next_after(op: ForwardOp, grad: Tensor) -> Pair:
    x, y = op.inputs
    return unbroadcast(grad, x, ops.zeros_like(grad), y)


@gradient("ClipByValue")
def _clip_by_value(op: ForwardOp, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x, low, high = op.inputs
    zeros = ops.zeros_like(grad)
    below, above = ops.less(x, low), ops.greater(x, high)
    outside = ops.logical_or(below, above)
    by_x, by_low = unbroadcast(ops.select_v2(outside, zeros, grad), x, ops.select_v2(below, grad, zeros), low)
    _, by_high = unbroadcast(grad, x, ops.select_v2(above, grad, zeros), high)
    return by_x, by_low, by_high


# Sums of many


@gradient("AddN", "AccumulateNV2", rows=True)
def _add_n(op: ForwardOp, grad: Any) -> list[Any]:
    return [grad] * len(op.inputs)


# Parts of complex numbers


@gradient("Abs")
def _abs(op: ForwardOp, grad: Tensor) -> Tensor:
    return grad * ops.sign(op.inputs[0])


@gradient("ComplexAbs")
def _complex_abs(op: ForwardOp, grad: Tensor) -> Tensor:
    x = op.inputs[0]
    scale = ops.div_no_nan(grad, op.outputs[0])
    return ops.complex(scale, ops.zeros_like(scale), Tout=x.dtype.base) * x


@gradient("Real")
def _real(op: ForwardOp, grad: Tensor) -> Tensor:
    return ops.complex(grad, ops.zeros_like(grad), Tout=op.inputs[0].dtype.base)


@gradient("Imag")
def _imag(op: ForwardOp, grad: Tensor) -> Tensor:
    return ops.complex(ops.zeros_like(grad), grad, Tout=op.inputs[0].dtype.base)


@gradient("Complex")
def _complex(op: ForwardOp, grad: Tensor) -> Pair:
    x, y = op.inputs
    dtype = x.dtype.base
    return unbroadcast(ops.real(grad, Tout=dtype), x, ops.imag(grad, Tout=dtype), y)


@gradient("Conj")
def _conjugate(op: ForwardOp, grad: Tensor) -> Tensor:
    return ops.conj(grad)


@gradient("Angle")
def _angle(op: ForwardOp, grad: Tensor) -> Tensor:
    x = op.inputs[0]
    # The derivative of the angle is i / conj(x); at 0 it is taken to be 0.
    turned = ops.complex(ops.zeros_like(grad), grad, Tout=x.dtype.base)
    return ops.div_no_nan(turned, ops.conj(x))


@gradient("Cast")
def _cast(op: ForwardOp, grad: Tensor) -> Tensor | None:
    source = op.inputs[0].dtype.base
    if not (source.is_floating or source.is_complex) or not (grad.dtype.is_floating or grad.dtype.is_complex):
        return None
    if grad.dtype.is_complex and not source.is_complex:
        grad = ops.real(grad, Tout=real_type(grad.dtype))
    return like_input(grad, op.inputs[0])


# Choices


@gradient("Select")
def _select(op: ForwardOp, grad: Tensor) -> tuple[None, Tensor, Tensor]:
    condition = op.inputs[0]
    zeros = ops.zeros_like(op.inputs[1])
    return None, ops.select(condition, grad, zeros), ops.select(condition, zeros, grad)


@gradient("SelectV2")
def _select_v2(op: ForwardOp, grad: Tensor) -> tuple[None, Tensor, Tensor]:
    condition, x, y = op.inputs
    zeros = ops.zeros_like(grad)
    chosen, other = ops.select_v2(condition, grad, zeros), ops.select_v2(condition, zeros, grad)
    return None, summed_to(chosen, x), summed_to(other, y)
