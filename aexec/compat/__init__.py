"""Other libraries' names for aexec's functions, for programs that migrate.

`v1/` has those of TensorFlow's graph mode.  Nothing else in aexec imports this package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aexec.compat import v1

__all__ = ["v1"]

if not TYPE_CHECKING:

    def __getattr__(name):
        # Importing it makes a default graph for code outside of all blocks, so import it on demand only.
        if name == "v1":
            return importlib.import_module("aexec.compat.v1")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
