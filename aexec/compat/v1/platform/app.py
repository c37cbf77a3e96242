"""`tf.app`: runs a program's `main` with the arguments of the command line that are not flags.

Next to read: `flags.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from aexec.compat.v1.platform import flags

__all__ = ["flags", "run"]


def run(main: Callable[[list[str]], Any] | None = None, argv: Sequence[str] | None = None) -> None:
    """`tf.app.run`: read the flags, call `main`, and exit with its result."""
    found = main or sys.modules["__main__"].main
    sys.exit(found(flags.FLAGS(sys.argv if argv is None else argv, known_only=True)))
