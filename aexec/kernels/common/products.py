"""Products of matrices with what follows them done block by block: see `epilogue.py`."""

from __future__ import annotations

from typing import Any

from aexec.kernels.common.epilogue import Epilogue, apply_in_blocks

__all__ = ["matrix_product"]


def matrix_product(xp: Any, a: Any, b: Any, epilogue: Epilogue | None = None) -> Any:
    """The product of two matrices of one type; `epilogue` is done to the result, in place.

    Raises:
        ValueError: NumPy's, for sizes that do not fit.
    """
    out = xp.matmul(a, b)
    apply_in_blocks(out, epilogue)
    return out
