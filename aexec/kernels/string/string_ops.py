"""Kernels that change, cut, join and encode strings.

Strings are bytes, which are read as UTF-8 if an attr `unit` or `encoding` says so.
Next to read: `convert_ops.py` (numbers and tensors as text), `regex_ops.py`, `hash_ops.py`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise, repeat
from math import prod
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Builder, Compute, OpKernelConstruction
from aexec.framework.kernel_contract.output_sizes import AttrCost, PerOutput, broadcast_elements
from aexec.framework.memory.allocator import Growth, announce_scratch
from aexec.framework.memory.tensor_buffer import STRING_BYTES
from aexec.framework.shape import shape_text
from aexec.framework.waiting.loop_budget import OBJECT_NS, giving_way
from aexec.framework.zeros import zeros_of_type
from aexec.kernels.common.slots import check_slots
from aexec.kernels.common.strings import (
    JOINED_BYTES,
    array_of,
    characters,
    elements_of,
    joining,
    map_strings,
    string_array,
    string_cost,
    values_of,
)

__all__: list[str] = []

_INDEX_TYPES = (dtypes.int32, dtypes.int64)


def _unit(c: OpKernelConstruction) -> bool:
    """True if lengths and positions count UTF-8 characters, False if bytes."""
    unit = c.text("unit")
    if unit not in ("BYTE", "UTF8_CHAR"):
        raise errors.InvalidArgumentError(f"Invalid unit string type: {unit}")
    return unit == "UTF8_CHAR"


# ------------------------------------------------------- one string at a time


def _case(ascii_only: Callable[[bytes], bytes], unicode: Callable[[str], str]) -> Builder:
    def builder(c: OpKernelConstruction) -> Compute:
        encoding = c.text("encoding")
        if encoding not in ("", "utf-8"):
            raise errors.InvalidArgumentError(f"only utf-8 or '' (no encoding) is supported, received {encoding}")
        if not encoding:
            return lambda x: map_strings(ascii_only, x)
        return lambda x: map_strings(lambda s: unicode(s.decode("utf-8", "replace")).encode(), x)

    return builder


kernel("StringLower", cost=string_cost())(_case(bytes.lower, str.lower))
kernel("StringUpper", cost=string_cost())(_case(bytes.upper, str.upper))


@kernel("StringStrip", cost=string_cost())
def string_strip(c: OpKernelConstruction) -> Compute:
    """Removes ASCII white space at both ends."""
    return lambda x: map_strings(bytes.strip, x)


@kernel("StringLength", cost=string_cost())
def string_length(c: OpKernelConstruction) -> Compute:
    """Counts bytes, or UTF-8 characters (bytes that do not continue one)."""
    if not _unit(c):
        return lambda x: map_strings(len, x, np.int32)
    return lambda x: map_strings(_count_characters, x, np.int32)


# Bytes that are not the first ones of a character, and bytes of a string that are processed at a time.
_FOLLOWING = bytes(range(0x80, 0xC0))
_LONG = 1 << 14
_LONG_NS = 10_000.0


def _count_characters(s: bytes) -> int:
    if len(s) <= _LONG:
        return len(s.translate(None, _FOLLOWING))
    return sum(_counts_of_pieces(s))


def _counts_of_pieces(s: bytes) -> list[int]:
    """The number of characters that begin in each piece of a long string."""
    pieces = giving_way(range(0, len(s), _LONG), _LONG_NS)
    return [len(s[start : start + _LONG].translate(None, _FOLLOWING)) for start in pieces]


@kernel("EncodeBase64", cost=string_cost())
def encode_base64(c: OpKernelConstruction) -> Compute:
    """Encodes with the web-safe alphabet; pads with `=` if an attr asks."""
    if c.attr("pad"):
        return lambda x: map_strings(base64.urlsafe_b64encode, x)
    return lambda x: map_strings(lambda s: base64.urlsafe_b64encode(s).rstrip(b"="), x)


_BASE64 = re.compile(rb"([A-Za-z0-9_-]*)(={0,2})\Z")


def _decode_base64(s: bytes) -> bytes:
    match = _BASE64.match(s)
    if match is None:
        raise errors.InvalidArgumentError("Invalid character found in base64.")
    body, padding = match.groups()
    if len(body) % 4 == 1:
        raise errors.InvalidArgumentError("Base64 string length cannot be 1 modulo 4.")
    if padding and len(s) % 4:
        raise errors.InvalidArgumentError("Invalid character found in base64.")
    return base64.urlsafe_b64decode(body + b"=" * (-len(body) % 4))


@kernel("DecodeBase64", cost=string_cost(), scratch=60)
def decode_base64(c: OpKernelConstruction) -> Compute:
    """Decodes the web-safe alphabet, with optional padding."""
    return lambda x: map_strings(_decode_base64, x)


# ------------------------------------------------------------------- Substr


def _bytes_of(s: bytes, pos: int, length: int) -> bytes | None:
    start = pos + len(s) if pos < 0 else pos
    if not 0 <= start <= len(s):
        return None
    return s[start:] if length < 0 else s[start : start + length]


def _characters_of(s: bytes, pos: int, length: int) -> bytes | None:
    if len(s) > _LONG:
        return _characters_of_long(s, pos, length)
    starts = characters(s)
    count = len(starts) - 1
    start = pos + count if pos < 0 else pos
    if not 0 <= start <= count:
        return None
    return s[starts[start] : starts[min(count, start + max(0, length))]]


def _characters_of_long(s: bytes, pos: int, length: int) -> bytes | None:
    counts, first = _counts_of_pieces(s), s[0] in _FOLLOWING  # such a byte at the start counts as a character
    count = sum(counts) + first
    start = pos + count if pos < 0 else pos
    if not 0 <= start <= count:
        return None

    def place(character: int) -> int:
        """The position of the character's first byte."""
        left = character - first
        if left < 0:
            return 0
        for number, begin in enumerate(counts):
            if left < begin:
                piece = s[number * _LONG : (number + 1) * _LONG]
                return number * _LONG + [i for i, byte in enumerate(piece) if byte & 0xC0 != 0x80][left]
            left -= begin
        return len(s)

    return s[place(start) : place(min(count, start + max(0, length)))]


