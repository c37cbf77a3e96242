"""`SaveSliceInfo`: which part of a whole a variable is, in memory and in checkpoints.

Next to read: `partitioned_variable.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aexec import proto

__all__ = ["PartitionInfo", "SaveSliceInfo"]


class PartitionInfo(NamedTuple):
    """The argument `partition_info` of an initializer that makes a part.

    Attributes:
        full_shape: of the whole.
        var_offset: where the part begins in it.
    """

    full_shape: Sequence[int]
    var_offset: Sequence[int]


class SaveSliceInfo(NamedTuple):
    """A part of a whole.

    Attributes:
        full_name: of the whole, in checkpoints.
        full_shape: of the whole.
        var_offset: where the part begins in it.
        var_shape: of the part.
    """

    full_name: str
    full_shape: Sequence[int]
    var_offset: Sequence[int]
    var_shape: Sequence[int]

    @property
    def spec(self) -> str:
        """The text that checkpoint ops take: `70 3 0,24:0,3`, the full shape, then start and length for each axis."""
        extents = ":".join(f"{start},{size}" for start, size in zip(self.var_offset, self.var_shape, strict=True))
        return " ".join([*map(str, self.full_shape), extents])

    def beside(self, name: str, rank: int | None) -> SaveSliceInfo:
        """The slice info of a variable kept for each part under a name, such as its momentum."""
        return SaveSliceInfo(
            f"{self.full_name}/{name}", self.full_shape[:rank], self.var_offset[:rank], self.var_shape[:rank]
        )

    def to_proto(self) -> proto.SaveSliceInfoDef:
        """The message, as MetaGraphs hold it."""
        return proto.SaveSliceInfoDef(
            full_name=self.full_name,
            full_shape=self.full_shape,
            var_offset=self.var_offset,
            var_shape=self.var_shape,
        )

    @classmethod
    def from_proto(cls, message: proto.SaveSliceInfoDef) -> SaveSliceInfo | None:
        """The slice info of a message; None if it has none."""
        if not message.full_name:
            return None
        sizes = (list(part) for part in (message.full_shape, message.var_offset, message.var_shape))
        return cls(message.full_name, *sizes)
