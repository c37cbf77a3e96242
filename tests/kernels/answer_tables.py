"""Tables of known answers and of refusals: what the tests of the sparse, ragged and parsing kernels share.

KNOWN = [("SparseReshape", [INDICES, SHAPE, I64([12])], {}, [I64([[1], [4], [10]]), I64([12])])]
REFUSED = [("SparseReshape", [INDICES, SHAPE, I64([5])], {}, "Input to reshape …", INVALID)]
test_known_answers = known_answers(KNOWN)
test_refused = refused(REFUSED)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from aexec.framework import errors
from tests.kernels.array_support import F32, I64, assert_refuses
from tests.kernels.harness import run_op, strings

__all__ = ["INDICES", "INVALID", "SHAPE", "VALUES", "known_answers", "refused", "texts"]

INVALID = errors.InvalidArgumentError

# A 3 x 4 matrix, which the tables put to use and break in every way.
INDICES, VALUES, SHAPE = I64([[0, 1], [1, 0], [2, 2]]), F32([1, 2, 3]), I64([3, 4])


def texts(*values: Any, shape: tuple[int, ...] | None = None) -> Any:
    """An array of byte strings; of one of them a scalar."""
    return strings(*values, shape=() if len(values) == 1 and shape is None else shape)


def known_answers(table: Sequence[tuple[str, list[Any], dict[str, Any], list[Any]]]) -> Callable[..., None]:
    """A test that the ops give these outputs: op, inputs, attrs, outputs."""

    @pytest.mark.parametrize(("op", "inputs", "attrs", "outputs"), table, ids=_names(table))
    def test_known_answers(op, inputs, attrs, outputs):
        got = run_op(op, inputs, **attrs)
        got = got if isinstance(got, tuple) else (got,)
        assert len(got) == len(outputs)
        for one, other in zip(got, outputs, strict=True):
            assert one.dtype == other.dtype
            assert one.shape == other.shape
            if one.dtype.kind in "fc":
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
            else:
                assert one.tolist() == other.tolist()

    return test_known_answers


def refused(table: Sequence[tuple[str, list[Any], dict[str, Any], str, Any]]) -> Callable[..., None]:
    """A test that the ops refuse inputs with exactly these words: op, inputs, attrs, message, error."""

    @pytest.mark.parametrize(("op", "inputs", "attrs", "message", "error"), table, ids=_names(table))
    def test_refused(op, inputs, attrs, message, error):
        assert_refuses(op, inputs, message, error, **attrs)

    return test_refused


def _names(table: Sequence[tuple[Any, ...]]) -> list[str]:
    return [f"{i}-{row[0]}" for i, row in enumerate(table)]
