"""Large graphs, and Python's cyclic garbage collector.

The objects of a large graph live as long as their session, so they are put out of the collector's
sight until a session is closed.
"""

from __future__ import annotations

import gc

__all__ = ["collect", "settle", "unsettle"]


def settle() -> None:
    """What there is now is here to stay: the collector need not look at it any more."""
    gc.freeze()


def unsettle() -> None:
    """Let the collector look at everything again."""
    gc.unfreeze()


def collect() -> None:
    """Something large was closed: free it now, as its size is unknown to the collector's own schedule."""
    gc.unfreeze()
    gc.collect()
