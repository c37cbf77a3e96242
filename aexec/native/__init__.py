"""Loops in C, for which NumPy and protobuf take several passes, or many small calls.

`loops` is the extension module for float32 arrays and random words (`loops.c`), `records` that for bytes of TFRecord
files and Example messages, and for lists of elements (`records.c`).  Each is None where the package was installed
without a C compiler, or with `AEXEC_NATIVE=0` in the environment.  A caller looks at each call: without the module, or
for what the module does not take, it does the same without.  Results of `loops` agree within their last digits, random
words and those of `records` exactly.

A loop over arrays checks that their sizes agree, raises ValueError if not, and lets go of the interpreter's lock; those
of `records` keep the lock.  All run to their end, so the caller cuts its work into pieces of a millisecond at most.
"""

from __future__ import annotations

import importlib
import os
import warnings
from contextlib import suppress
from types import ModuleType
from typing import Any

import numpy as np

__all__ = ["are_single", "loops", "records"]

# The revisions of the sources in C that callers need.
_REVISIONS = {"_loops": 11, "_records": 2}


def _found(name: str) -> ModuleType | None:
    if os.environ.get("AEXEC_NATIVE") == "0":
        return None
    with suppress(ImportError):
        found = importlib.import_module(f"aexec.native.{name}")
        if getattr(found, "REVISION", None) == _REVISIONS[name]:
            return found
        warnings.warn(
            "aexec.native is of another version than aexec, and not used: install aexec again, which compiles it",
            RuntimeWarning,
            stacklevel=1,
        )
    return None


loops = _found("_loops")
records = _found("_records")

_SINGLE = np.dtype(np.float32)


def are_single(*arrays: Any) -> bool:
    """True if the loops take these arrays: all are NumPy's, float32 and contiguous."""
    for array in arrays:
        if type(array) is not np.ndarray or array.dtype is not _SINGLE or not array.flags.c_contiguous:
            return False
    return True
