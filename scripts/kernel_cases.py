"""What the kernel benchmark measures: per op, the inputs, and the plain NumPy expression of the same result.

The expressions are what one would write without aexec, and take as much advantage of NumPy as that allows.
Ops without one (strings, files, state, random numbers, special functions) are left out.
Here are elementwise ops, reductions, matrices and activations; `kernel_array_cases.py` has the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import isqrt
from typing import Any

import ml_dtypes
import numpy as np

__all__ = ["Case", "Data", "cases"]


class Data:
    """Random inputs of about `n` elements, the same in every run."""

    def __init__(self, n: int) -> None:
        self.n, self.side = n, isqrt(n)
        self.rng = np.random.default_rng(n)

    def real(self, *shape: int) -> Any:
        """Return normally distributed float32, as a vector unless a shape is given."""
        return self.rng.standard_normal(shape or self.n, np.float32)

    def unit(self, *shape: int) -> Any:
        """Return uniform float32 in [0, 1)."""
        return self.rng.random(shape or self.n, np.float32)

    def above(self, *shape: int) -> Any:
        """Return uniform float32 in [1, 2)."""
        return 1 + self.unit(*shape)

    def ints(self, *shape: int, low: int = 1, high: int = 100, dtype: Any = np.int32) -> Any:
        return self.rng.integers(low, high, shape or self.n, dtype)

    def bools(self, *shape: int) -> Any:
        return self.rng.random(shape or self.n) < 0.5

    def complex(self) -> Any:
        return (self.real() + 1j * self.real()).astype(np.complex64)

    def matrix(self) -> Any:
        return self.real(self.side, self.side)

    def image(self, depth: int = 16) -> Any:
        """Return an image [1, side, side, depth]."""
        side = isqrt(self.n // depth)
        return self.real(1, side, side, depth)


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the table.

    Attributes:
        op: the op's name.
        inputs: makes the inputs, as `tests.kernels.harness.build` takes them.
        numpy: the NumPy expression, which takes the same inputs, flattened.
        attrs: of the node.
        note: distinguishes the op's cases.
    """

    op: str
    inputs: Callable[[Data], list[Any]]
    numpy: Callable[..., Any] | None
    attrs: dict[str, Any] = field(default_factory=dict)
    note: str = ""

    @property
    def name(self) -> str:
        return f"{self.op} {self.note}".strip()


# ------------------------------------------------------------- Elementwise


def _unary() -> Iterator[Case]:
    one = np.float32(1)
    real = {
        "Abs": np.abs,
        "Atan": np.arctan,
        "Asinh": np.arcsinh,
        "Ceil": np.ceil,
        "Cos": np.cos,
        "Cosh": np.cosh,
        "Exp": np.exp,
        "Expm1": np.expm1,
        "Floor": np.floor,
        "IsFinite": np.isfinite,
        "IsInf": np.isinf,
        "IsNan": np.isnan,
        "Neg": np.negative,
        "Rint": np.rint,
        "Round": np.rint,
        "Sigmoid": lambda x: one / (one + np.exp(-x)),
        "Sign": np.sign,
        "Sin": np.sin,
        "Sinh": np.sinh,
        "Square": np.square,
        "Tan": np.tan,
        "Tanh": np.tanh,
    }
    for op, expression in real.items():
        yield Case(op, lambda d: [d.real()], expression)
    for op, expression in {"Acos": np.arccos, "Asin": np.arcsin, "Atanh": np.arctanh}.items():
        yield Case(op, lambda d: [d.unit()], expression)
    positive = {
        "Acosh": np.arccosh,
        "Inv": lambda x: one / x,
        "Log": np.log,
        "Log1p": np.log1p,
        "Reciprocal": lambda x: one / x,
        "Rsqrt": lambda x: one / np.sqrt(x),
        "Sqrt": np.sqrt,
    }
    for op, expression in positive.items():
        yield Case(op, lambda d: [d.above()], expression)
    yield Case("LogicalNot", lambda d: [d.bools()], np.logical_not)
    yield Case("Invert", lambda d: [d.ints()], np.invert)
    yield Case("PopulationCount", lambda d: [d.ints()], np.bitwise_count)
    for op in ("Abs", "Neg", "Sign", "Square"):
        yield Case(
            op, lambda d: [d.ints()], getattr(np, {"Abs": "abs", "Neg": "negative"}.get(op, op.lower())), note="int32"
        )
    of_complex = {
        "Real": lambda x: x.real.copy(),
        "Imag": lambda x: x.imag.copy(),
        "Conj": np.conj,
        "ComplexAbs": np.abs,
        "Angle": np.angle,
    }
    for op, expression in of_complex.items():
        yield Case(op, lambda d: [d.complex()], expression)
    gradients = {
        "SigmoidGrad": lambda y, g: g * y * (one - y),
        "TanhGrad": lambda y, g: g * (one - y * y),
        "SqrtGrad": lambda y, g: g * np.float32(0.5) / y,
        "RsqrtGrad": lambda y, g: g * np.float32(-0.5) * y * y * y,
        "ReciprocalGrad": lambda y, g: -g * y * y,
        "InvGrad": lambda y, g: -g * y * y,
    }
    for op, expression in gradients.items():
        yield Case(op, lambda d: [d.above(), d.real()], expression)
    yield Case("AddN", lambda d: [[d.real(), d.real(), d.real()]], lambda a, b, c: a + b + c)


