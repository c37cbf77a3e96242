"""Kernels between encoded strings and code points: UnicodeDecode, UnicodeEncode, UnicodeTranscode, UnicodeScript.

Encodings are those that Python knows; TensorFlow's are ICU's, which names more of them.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_registry import kernel
from aexec.framework.op_kernel import Compute, OpKernelConstruction
from aexec.kernels.common.strings import map_strings, string_array, string_cost, values_of
from aexec.kernels.string.unicode_scripts import script_of

__all__: list[str] = []

_SPLIT_TYPES = (dtypes.int32, dtypes.int64)
_COST = string_cost(2000, 30)
# An invalid sequence is decoded to these two characters, the second of which tells its length in
# bytes: surrogates, which no decoder gives otherwise.
_MARK = "\udfff"
_LENGTH = 0xD800
_MAX_LENGTH = 0x3FF
_INVALID = re.compile(f"{_MARK}[\ud800-\udbff]")


def _mark_invalid(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    length = min(error.end - error.start, _MAX_LENGTH)
    return _MARK + chr(_LENGTH + length), error.start + length


codecs.register_error("aexec.mark", _mark_invalid)


class _Options:
    """What becomes of invalid sequences and, if asked, of control characters."""

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
        """A decoded string without marks and, if asked, without control characters."""
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


def _decoder(c: OpKernelConstruction) -> Callable[[bytes], str]:
    decode = _input_codec(c).decode
    return lambda s: decode(s, "aexec.mark")[0]


@kernel("UnicodeTranscode", cost=_COST)
def unicode_transcode(c: OpKernelConstruction) -> Compute:
    """From one encoding to UTF-8, UTF-16-BE or UTF-32-BE."""
    options, decode, encoding = _Options(c), _decoder(c), c.text("output_encoding")
    return lambda x: map_strings(lambda s: options.clean(decode(s)).encode(encoding), x)


def _row_splits(lengths: Sequence[int], dtype: Any) -> Any:
    splits = np.zeros(len(lengths) + 1, dtype)
    np.cumsum(lengths, out=splits[1:])
    return splits


@kernel("UnicodeDecode", Tsplits=_SPLIT_TYPES, cost=_COST)
def unicode_decode(c: OpKernelConstruction) -> Compute:
    """(row splits, code points) of all strings."""
    options, decode, split_type = _Options(c), _decoder(c), c.output_types[0].np

    def compute(x: Any) -> Any:
        rows = [options.clean(decode(s)) for s in values_of(x)]
        codes = np.frombuffer("".join(rows).encode("utf-32-le"), np.int32)
        return _row_splits([len(r) for r in rows], split_type), codes

    return compute


@kernel("UnicodeDecodeWithOffsets", Tsplits=_SPLIT_TYPES, cost=string_cost(4000, 60))
def unicode_decode_with_offsets(c: OpKernelConstruction) -> Compute:
    """As UnicodeDecode, and where in its string each character begins, in bytes."""
    options, codec, split_type = _Options(c), _input_codec(c), c.output_types[0].np

    def compute(x: Any) -> Any:
        codes: list[int] = []
        offsets: list[int] = []
        lengths = []
        for s in values_of(x):
            before = len(codes)
            for start, ch in _characters(s, codec):
                for kept in options.clean(ch):
                    codes.append(ord(kept))
                    offsets.append(start)
            lengths.append(len(codes) - before)
        return _row_splits(lengths, split_type), np.array(codes, np.int32), np.array(offsets, np.int64)

    return compute


def _characters(s: bytes, codec: codecs.CodecInfo) -> list[tuple[int, str]]:
    """Each character of a string with its first byte; an invalid sequence is a mark and its length."""
    text = codec.decode(s, "aexec.mark")[0]
    found: list[tuple[int, str]] = []
    at = 0
    for ch in text:
        if _LENGTH <= ord(ch) <= _LENGTH + _MAX_LENGTH:
            found[-1] = (at, _MARK + ch)
            at += ord(ch) - _LENGTH
        else:
            found.append((at, ch))
            at += 0 if ch == _MARK else len(codec.encode(ch)[0])
    return found


@kernel("UnicodeEncode", Tsplits=_SPLIT_TYPES, cost=lambda values, splits: 300.0 * (values.size + splits.size))
def unicode_encode(c: OpKernelConstruction) -> Compute:
    """One string per row of code points."""
    options, encoding = _Options(c), c.text("output_encoding")

    def text_of(codes: Sequence[int]) -> str:
        if not all(map(_is_character, codes)):
            if options.errors == "strict":
                raise errors.InvalidArgumentError("Code point is out of range for Unicode, or is a surrogate.")
            return "".join(chr(code) if _is_character(code) else options.replacement for code in codes)
        return "".join(map(chr, codes))

    def compute(values: Any, splits: Any) -> Any:
        _check_splits(values, splits)
        codes, bounds = values.tolist(), splits.tolist()
        return string_array([text_of(codes[a:b]).encode(encoding) for a, b in pairwise(bounds)])

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
    """ICU's number of each code point's script; -1 for what is no code point."""
    return script_of