# Nanoseconds of a piece; bytes of where it is, as Python objects in lists.
_CUT_NS = 400.0
_CUT_BYTES = 120
_cut_cost = string_cost(_CUT_NS)


def _substr_cost(x: Any, *places: Any) -> float:
    """Many substrings may be cut from one string."""
    return float(_cut_cost(x) * broadcast_elements((x, *places)) / max(1, x.size))


@kernel("Substr", T=_INDEX_TYPES, cost=_substr_cost)
def substr(c: OpKernelConstruction) -> Compute:
    """Return `len` bytes or characters from `pos` on; negative positions count from the end."""
    by_character = _unit(c)
    cut = _characters_of if by_character else _bytes_of

    def out_of_range(flat: int, shape: tuple[int, ...], s: bytes, pos: int) -> errors.OpError:
        at = tuple(int(i) for i in np.unravel_index(flat, shape)) if len(shape) > 1 else flat
        quoted = "" if by_character else f" b'{s.decode('utf-8', 'backslashreplace')}'"
        return errors.InvalidArgumentError(f"pos {pos} out of range for string{quoted} at index {at}")

    def compute(x: Any, pos: Any, length: Any) -> Any:
        pos, length = np.asarray(pos), np.asarray(length)
        if pos.shape != length.shape:
            raise errors.InvalidArgumentError(
                f"pos and len should have the same shape, got: {shape_text(pos.shape)} vs. {shape_text(length.shape)}"
            )
        try:
            x, pos, length = np.broadcast_arrays(x, pos, length)
        except ValueError:
            raise errors.InvalidArgumentError(
                f"Incompatible shapes: {shape_text(x.shape)} vs. {shape_text(pos.shape)}"
            ) from None
        announce_scratch(_CUT_BYTES * x.size)
        parts = []
        cuts = zip(elements_of(x), elements_of(pos), elements_of(length), strict=True)
        for i, (s, p, n) in enumerate(giving_way(cuts, _CUT_NS)):
            part = cut(s, p, n)
            if part is None:
                raise out_of_range(i, x.shape, s, p)
            parts.append(part)
        return string_array(parts, x.shape)

    return compute