def _binary() -> Iterator[Case]:
    floats = {
        "Add": np.add,
        "AddV2": np.add,
        "Sub": np.subtract,
        "Mul": np.multiply,
        "Div": np.divide,
        "RealDiv": np.divide,
        "DivNoNan": lambda x, y: np.where(y == 0, np.float32(0), x / y),
        "MulNoNan": lambda x, y: np.where(y == 0, np.float32(0), x * y),
        "FloorDiv": lambda x, y: np.floor(x / y),
        "FloorMod": np.mod,
        "Mod": np.fmod,
        "Maximum": np.maximum,
        "Minimum": np.minimum,
        "Pow": np.power,
        "Atan2": np.arctan2,
        "SquaredDifference": lambda x, y: np.square(x - y),
        "Xdivy": lambda x, y: np.where(x == 0, np.float32(0), x / y),
        "Xlogy": lambda x, y: np.where(x == 0, np.float32(0), x * np.log(y)),
        "Xlog1py": lambda x, y: np.where(x == 0, np.float32(0), x * np.log1p(y)),
        "Less": np.less,
        "LessEqual": np.less_equal,
        "Greater": np.greater,
        "GreaterEqual": np.greater_equal,
        "Equal": np.equal,
        "NotEqual": np.not_equal,
        "ApproximateEqual": lambda x, y: np.abs(x - y) < np.float32(1e-5),
        "NextAfter": np.nextafter,
    }
    for op, expression in floats.items():
        yield Case(op, lambda d: [d.above(), d.above()], expression)
    yield Case("AddV2", lambda d: [d.matrix(), d.real(d.side)], np.add, note="broadcast")
    yield Case("Complex", lambda d: [d.real(), d.real()], lambda x, y: x + 1j * y)
    integers = {
        "AddV2": np.add,
        "Mul": np.multiply,
        "Maximum": np.maximum,
        "FloorDiv": np.floor_divide,
        "FloorMod": np.mod,
        "TruncateDiv": lambda x, y: np.trunc(x / y).astype(np.int32),
        "TruncateMod": np.fmod,
        "Less": np.less,
        "Equal": np.equal,
        "BitwiseAnd": np.bitwise_and,
        "BitwiseOr": np.bitwise_or,
        "BitwiseXor": np.bitwise_xor,
    }
    for op, expression in integers.items():
        yield Case(op, lambda d: [d.ints(), d.ints()], expression, note="int32")
    for op, expression in {"LeftShift": np.left_shift, "RightShift": np.right_shift}.items():
        yield Case(op, lambda d: [d.ints(), d.ints(high=8)], expression)
    for op, expression in {"LogicalAnd": np.logical_and, "LogicalOr": np.logical_or}.items():
        yield Case(op, lambda d: [d.bools(), d.bools()], expression)
    half = ml_dtypes.bfloat16
    for dtype, note in ((np.float16, "float16"), (half, "bfloat16")):
        yield Case("AddV2", lambda d, t=dtype: [d.real().astype(t), d.real().astype(t)], np.add, note=note)
        yield Case("Exp", lambda d, t=dtype: [d.real().astype(t)], np.exp, note=note)
    yield Case("ClipByValue", lambda d: [d.real(), np.float32(-1), np.float32(1)], np.clip)
    yield Case("SelectV2", lambda d: [d.bools(), d.real(), d.real()], np.where)
    yield Case("Select", lambda d: [d.bools(), d.real(), d.real()], np.where)


