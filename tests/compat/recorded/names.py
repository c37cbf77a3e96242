"""The names of all functions and classes in `aexec.compat.v1`.

`python -m tests.compat.recorded.names` writes it into `data/names.txt`, for `record.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aexec.compat.v1 as tf

__all__ = ["FILE", "MODULES", "callables", "resolve"]

FILE = Path(__file__).parent.parent / "data" / "names.txt"

MODULES = """app audio bitwise compat data data.experimental debugging distributions dtypes feature_column flags gfile
graph_util image initializers io layers linalg lookup losses manip math math.special metrics nest nn nn.rnn_cell
quantization queue ragged random saved_model sets signal sparse spectral strings summary train""".split()

# Classes whose methods are listed, too.
CLASSES = ("data.Dataset", "data.Iterator", "RaggedTensor")


def resolve(name: str) -> Any:
    """Look up a dotted name in `tf`.  Raises AttributeError if it does not exist."""
    found: Any = tf
    for part in name.split("."):
        found = getattr(found, part)
    return found


def callables() -> list[str]:
    """Dotted names of functions and classes, such as `nn.relu`.  Raises AttributeError for a name without a target."""
    names = dir(tf) + [f"{module}.{name}" for module in MODULES for name in dir(resolve(module))]
    names += [f"{kind}.{name}" for kind in CLASSES for name in dir(resolve(kind)) if not name.startswith("_")]
    return sorted(name for name in names if callable(resolve(name)))


if __name__ == "__main__":
    FILE.write_text("\n".join(callables()) + "\n", encoding="utf-8")
