"""Makes the arrays in a run's results writable, as TensorFlow's are.

Next to read: `session.py`.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

__all__ = ["writable"]


def writable(found: Any) -> Any:
    """Return a structure of fetched values in which read-only arrays are replaced by copies.

    Read-only arrays are the values of constants and variables themselves, or views of them.
    """
    if isinstance(found, np.ndarray):
        return found if found.flags.writeable else found.copy()
    if isinstance(found, dict):
        kept = copy(found)
        kept.update((key, writable(value)) for key, value in found.items())
        return kept
    if isinstance(found, list):
        return [writable(value) for value in found]
    if isinstance(found, tuple):
        parts = [writable(value) for value in found]
        return type(found)(*parts) if hasattr(found, "_fields") else tuple(parts)
    return found
