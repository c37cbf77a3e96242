"""Kernels between encoded strings and code points: UnicodeDecode, UnicodeEncode, UnicodeTranscode, UnicodeScript.

Encodings are Python's; TensorFlow's are ICU's, which has more names for them.
"""

from __future__ import annotations

import codecs
import re
from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import Growth
from aexec.framework.waiting.loop_budget import giving_way, let_others_run
from aexec.kernels.common.strings import elements_of, lists_of, made, map_strings, string_array, string_cost
from aexec.kernels.string.unicode_scripts import script_of

__all__: list[str] = []

_SPLIT_TYPES = (dtypes.int32, dtypes.int64)
_COST = string_cost(2000, 30)
# An invalid sequence is decoded to two characters: this mark, and one that encodes its length in bytes.  Both are
# surrogates, which no decoder returns otherwise.
_MARK = "\udfff"
_LENGTH = 0xD800
_MAX_LENGTH = 0x3FF
# Bytes, or code points, that are converted at a time; and the bytes of a string's length.
_PIECE, _LENGTH_BYTES = 1 << 14, 40
# Nanoseconds for a code point that is encoded.
_CODE_NS = 300.0
_INVALID = re.compile(f"{_MARK}[\ud800-\udbff]")


def _mark_invalid(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    length = min(error.end - error.start, _MAX_LENGTH)
    return _MARK + chr(_LENGTH + length), error.start + length


codecs.register_error("aexec.mark", _mark_invalid)


class _Options:
    """The handling of invalid sequences and, if an attr asks, of control characters."""

    def __init__(self, c: OpKernelConstruction) -> None:
        self.errors = c.text("errors")
        if self.errors not in ("strict", "replace", "ignore"):
            raise errors.InvalidArgumentError(
                f"errors value must be one of: 'strict', 'replace', or 'ignore', got {self.errors}"
            )
        code: int = c.attr("replacement_char")
        if not _is_character(code):
            raise errors.InvalidArgumentError("replacement_char out of unicode codepoint range")
        self.replacement = "" if self.errors == "ignore" else chr(code)
        self.control = "replace_control_characters" in c.attrs and c.attr("replace_control_characters")

    def clean(self, text: str) -> str:
        """A decoded string without marks and, if an attr asks, without control characters."""
        if _MARK in text:
            if self.errors == "strict":
                raise errors.InvalidArgumentError("Invalid formatting on input string")
            text = _INVALID.sub(lambda match: self.replacement, text)
        if self.control:
            text = "".join(self.replacement if ch <= "\x1f" else ch for ch in text)
        return text


def _is_character(code: int) -> bool:
    return 0 <= code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF


def _input_codec(c: OpKernelConstruction) -> codecs.CodecInfo:
    name = c.text("input_encoding")
    try:
        found = codecs.lookup("utf-16-be" if name.lower() in ("utf-16", "utf16") else name)
    except LookupError:
        found = None
    if found is None or not found._is_text_encoding:
        raise errors.InvalidArgumentError(f"Could not create converter for input encoding: {name}")
    return found


def _text(s: bytes, codec: codecs.CodecInfo) -> str:
    """Return a short string decoded, with marks for invalid bytes."""
    return codec.decode(s, "aexec.mark")[0]


def _texts(s: bytes, codec: codecs.CodecInfo) -> Iterator[str]:
    """Decode a string of any length in pieces: each invalid byte takes a microsecond, in `_mark_invalid`."""
    if len(s) <= _PIECE or codec.incrementaldecoder is None:
        yield _text(s, codec)
        return
    decoder = codec.incrementaldecoder("aexec.mark")
    for start in range(0, len(s), _PIECE):
        let_others_run()
        yield decoder.decode(s[start : start + _PIECE], start + _PIECE >= len(s))


@kernel("UnicodeTranscode", cost=_COST)
def unicode_transcode(c: OpKernelConstruction) -> Compute:
    """Converts from one encoding to UTF-8, UTF-16-BE or UTF-32-BE."""
    options, codec, encoding = _Options(c), _input_codec(c), c.text("output_encoding")

    def transcoded(s: bytes) -> bytes:
        if len(s) <= _PIECE:
            return options.clean(_text(s, codec)).encode(encoding)
        parts, growth = list[bytes](), Growth(joined=True)
        for text in _texts(s, codec):
            parts.append(options.clean(text).encode(encoding))
            growth.add(len(parts[-1]))
        return b"".join(parts)

    return lambda x: map_strings(transcoded, x)


def _row_splits(lengths: Sequence[int], dtype: Any) -> Any:
    splits = np.zeros(len(lengths) + 1, dtype)
    np.cumsum(lengths, out=splits[1:])
    return splits


@kernel("UnicodeDecode", Tsplits=_SPLIT_TYPES, cost=_COST)
def unicode_decode(c: OpKernelConstruction) -> Compute:
    """Return (row splits, code points) of all strings."""
    options, codec, split_type = _Options(c), _input_codec(c), c.output_types[0].np

    def compute(x: Any) -> Any:
        codes, lengths, growth = array("i"), list[int](), Growth(joined=True)

        def add(texts: Sequence[str]) -> int:
            """Add code points; return how many."""
            before = len(codes)
            codes.frombytes("".join(texts).encode("utf-32-le"))
            growth.add(codes.itemsize * (len(codes) - before) + _LENGTH_BYTES * len(texts))
            return len(codes) - before

        for some in lists_of(x):
            if max(map(len, some)) <= _PIECE:
                texts = [options.clean(_text(s, codec)) for s in some]
                lengths += map(len, texts)
                add(texts)
            else:
                lengths += [sum(add([options.clean(text)]) for text in _texts(s, codec)) for s in some]
        return _row_splits(lengths, split_type), np.frombuffer(codes, np.int32)

    return compute


@kernel("UnicodeDecodeWithOffsets", Tsplits=_SPLIT_TYPES, cost=string_cost(4000, 60))
def unicode_decode_with_offsets(c: OpKernelConstruction) -> Compute:
    """Like UnicodeDecode, with the position of each character in its string, in bytes."""
    options, codec, split_type = _Options(c), _input_codec(c), c.output_types[0].np

    def compute(x: Any) -> Any:
        codes, offsets, lengths, growth = array("i"), array("q"), list[int](), Growth(joined=True)
        for s in elements_of(x):
            first, seen = len(codes), len(codes)
            for characters in _characters(s, codec):
                for start, ch in characters:
                    for kept in options.clean(ch):
                        codes.append(ord(kept))
                        offsets.append(start)
                growth.add((codes.itemsize + offsets.itemsize) * (len(codes) - seen))
                seen = len(codes)
            lengths.append(len(codes) - first)
            growth.add(_LENGTH_BYTES)
        return _row_splits(lengths, split_type), np.frombuffer(codes, np.int32), np.frombuffer(offsets, np.int64)

    return compute


def _characters(s: bytes, codec: codecs.CodecInfo) -> Iterator[list[tuple[int, str]]]:
    """Yield each character of a string with its first byte, in pieces; an invalid sequence is a mark and its
    length.
    """
    at = 0
    for text in _texts(s, codec):
        found: list[tuple[int, str]] = []
        for ch in text:
            if _LENGTH <= ord(ch) <= _LENGTH + _MAX_LENGTH:
                found[-1] = (at, _MARK + ch)
                at += ord(ch) - _LENGTH
            else:
                found.append((at, ch))
                at += 0 if ch == _MARK else len(codec.encode(ch)[0])
        yield found


@kernel("UnicodeEncode", Tsplits=_SPLIT_TYPES, cost=lambda values, splits: _CODE_NS * (values.size + splits.size))
def unicode_encode(c: OpKernelConstruction) -> Compute:
    """Return one string per row of code points."""
    options, encoding = _Options(c), c.text("output_encoding")

    def text_of(codes: Sequence[int]) -> str:
        if not all(map(_is_character, codes)):
            if options.errors == "strict":
                raise errors.InvalidArgumentError("Code point is out of range for Unicode, or is a surrogate.")
            return "".join(chr(code) if _is_character(code) else options.replacement for code in codes)
        return "".join(map(chr, codes))

    def encoded(codes: Any) -> bytes:
        if len(codes) <= _PIECE:
            return text_of(codes.tolist()).encode(encoding)
        pieces = giving_way(range(0, len(codes), _PIECE), _CODE_NS * _PIECE)
        return b"".join([text_of(codes[start : start + _PIECE].tolist()).encode(encoding) for start in pieces])

    def compute(values: Any, splits: Any) -> Any:
        _check_splits(values, splits)
        rows = (encoded(values[begin:end]) for begin, end in pairwise(elements_of(splits)))
        return string_array(made(rows))

    return compute


def _check_splits(values: Any, splits: Any) -> None:
    if values.ndim != 1 or splits.ndim != 1:
        raise errors.InvalidArgumentError("Both the input_tensor and input_splits should be of rank 1.")
    if not splits.size:
        raise errors.InvalidArgumentError("Input_splits should contain elements, but given input_values has 0 elements")
    if splits[0] != 0:
        raise errors.InvalidArgumentError("First value in input_splits must be zero.")
    if splits[-1] != values.size:
        raise errors.InvalidArgumentError("Last value in input_splits must be equal to length of input_tensor.")
    if (np.diff(splits) < 0).any():
        raise errors.InvalidArgumentError("Values in input_splits must be equal or in ascending order.")


@kernel("UnicodeScript", cost=20.0, scratch=24)
def unicode_script(c: OpKernelConstruction) -> Compute:
    """Return ICU's number of each code point's script; -1 for a number that is not a code point."""
    return script_of