# -------------------------------------------------------------------- Split


# Nanoseconds of the shortest string that is split; bytes that a part takes besides its own: of Python, in a list and an
# array, and of its indices and what they are made of; and bytes for the number of a string's parts.
_ROW_NS = 600.0
_PART_BYTES = STRING_BYTES + 56
_COUNT_BYTES = 32


def _split_on_white_space(s: bytes, maxsplit: int) -> list[bytes]:
    if maxsplit <= 0:
        return [s] if maxsplit == 0 else s.split()
    parts = s.split(None, maxsplit)
    # TensorFlow adds the rest once the limit is reached, even if it is empty.
    return [*parts, b""] if len(parts) == maxsplit else parts


def _sparse(rows: Iterable[list[bytes]]) -> tuple[Any, Any, Any]:
    """(indices [n, 2], values [n], dense shape [2]) of rows of different lengths."""
    values: list[bytes] = []
    counts: list[int] = []
    growth = Growth()
    for row in giving_way(rows, _ROW_NS):
        growth.add(_COUNT_BYTES + sum(map(len, row)) + _PART_BYTES * len(row))
        values += row
        counts.append(len(row))
    lengths = array_of(counts, np.int64)
    indices = np.empty((len(values), 2), np.int64)
    indices[:, 0] = np.repeat(np.arange(len(counts)), lengths)
    starts = lengths.cumsum() - lengths
    indices[:, 1] = np.arange(len(values)) - np.repeat(starts, lengths)
    return indices, string_array(values), np.array([len(counts), max(counts, default=0)], np.int64)


def _check_split(x: Any, separator: Any, what: str) -> bytes:
    if x.ndim != 1:
        raise errors.InvalidArgumentError(f"input must be a vector, got shape: {shape_text(x.shape)}")
    if separator.ndim:
        raise errors.InvalidArgumentError(f"{what} must be a scalar, got shape: {shape_text(separator.shape)}")
    value: bytes = separator.item()
    return value


@kernel("StringSplitV2", cost=string_cost(_ROW_NS, 5))
def string_split_v2(c: OpKernelConstruction) -> Compute:
    """Return a sparse matrix of the parts of each string; an empty separator means runs of white space."""
    maxsplit = c.attr("maxsplit")

    def compute(x: Any, sep: Any) -> Any:
        separator = _check_split(x, sep, "sep")
        if separator:
            return _sparse(s.split(separator, maxsplit) for s in elements_of(x))
        return _sparse(_split_on_white_space(s, maxsplit) for s in elements_of(x))

    return compute


@kernel("StringSplit", cost=string_cost(_ROW_NS, 5))
def string_split(c: OpKernelConstruction) -> Compute:
    """Return a sparse matrix of the parts between any of the delimiter's bytes; without a delimiter, of single
    bytes.
    """
    skip_empty = c.attr("skip_empty")

    def compute(x: Any, delimiter: Any) -> Any:
        bytes_ = _check_split(x, delimiter, "delimiter")
        if not bytes_:
            return _sparse([s[i : i + 1] for i in range(len(s))] for s in elements_of(x))
        split = re.compile(b"[" + re.escape(bytes_) + b"]").split
        rows = (split(s) if s else [] for s in elements_of(x))
        return _sparse(([part for part in row if part] for row in rows) if skip_empty else rows)

    return compute


# --------------------------------------------------------------------- Join


def _join_ns(*inputs: Any) -> float:
    """Nanoseconds of StringJoin: by the strings' number, and their lengths as estimated from the first of each
    input.
    """
    count = max(x.size for x in inputs)
    lengths = [len(x.item(0)) * (count if x.ndim == 0 else x.size) for x in inputs if x.size]
    return float(200 * count + 0.5 * sum(lengths))


