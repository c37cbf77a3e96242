"""What the tests of convolutions and pools share: slow models in double precision, pixel by pixel."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

__all__ = ["Windows", "assert_close", "convolve", "window_attrs"]


class Windows:
    """Where windows lie over the spatial dimensions of [batch, ..., channels]; rules as SEMANTICS has them."""

    def __init__(
        self,
        lengths: Sequence[int],
        sizes: Sequence[int],
        strides: Sequence[int],
        padding: Any,
        rates: Sequence[int] | None = None,
        *,
        centred: bool = False,
    ) -> None:
        """`padding` is "SAME", "VALID" or a pair (before, after) per dimension."""
        rates = rates or [1] * len(lengths)
        self.lengths, self.sizes, self.strides, self.rates = lengths, sizes, strides, rates
        self.counts, self.befores = [], []
        for i, (n, k, s, r) in enumerate(zip(lengths, sizes, strides, rates, strict=True)):
            span = (k - 1) * r + 1
            if padding == "SAME":
                count = -(-n // s)
                total = (count - 1) * s + span - n
                before = int(total / 2) if centred else max(0, total) // 2
            else:
                before, after = (0, 0) if padding == "VALID" else padding[i]
                count = (n + before + after - span) // s + 1
            self.counts.append(max(0, count))
            self.befores.append(before)

    def visits(self) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
        """(output pixel, tap, input pixel) wherever the tap is inside the input."""
        for at in itertools.product(*map(range, self.counts)):
            for tap in itertools.product(*map(range, self.sizes)):
                where = tuple(
                    a * s + t * r - b
                    for a, s, t, r, b in zip(at, self.strides, tap, self.rates, self.befores, strict=True)
                )
                if all(0 <= w < n for w, n in zip(where, self.lengths, strict=True)):
                    yield at, tap, where


def convolve(x: Any, weights: Any, windows: Windows) -> Any:
    """Direct convolution, groups included."""
    x, weights = x.astype(np.float64), weights.astype(np.float64)
    depth, outputs = weights.shape[-2:]
    groups = x.shape[-1] // depth
    wide = outputs // groups
    out = np.zeros((x.shape[0], *windows.counts, outputs))
    for at, tap, where in windows.visits():
        for g in range(groups):
            pixels = x[(slice(None), *where, slice(g * depth, (g + 1) * depth))]
            out[(slice(None), *at, slice(g * wide, (g + 1) * wide))] += (
                pixels @ weights[(*tap, slice(None), slice(g * wide, (g + 1) * wide))]
            )
    return out


def assert_close(got: Any, want: Any, dtype: Any, tolerance: float) -> None:
    got = np.asarray(got)
    assert got.dtype == dtype
    assert got.shape == want.shape
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=tolerance, atol=tolerance)


@st.composite
def window_attrs(draw: Any, dims: int, *, rates: bool = False, explicit: bool = False, equal: bool = False) -> Any:
    """(lengths, sizes, strides, rates, padding) of windows that fit; padding as `Windows` takes it."""
    sizes = [draw(st.integers(1, 3)) for _ in range(dims)]
    strides = [draw(st.integers(1, 3)) for _ in range(dims)]
    if equal:
        strides = strides[:1] * dims
    dilation = [draw(st.integers(1, 2)) if rates else 1 for _ in range(dims)]
    padding = draw(st.sampled_from(["SAME", "VALID", "EXPLICIT"] if explicit else ["SAME", "VALID"]))
    if padding == "EXPLICIT":
        padding = [(draw(st.integers(0, k - 1)), draw(st.integers(0, k - 1))) for k in sizes]
    spans = [(k - 1) * r + 1 for k, r in zip(sizes, dilation, strict=True)]
    lengths = [draw(st.integers(1 if padding == "SAME" else span, 6)) for span in spans]
    return lengths, sizes, strides, dilation, padding
