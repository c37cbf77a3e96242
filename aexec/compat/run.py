"""Runs a program that imports TensorFlow on aexec, as it is: `python -m aexec.compat.run program.py --steps=100`.

`python -m aexec.compat.run -m package.module` runs a module.  Inside the process `import tensorflow as tf` gives
`aexec.compat.v1`.  Next to read: `tensorflow_modules.py`.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence

from aexec.compat.tensorflow_modules import install

__all__: list[str] = []

_USAGE = "usage: python -m aexec.compat.run [-m] program [argument ...]"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a program under its own name `__main__`.

    Args:
        arguments: the path of a program, or `-m` and the name of a module, then the program's own arguments; by default
            those of the command line.

    Raises:
        SystemExit: there is no program among the arguments; or the program raises it.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    is_module = given[:1] == ["-m"]
    words = given[is_module:]
    if not words or words[0] in ("-h", "--help"):
        print(_USAGE, file=sys.stdout if words else sys.stderr)
        sys.exit(0 if words else 2)
    install()
    sys.argv = words
    if is_module:
        sys.path[0] = os.getcwd()
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main()