@kernel("StringJoin", cost=_join_ns)
def string_join(c: OpKernelConstruction) -> Compute:
    """Joins element by element; scalars broadcast."""
    separator = c.attr("separator")

    def compute(*inputs: Any) -> Any:
        join = joining(separator)
        shapes = [x.shape for x in inputs if x.ndim]
        if not shapes:
            return string_array([join([x.item() for x in inputs])], ())
        for shape in shapes:
            if shape != shapes[0]:
                raise errors.InvalidArgumentError(
                    f"Input shapes do not match: {shape_text(shapes[0])} vs. {shape_text(shape)}"
                )
        count = prod(shapes[0])
        columns = [elements_of(x) if x.ndim else repeat(x.item(), count) for x in inputs]
        return string_array([join(row) for row in zip(*columns, strict=True)], shapes[0])

    return compute


@kernel("ReduceJoin", cost=string_cost(), scratch=JOINED_BYTES)
def reduce_join(c: OpKernelConstruction) -> Compute:
    """Joins along dimensions; the first one named varies fastest."""
    keep_dims, separator = c.attr("keep_dims"), c.attr("separator")

    def compute(x: Any, reduction_indices: Any) -> Any:
        join = joining(separator)
        rank = x.ndim
        dims: list[int] = []
        for dim in reduction_indices.ravel()[: rank + 1].tolist():  # of more dimensions one is wrong or repeated
            if not -rank <= dim < rank:
                raise errors.OutOfRangeError(f"Invalid reduction dimension {dim} for input with {rank} dimension(s)")
            if dim % rank in dims:
                raise errors.InvalidArgumentError(f"Duplicate reduction dimension {dim}")
            dims.append(dim % rank)
        if not dims:
            return x
        kept = [d for d in range(rank) if d not in dims]
        length = prod(x.shape[d] for d in dims)
        values = values_of(x.transpose(kept + dims[::-1]))
        shape = [1 if d in dims else x.shape[d] for d in range(rank) if keep_dims or d not in dims]
        count = prod(x.shape[d] for d in kept)
        return string_array([join(values[i * length : (i + 1) * length]) for i in range(count)], shape)

    return compute


def unsorted_segment_join(c: OpKernelConstruction) -> Compute:
    """Joins the strings of each segment in order; an empty segment gives an empty string."""
    separator = c.attr("separator")

    def compute(x: Any, segment_ids: Any, num_segments: Any) -> Any:
        join = joining(separator)
        segment_ids, num_segments = np.asarray(segment_ids), np.asarray(num_segments)
        if num_segments.ndim:
            raise errors.InvalidArgumentError("Number of segments must be a scalar")
        count = int(num_segments)
        if count < 0:
            raise errors.InvalidArgumentError(f"Number of segments must be non-negative but got {count}")
        if x.ndim == 0 or segment_ids.ndim == 0:
            raise errors.InvalidArgumentError("Inputs and segment ids must have rank 1 at least")
        for i, size in enumerate(segment_ids.shape):
            if i >= x.ndim or size != x.shape[i]:
                raise errors.InvalidArgumentError(
                    f"Segment dimension is {size} while input dimension is "
                    f"{x.shape[i] if i < x.ndim else 'missing'} in rank {i}"
                )
        ids = values_of(segment_ids)
        if ids and (min(ids) < 0 or max(ids) >= count):
            raise errors.InvalidArgumentError(
                "segment_ids are not allowed to exceed num_segments or to have negative values."
            )
        inner = x.shape[segment_ids.ndim :]
        width = prod(inner)
        check_slots(count * width)
        parts: list[list[bytes]] = [[] for _ in giving_way(range(count * width), OBJECT_NS)]
        places = (segment * width + column for segment in ids for column in range(width))
        for place, s in zip(places, elements_of(x), strict=True):
            parts[place].append(s)
        return string_array([join(p) for p in giving_way(parts, OBJECT_NS)], (count, *inner))

    return compute


for _index_type in _INDEX_TYPES:
    kernel(
        "UnsortedSegmentJoin",
        Tindices=(_index_type,),
        Tnumsegments=_INDEX_TYPES,
        cost=PerOutput(200.0),
        scratch=2 * JOINED_BYTES,
    )(unsorted_segment_join)


# ------------------------------------------------------------------- NGrams


