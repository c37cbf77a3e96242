"""Decompresses snappy blocks, and checks the declared size before allocating it.

Older versions of TensorFlow compressed the index of a checkpoint this way.  A block begins with its uncompressed
length.  Three compressed bytes expand to at most 64 bytes, so a length above that ratio is false.
"""

from __future__ import annotations

from aexec.framework import errors

__all__ = ["uncompress"]

MAX_LENGTH = 1 << 28
_MAX_RATIO = 22


def uncompress(data: bytes) -> bytes:
    """The uncompressed contents of a block, at most `MAX_LENGTH` bytes.

    Raises:
        DataLossError: it is corrupt, or declares more than it can hold or than is allowed.
    """
    import cramjam  # Imported here, since only few files need it.

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