def _casts() -> Iterator[Case]:
    pairs = [
        ("float32", "float64"),
        ("float64", "float32"),
        ("float32", "int32"),
        ("float32", "uint8"),
        ("float32", "bool"),
        ("int32", "float32"),
        ("int32", "int64"),
        ("int64", "int32"),
        ("uint8", "float32"),
        ("bool", "float32"),
        ("float32", "float16"),
        ("float16", "float32"),
        ("float32", "bfloat16"),
        ("bfloat16", "float32"),
    ]
    for source, target in pairs:
        yield Case(
            "Cast",
            lambda d, s=source: [d.ints().astype(np.dtype(s) if s != "bfloat16" else ml_dtypes.bfloat16)],
            lambda x, t=target: x.astype(np.dtype(t) if t != "bfloat16" else ml_dtypes.bfloat16),
            {"DstT": target},
            f"{source} to {target}",
        )
    yield Case("Bitcast", lambda d: [d.real()], lambda x: x.view(np.int32), {"type": "int32"})


# -------------------------------------------------- Reductions and matrices


def _reductions() -> Iterator[Case]:
    kinds = {"Sum": np.sum, "Mean": np.mean, "Prod": np.prod, "Max": np.max, "Min": np.min}
    for op, reduce in kinds.items():
        yield Case(op, lambda d: [d.matrix(), 1], lambda x, _, f=reduce: f(x, axis=1), note="rows")
        yield Case(op, lambda d: [d.matrix(), 0], lambda x, _, f=reduce: f(x, axis=0), note="columns")
        yield Case(op, lambda d: [d.matrix(), [0, 1]], lambda x, _, f=reduce: f(x), note="all")
    yield Case(
        "Sum", lambda d: [d.ints(d.side, d.side), 1], lambda x, _: np.sum(x, axis=1, dtype=np.int32), note="int32"
    )
    half = ml_dtypes.bfloat16
    for dtype, note in ((np.float16, "float16"), (half, "bfloat16")):
        yield Case(
            "Sum",
            lambda d, t=dtype: [d.matrix().astype(t), 1],
            lambda x, _: np.sum(x, axis=1, dtype=np.float32).astype(x.dtype),
            note=note,
        )
    for op, reduce in {"All": np.all, "Any": np.any}.items():
        yield Case(op, lambda d: [d.bools(d.side, d.side), 1], lambda x, _, f=reduce: f(x, axis=1))
    for op, reduce in {"ArgMax": np.argmax, "ArgMin": np.argmin}.items():
        yield Case(op, lambda d: [d.matrix(), 1], lambda x, _, f=reduce: f(x, axis=1), note="rows")
        yield Case(op, lambda d: [d.matrix(), 0], lambda x, _, f=reduce: f(x, axis=0), note="columns")
    yield Case("EuclideanNorm", lambda d: [d.matrix(), 1], lambda x, _: np.sqrt(np.sum(np.square(x), axis=1)))
    yield Case("L2Loss", lambda d: [d.real()], lambda x: np.dot(x, x) / 2)
    for op, scan in {"Cumsum": np.cumsum, "Cumprod": np.cumprod}.items():
        yield Case(op, lambda d: [d.matrix(), 1], lambda x, _, f=scan: f(x, axis=1))
        yield Case(
            op,
            lambda d: [d.matrix(), 1],
            lambda x, _, f=scan: f(x[:, ::-1], axis=1)[:, ::-1],
            {"reverse": True},
            "reverse",
        )
    yield Case("CumulativeLogsumexp", lambda d: [d.matrix(), 1], lambda x, _: np.logaddexp.accumulate(x, axis=1))