_Join = Callable[[Sequence[bytes]], bytes]
# Nanoseconds per n-gram, and per token in it.
_GRAM_NS, _TOKEN_NS = 200.0, 20.0
# Nanoseconds per row split, and its bytes as a Python object.
_SPLIT_NS, _SPLIT_BYTES = 150.0, 48
# The most bytes of the n-grams of one row and width.
_MOST_BYTES = 1 << 30


def _check_splits(data: Any, splits: list[int]) -> None:
    if splits[0] != 0:
        raise errors.InvalidArgumentError(f"First split value must be 0, got {splits[0]}")
    for before, split in pairwise(splits):
        if not before <= split <= data.size:
            raise errors.InvalidArgumentError(f"Invalid split value {split}, must be in [{before}, {data.size}]")
    if splits[-1] != data.size:
        raise errors.InvalidArgumentError(f"Last split value must be data size. Expected {data.size}, got {splits[-1]}")


def _padding(attrs: Mapping[str, Any], width: int) -> int:
    """The number of pads on each side of a row, for n-grams of this width."""
    return width - 1 if attrs["pad_width"] < 0 else min(attrs["pad_width"], width - 1)


def _grams_cost(attrs: Mapping[str, Any]) -> Callable[..., float]:
    sizes = [(width, 2 * _padding(attrs, width)) for width in attrs["ngram_widths"]]

    def cost(data: Any, splits: Any) -> Any:
        rows = max(1, splits.size - 1)
        grams = ((data.size + rows * max(0, pads - width + 1), width) for width, pads in sizes)
        return _SPLIT_NS * splits.size + sum((_GRAM_NS + _TOKEN_NS * width) * number for number, width in grams)

    return cost


@kernel("StringNGrams", Tsplits=_INDEX_TYPES, cost=AttrCost(_grams_cost))
def string_ngrams(c: OpKernelConstruction) -> Compute:
    """Return (n-grams, row splits): for each row and every width, the joined runs of that many tokens."""
    widths, split_type = c.attr("ngram_widths"), c.output_types[1].np
    left, right, padding, separator = c.attr("left_pad"), c.attr("right_pad"), c.attr("pad_width"), c.attr("separator")
    shortest = min(len(left), len(right))
    preserve = c.attr("preserve_short_sequences")
    if any(width < 1 for width in widths):
        raise errors.InvalidArgumentError("ngram_widths must contain positive values")

    def grams(join: _Join, tokens: list[bytes], width: int) -> list[bytes]:
        pad = _padding(c.attrs, width)
        count = max(0, len(tokens) + 2 * pad - width + 1)
        least = 8 * pad + count * (8 + (width - 1) * (len(separator) + shortest))
        if least > _MOST_BYTES:
            raise errors.ResourceExhaustedError(f"the n-grams of a row need {least} bytes, more than {_MOST_BYTES}")
        padded = [left] * pad + tokens + [right] * pad
        starts = giving_way(range(count), _GRAM_NS + _TOKEN_NS * width)
        return [join(padded[i : i + width]) for i in starts]

    def row(join: _Join, tokens: list[bytes]) -> list[bytes]:
        found = [gram for width in widths for gram in grams(join, tokens, width)]
        if not found and tokens and preserve:
            if not widths and padding < 0:
                raise errors.InvalidArgumentError(
                    "Pad width should be >= 0 when preserve_short_sequences is True and ngram_widths are not provided, "
                    f"got {padding}"
                )
            return grams(join, tokens, len(tokens) + 2 * max(0, padding))
        return found

    def compute(data: Any, data_splits: Any) -> Any:
        announce_scratch(_SPLIT_BYTES * data_splits.size)
        splits, tokens = values_of(data_splits), values_of(data)
        if not splits:
            return zeros_of_type(data.shape, dtypes.string), np.zeros(data_splits.shape, split_type)
        _check_splits(data, splits)
        if not tokens:
            return data.ravel(), np.zeros(data_splits.shape, split_type)
        join = joining(separator)
        rows = [row(join, tokens[a:b]) for a, b in giving_way(pairwise(splits), _SPLIT_NS)]
        out = np.zeros(len(splits), split_type)
        np.cumsum([len(r) for r in rows], out=out[1:])
        return string_array([gram for r in rows for gram in r]), out.reshape(data_splits.shape)

    return compute
