"""The HTML form of a checkpoint reader in notebooks: a table of tensors with dtypes and shapes.

Next to read: `tensor_bundle.py` and `checkpoint_v1.py`, the readers; `aexec/framework/html_repr.py`, the tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Protocol

from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.html_repr import MAX_ROWS, block, table
from aexec.framework.shape import shape_text

__all__ = ["checkpoint_html"]

# Count at most this many names: an index of millions would take seconds.
_MAX_COUNTED = 10_000


class _Reader(Protocol):
    def keys(self) -> Iterable[str]: ...

    def dtype_and_shape(self, name: str) -> tuple[DType, tuple[int, ...]]: ...


def checkpoint_html(reader: _Reader, where: str) -> str:
    """A table of the first tensors of a checkpoint, or the error if the checkpoint is corrupt."""
    try:
        names = list(islice(reader.keys(), _MAX_COUNTED))
        rows = [(name, *_facts(reader, name)) for name in names[:MAX_ROWS]]
    except errors.OpError as error:
        return block("Checkpoint", where, table("is not readable", [], [(error.message,)], 1))
    return block("Checkpoint", where, table("tensors", ["type", "shape"], rows, len(names)))


def _facts(reader: _Reader, name: str) -> tuple[str, str]:
    dtype, shape = reader.dtype_and_shape(name)
    return str(dtype), shape_text(shape)
