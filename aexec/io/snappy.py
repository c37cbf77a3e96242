"""Blocks that snappy has compressed: what a small file unpacks to is bounded before it is allocated.

Older versions of TensorFlow compressed the index of a checkpoint so.  A block begins with the length of what it
unpacks to; an element of three bytes stands for at most 64, so a length that is more than that is a lie.
"""

from __future__ import annotations

from aexec.framework import errors

__all__ = ["uncompress"]

MAX_LENGTH = 1 << 28
_MAX_RATIO = 22


def uncompress(data: bytes) -> bytes:
    """What a block holds, at most `MAX_LENGTH` bytes.

    Raises:
        DataLossError: it is corrupt, or declares more than it can hold or than is allowed.
    """
    import cramjam  # Only few files need it.

    try:
        length = cramjam.snappy.decompress_raw_len(data)
        if length > min(_MAX_RATIO * len(data), MAX_LENGTH):
            raise errors.DataLossError(
                f"a compressed block of {len(data)} bytes declares that it holds {length}, "
                f"expected at most {_MAX_RATIO} times as much as it takes and {MAX_LENGTH}"
            )
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise errors.DataLossError(f"corrupted compressed block contents: {error}") from None