def _matrices() -> Iterator[Case]:
    yield Case("MatMul", lambda d: [d.matrix(), d.matrix()], np.matmul)
    yield Case("MatMul", lambda d: [d.matrix(), d.matrix()], lambda x, y: x @ y.T, {"transpose_b": True}, "transposed")

    def batch(d: Data) -> list[Any]:
        side = isqrt(d.n // 10)
        return [d.real(10, side, side), d.real(10, side, side)]

    for op in ("BatchMatMul", "BatchMatMulV2"):
        yield Case(op, batch, np.matmul)
    yield Case("BatchMatMulV2", batch, lambda x, y: x @ y.swapaxes(1, 2), {"adj_y": True}, "transposed")
    yield Case("BatchMatMulV3", batch, np.matmul, {"Tout": "float32"})
    yield Case("Einsum", lambda d: [[d.matrix(), d.matrix()]], np.matmul, {"equation": "ij,jk->ik"})
    yield Case("Einsum", lambda d: [batch(d)], lambda x, y: x @ y.swapaxes(1, 2), {"equation": "bij,bkj->bik"}, "batch")
    yield Case("MatrixBandPart", lambda d: [d.matrix(), -1, 0], lambda x, *_: np.tril(x))
    yield Case("MatrixDiagPart", lambda d: [d.matrix()], lambda x: np.diagonal(x).copy())
    yield Case("MatrixDiag", lambda d: [d.real(d.side)], np.diag)
    yield Case("Diag", lambda d: [d.real(d.side)], np.diag)
    yield Case("DiagPart", lambda d: [d.matrix()], lambda x: np.diagonal(x).copy())

    def set_diag(x: Any, diagonal: Any) -> Any:
        out = x.copy()
        np.fill_diagonal(out, diagonal)
        return out

    yield Case("MatrixSetDiag", lambda d: [d.matrix(), d.real(d.side)], set_diag)
    yield Case("Cross", lambda d: [d.real(d.n // 3, 3), d.real(d.n // 3, 3)], np.cross)

    def definite(d: Data) -> Any:
        side = isqrt(d.side) ** 2 // 3 + 1  # these take long: fewer elements
        a = d.real(side, side)
        return a @ a.T + side * np.eye(side, dtype=np.float32)

    for op, solve in {
        "Cholesky": np.linalg.cholesky,
        "MatrixInverse": np.linalg.inv,
        "MatrixDeterminant": np.linalg.det,
    }.items():
        yield Case(op, lambda d: [definite(d)], solve)
    yield Case("MatrixSolve", lambda d: [a := definite(d), d.real(*a.shape)], lambda a, b: np.linalg.solve(a, b))
    yield Case("Qr", lambda d: [definite(d)], np.linalg.qr)
    yield Case("Svd", lambda d: [definite(d)], lambda a: np.linalg.svd(a, full_matrices=False))
    yield Case("SelfAdjointEigV2", lambda d: [definite(d)], np.linalg.eigh)


# ------------------------------------------------------------- Activations


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _log_softmax(x: Any) -> Any:
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def _cross_entropy(x: Any, labels: Any) -> Any:
    logs = _log_softmax(x)
    return -(labels * logs).sum(axis=-1), np.exp(logs) - labels


def _sparse_cross_entropy(x: Any, labels: Any) -> Any:
    logs, rows = _log_softmax(x), np.arange(len(x))
    gradient = np.exp(logs)
    gradient[rows, labels] -= 1
    return -logs[rows, labels], gradient


def _activations() -> Iterator[Case]:
    zero, one, alpha, scale = (np.float32(v) for v in (0, 1, 1.7580993408473768, 1.0507009873554805))
    forward = {
        "Relu": lambda x: np.maximum(x, zero),
        "Relu6": lambda x: np.clip(x, zero, np.float32(6)),
        "LeakyRelu": lambda x: np.maximum(x, x * np.float32(0.2)),
        "Elu": lambda x: np.where(x > 0, x, np.expm1(x)),
        "Selu": lambda x: np.where(x > 0, scale * x, alpha * np.expm1(x)),
        "Softplus": lambda x: np.logaddexp(x, zero),
        "Softsign": lambda x: x / (one + np.abs(x)),
    }
    for op, expression in forward.items():
        yield Case(op, lambda d: [d.real()], expression)
    gradients = {
        "ReluGrad": lambda g, x: g * (x > 0),
        "Relu6Grad": lambda g, x: g * ((x > 0) & (x < 6)),
        "LeakyReluGrad": lambda g, x: np.where(x > 0, g, g * np.float32(0.2)),
        "EluGrad": lambda g, y: np.where(y > 0, g, g * (y + one)),
        "SeluGrad": lambda g, y: np.where(y > 0, g * scale, g * (y + alpha)),
        "SoftplusGrad": lambda g, x: g / (one + np.exp(-x)),
        "SoftsignGrad": lambda g, x: g / np.square(one + np.abs(x)),
    }
    for op, expression in gradients.items():
        yield Case(op, lambda d: [d.real(), d.real()], expression)
    yield Case("Softmax", lambda d: [d.matrix()], _softmax)
    yield Case("Softmax", lambda d: [d.real(d.n // 2, 2)], _softmax, note="of two classes")
    yield Case("LogSoftmax", lambda d: [d.matrix()], _log_softmax)
    yield Case("SoftmaxCrossEntropyWithLogits", lambda d: [d.matrix(), d.unit(d.side, d.side)], _cross_entropy)
    yield Case(
        "SparseSoftmaxCrossEntropyWithLogits",
        lambda d: [d.matrix(), d.ints(d.side, high=d.side)],
        _sparse_cross_entropy,
    )


def cases() -> Iterator[Case]:
    """Iterate over the cases of this module."""
    for family in (_unary, _binary, _casts, _reductions, _matrices, _activations):
        yield from family()
