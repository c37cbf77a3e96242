"""`tf.strings` in rows: the bytes or characters of each string, and n-grams.

Next to read: `aexec/compat/v1/functions/strings.py`, `aexec/compat/v1/values/ragged.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aexec import ops
from aexec.compat.v1.functions.array_ops import repeat
from aexec.compat.v1.functions.strings import strings_of
from aexec.compat.v1.values.ragged import RaggedTensor
from aexec.framework.errors import InvalidValueError
from aexec.graph.op_functions import convert_to_tensor

__all__ = ["bytes_split", "ngrams", "unicode_decode_with_offsets", "unicode_split", "unicode_split_with_offsets"]


def bytes_split(input: Any, name: str | None = None) -> Any:
    """`tf.strings.bytes_split`: the bytes of each string of a vector as a row, or of one string."""
    text, alone = strings_of("bytes_split", input)
    lengths = ops.cast(ops.string_length(text), DstT="int64")
    splits = ops.concat_v2([[0], ops.cumsum(lengths, 0)], 0)
    row = repeat(ops.range(0, ops.size(text), 1), lengths)
    places = ops.range(0, ops.size(row, out_type="int64"), 1) - ops.gather_v2(splits, row, 0)
    values = ops.substr(ops.gather_v2(text, row, 0), places, ops.ones_like(places), name=name)
    return values if alone else RaggedTensor(values, splits)


def unicode_decode_with_offsets(
    input: Any,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = 65533,
    replace_control_characters: bool = False,
    name: str | None = None,
) -> Any:
    """`tf.strings.unicode_decode_with_offsets`: the code points of each string, and where each begins, in bytes."""
    text, alone = strings_of("unicode_decode_with_offsets", input)
    splits, points, starts = ops.unicode_decode_with_offsets(
        text, input_encoding, errors, replacement_char, replace_control_characters, name=name
    )
    return (points, starts) if alone else (RaggedTensor(points, splits), RaggedTensor(starts, splits))


def unicode_split_with_offsets(
    input: Any, input_encoding: str, errors: str = "replace", replacement_char: int = 65533, name: str | None = None
) -> Any:
    """`tf.strings.unicode_split_with_offsets`: the characters of each string, and where each begins, in bytes."""
    text, alone = strings_of("unicode_split_with_offsets", input)
    splits, points, starts = ops.unicode_decode_with_offsets(text, input_encoding, errors, replacement_char)
    each = ops.range(0, ops.size(points, out_type="int64") + 1, 1)
    characters = ops.unicode_encode(points, each, input_encoding, errors, replacement_char, name=name)
    return (characters, starts) if alone else (RaggedTensor(characters, splits), RaggedTensor(starts, splits))


def unicode_split(
    input: Any, input_encoding: str, errors: str = "replace", replacement_char: int = 65533, name: str | None = None
) -> Any:
    """`tf.strings.unicode_split`: the characters of each string of a vector as a row, or of one string."""
    return unicode_split_with_offsets(input, input_encoding, errors, replacement_char, name)[0]


def ngrams(
    data: Any,
    ngram_width: int | Sequence[int],
    separator: str = " ",
    pad_values: Any = None,
    padding_width: int | None = None,
    preserve_short_sequences: bool = False,
    name: str | None = None,
) -> Any:
    """`tf.strings.ngrams`: joined strings that follow each other in the rows of a tensor or a ragged tensor."""
    widths: list[int] = [ngram_width] if isinstance(ngram_width, int) else list(ngram_width)
    if min(widths) < 1:
        raise InvalidValueError(f"All ngram_widths must be greater than 0. Got {ngram_width}")
    if padding_width is not None and (padding_width < 0 or pad_values is None):
        raise InvalidValueError("padding_width must not be negative, and needs pad_values")
    left, right = pad_values if isinstance(pad_values, list | tuple) else (pad_values or "", pad_values or "")
    width = (0 if pad_values is None else -1) if padding_width is None else padding_width

    def joined(values: Any, splits: Any) -> Any:
        return ops.string_n_grams(values, splits, separator, widths, left, right, width, preserve_short_sequences,
                                  name=name)  # fmt: skip

    if isinstance(data, RaggedTensor):
        if isinstance(data.values, RaggedTensor):
            inner = ngrams(data.values, widths, separator, pad_values, padding_width, preserve_short_sequences, name)
            return RaggedTensor(inner, data.row_splits)
        return RaggedTensor(*joined(data.values, data.row_splits))
    text = convert_to_tensor(data)
    rank = text.static_shape.rank
    if not rank:
        raise InvalidValueError(f"Data must have a known rank above 0, not shape {text.static_shape}")
    shape = ops.shape(text, out_type="int64")
    rows = ops.prod(shape[:-1], [0])
    splits = ops.range(0, rows + 1, 1) * shape[rank - 1]
    values = joined(ops.reshape(text, [-1]), splits)[0]
    return ops.reshape(values, ops.concat_v2([shape[:-1], [-1]], 0))
