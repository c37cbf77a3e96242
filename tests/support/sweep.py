"""What the sweeps over kernels share: random shapes, a kernel's element types, values with corners, comparison.

A sweep is a table: op → a check, made by one of the table's factories from an oracle. A check draws dtypes, shapes
and a seed, runs the kernel, and compares with the oracle, which computes in float64, complex128 or Python's
integers and knows nothing of the kernel. Values are on a coarse grid, where no rounding decides, plus the type's
corners.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aexec.framework.dtypes import DType
from aexec.framework.op_contract import op_registry
from tests.kernels.harness import registered, strings

__all__ = [
    "SEEDS",
    "SHAPES",
    "TOLERANCE",
    "Check",
    "Draw",
    "assert_close",
    "broadcasting",
    "exact",
    "random_values",
    "rounded",
    "sweeps",
    "types_of",
    "wide",
]

Draw = Callable[[Any], Any]
Check = Callable[[str, Draw], None]

SHAPES = hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=3)
TOLERANCE = {
    "float16": 4e-3,
    "bfloat16": 3e-2,
    "float32": 1e-5,
    "float64": 1e-11,
    "complex64": 1e-5,
    "complex128": 1e-11,
}

_GRID = np.arange(-16, 17) / 4
_CORNERS = np.array([np.nan, np.inf, -np.inf, -0.0])


def types_of(op: str, attr: str = "T", kinds: str = "biufcO") -> list[np.dtype[Any]]:
    """The element types that the op and its kernels take for an attr, bytes among them."""
    found = {dtype for *_, choice in registered(op) for name, dtype in choice if name == attr}
    attrs = op_registry.global_registry.lookup(op).op_def.attrs
    allowed = next((a.allowed for a in attrs if a.name == attr), None)
    if allowed:
        found &= set(allowed)
    return sorted((d.np for d in found if _is_swept(d) and _kind(d.np) in kinds), key=lambda t: t.name)


def _is_swept(dtype: DType) -> bool:
    return dtype.name == "string" or (dtype.is_simple and not dtype.is_quantized)


def _kind(dtype: np.dtype[Any]) -> str:
    return "f" if dtype == ml_dtypes.bfloat16 else dtype.kind


def broadcasting(count: int) -> Any:
    """Shapes that broadcast together, size-one and missing dimensions, zero sizes and all."""
    return hnp.mutually_broadcastable_shapes(num_shapes=count, max_dims=5, min_side=0, max_side=3).map(
        lambda found: found.input_shapes
    )


def random_values(
    seed: int, shape: tuple[int, ...], dtype: Any, low: float = -4, high: float = 4, *, corners: bool = True
) -> Any:
    """Values within bounds, and some of the type's corners: NaN and infinities, or the type's limits."""
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype.kind == "O":
        words = rng.choice([b"", b"a", b"b", b"ab"], shape)
        return strings(*words.ravel().tolist(), shape=shape) if shape else strings(bytes(words), shape=())
    kind = _kind(dtype)
    if kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if kind in "iu":
        limits = np.iinfo(dtype)
        pool = np.arange(max(limits.min, int(np.ceil(low))), int(high) + 1).astype(dtype)
        extreme = np.array([limits.min, limits.max, limits.max - 1], dtype)
    else:
        pool, extreme = _GRID[(low <= _GRID) & (high >= _GRID)], _CORNERS
    if kind == "c":
        return (rng.choice(pool, shape) + 1j * rng.choice(pool, shape)).astype(dtype)
    drawn = rng.choice(pool, shape)
    if corners:
        drawn = np.where(rng.random(shape) < 0.2, rng.choice(extreme, shape), drawn)
    return np.asarray(drawn).astype(dtype)


def exact(x: Any) -> Any:
    """Integers as Python's, which do not overflow."""
    return x.astype(object)


def wide(x: Any) -> Any:
    """What oracles compute with: Python's integers, float64 or complex128; bools and bytes as they are."""
    kind = _kind(x.dtype)
    if kind in "bO":
        return x
    return exact(x) if kind in "iu" else x.astype(np.complex128 if kind == "c" else np.float64)


def rounded(x: Any, dtype: Any) -> Any:
    """A wide result in a kernel's type: integers wrap around, floats are rounded."""
    x, dtype = np.asarray(x), np.dtype(dtype)
    if dtype.kind not in "iu" or x.dtype != object:
        with np.errstate(all="ignore"):
            return x.astype(dtype)
    limits = np.iinfo(dtype)
    size = 1 << limits.bits
    wrapped = [(int(v) - limits.min) % size + limits.min for v in x.ravel().tolist()]
    return np.array(wrapped, dtype).reshape(x.shape)


def assert_close(got: Any, want: Any, tolerance: float | None = None) -> None:
    """Equal in type and shape; floats by the precision of their type, everything else exactly."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    tolerance = TOLERANCE.get(want.dtype.name, 0) if tolerance is None else tolerance
    if want.dtype == object:
        assert got.tolist() == want.tolist()
    elif tolerance == 0:
        np.testing.assert_array_equal(wide(got), wide(want))
    else:
        np.testing.assert_allclose(wide(got), wide(want), rtol=tolerance, atol=tolerance)


SEEDS = st.integers(0, 2**16)


def sweeps(table: dict[str, Check], examples: int) -> tuple[Callable[..., None], Callable[..., None]]:
    """`test_sweep` and `test_long_sweep` of a table: so many examples of each op, and with `--soak` new ones."""

    def check(op: str, data: Any) -> None:
        table[op](op, data.draw)

    ops, draws = pytest.mark.parametrize("op", sorted(table)), given(data=st.data())
    short = ops(settings(max_examples=examples)(draws(check)))
    return short, pytest.mark.soak(ops(settings(max_examples=300, derandomize=False)(draws(check))))
