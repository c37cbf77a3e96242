"""Views by rank: they share memory, and refuse what does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec import errors
from aexec.framework import tensor_view as views

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
F = "float32"


@pytest.mark.parametrize(
    ("view", "shape"),
    [
        (lambda: views.flat(X, F), (24,)),
        (lambda: views.tensor(X, F, 3), (2, 3, 4)),
        (lambda: views.shaped(X, F, (4, 6)), (4, 6)),
        (lambda: views.flat_inner_dims(X, F), (6, 4)),
        (lambda: views.flat_inner_dims(X, F, 5), (1, 1, 2, 3, 4)),
        (lambda: views.flat_outer_dims(X, F), (2, 12)),
        (lambda: views.flat_outer_dims(X, F, 5), (2, 3, 4, 1, 1)),
        (lambda: views.flat_inner_outer_dims(X.reshape(2, 3, 2, 2), F, 1, 2), (6, 4)),
        (lambda: views.vec(X[0, 0], F), (4,)),
        (lambda: views.matrix(X[0], F), (3, 4)),
        (lambda: views.scalar(X[:1, :1, :1].copy(), F), ()),
        (lambda: views.bit_casted_shaped(X, "int8", (24, 4)), (24, 4)),
        (lambda: views.slice_outer(X, 1, 2), (1, 3, 4)),
        (lambda: views.slice_outer(X, 2, 2), (0, 3, 4)),
        (lambda: views.sub_slice(X, 1), (3, 4)),
    ],
)
def test_shape(view: Any, shape: tuple[int, ...]) -> None:
    assert view().shape == shape


def test_views_share_memory() -> None:
    x = X.copy()
    for view in (
        views.flat(x, F),
        views.flat_inner_dims(x, F),
        views.bit_casted_shaped(x, "int32", (2, 12)),
        views.slice_outer(x, 0, 1),
        views.sub_slice(x, 1),
    ):
        assert np.shares_memory(view, x)
    views.sub_slice(views.slice_outer(x, 1, 2), 0)[...] = 7
    assert (x[1] == 7).all()


@pytest.mark.parametrize(
    ("view", "words"),
    [
        (lambda: views.flat(X, "int32"), "type int32, got float32"),
        (lambda: views.matrix(X, F), r"rank 2, got shape \[2,3,4\]"),
        (lambda: views.scalar(X, F), "one element"),
        (lambda: views.shaped(X, F, (5, 5)), r"no view of shape \[5,5\]"),
        (lambda: views.shaped(X, F, (-4, -6)), "no view of shape"),
        (lambda: views.flat(X.T, F), "row-major"),
        (lambda: views.bit_casted_shaped(X, "int64", (24,)), "96 bytes"),
        (lambda: views.bit_casted_shaped(np.array([b"a"], object), "int64", (1,)), "no plain bytes"),
        (lambda: views.slice_outer(X, 1, 3), "no slice from 1 to 3"),
        (lambda: views.slice_outer(X[0, 0, 0], 0, 0), "no slice"),
        (lambda: views.sub_slice(X, -1), "no row -1"),
    ],
)
def test_refused(view: Any, words: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=words):
        view()
