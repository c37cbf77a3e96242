"""Loops in C, for float32 arrays, that NumPy has no word for: it would take several passes, or many small calls.

`loops` is the extension module (`loops.c`), or None where the package was installed without a C compiler, or with
`AEXEC_NATIVE=0` in the environment.  A kernel that has a loop here looks at each call: without the module, or for
arrays of another type, it does the same with NumPy.  The results agree within their last digits.

A loop checks that the sizes of its arrays agree, raises ValueError if not, and lets go of the interpreter's lock.  It
runs to its end, so the caller cuts its work into pieces of a millisecond at most.
"""

from __future__ import annotations

import importlib
import os
import warnings
from contextlib import suppress
from types import ModuleType
from typing import Any

import numpy as np

__all__ = ["are_single", "loops"]

# The revision of `loops.c` that kernels need.
_REVISION = 2


def _found() -> ModuleType | None:
    if os.environ.get("AEXEC_NATIVE") == "0":
        return None
    with suppress(ImportError):
        found = importlib.import_module("aexec.native._loops")
        if getattr(found, "REVISION", None) == _REVISION:
            return found
        warnings.warn(
            "aexec.native is of another version than aexec, and not used: install aexec again, which compiles it",
            RuntimeWarning,
            stacklevel=1,
        )
    return None


loops = _found()

_SINGLE = np.dtype(np.float32)


def are_single(*arrays: Any) -> bool:
    """True if the loops take these arrays: all are NumPy's, float32 and contiguous."""
    for array in arrays:
        if type(array) is not np.ndarray or array.dtype is not _SINGLE or not array.flags.c_contiguous:
            return False
    return True
