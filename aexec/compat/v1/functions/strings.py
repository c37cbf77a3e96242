"""`tf.strings`: strings with TensorFlow's arguments, over `aexec.ops`.

Next to read: `aexec/kernels/string/`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec import ops
from aexec.compat.v1.namespace import chosen, listed, namespace, refuse, renamed
from aexec.compat.v1.values.ragged import RaggedTensor
from aexec.compat.v1.values.sparse import SparseTensor
from aexec.framework.dtypes import as_dtype
from aexec.framework.errors import InvalidValueError
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = [
    "as_string",
    "join",
    "length",
    "reduce_join",
    "split_strings",
    "string_format",
    "string_split",
    "strings_of",
    "substr",
    "to_number",
    "unicode_decode",
    "unicode_encode",
]

as_string = renamed(ops.as_string, "input precision scientific shortest width fill name", "as_string")
length = renamed(ops.string_length, "input name unit", "length")
substr = renamed(ops.substr, "input pos len name unit", "substr")


def join(inputs: Any, separator: str = "", name: str | None = None) -> Tensor:
    """`tf.strings.join`."""
    return ops.string_join(listed("inputs", inputs), separator=separator, name=name)


def reduce_join(
    inputs: Any,
    axis: Any = None,
    keep_dims: bool | None = None,
    separator: str = "",
    name: str | None = None,
    reduction_indices: Any = None,
    keepdims: bool | None = None,
) -> Tensor:
    """`tf.strings.reduce_join`."""
    from aexec.compat.v1.functions.array_ops import rank_of

    text = convert_to_tensor(inputs)
    axes = chosen(axis=axis, reduction_indices=reduction_indices)
    if axes is None:
        # The op joins along the axes in the given order; the last axis comes first in reading order.
        axes = np.arange(rank_of(text), dtype=np.int32)[::-1]
    keep = bool(chosen(keep_dims=keep_dims, keepdims=keepdims))
    return ops.reduce_join(text, axes, keep_dims=keep, separator=separator, name=name)


def to_number(
    string_tensor: Any = None, out_type: Any = "float32", name: str | None = None, input: Any = None
) -> Tensor:
    """`tf.string_to_number`."""
    text = chosen(..., string_tensor=string_tensor, input=input)
    return ops.string_to_number(text, out_type=as_dtype(out_type), name=name)


def string_format(
    template: str, inputs: Any, placeholder: str = "{}", summarize: int = 3, name: str | None = None
) -> Tensor:
    """`tf.strings.format`."""
    values = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    return ops.string_format(values, template=template, placeholder=placeholder, summarize=summarize, name=name)


def string_split(
    source: Any = None,
    sep: str | None = None,
    skip_empty: bool = True,
    delimiter: str = " ",
    result_type: str = "SparseTensor",
    name: str | None = None,
) -> SparseTensor:
    """`tf.string_split`: the words of each string as a row."""
    refuse("string_split", result_type=None if result_type == "SparseTensor" else result_type)
    found = ops.string_split(source, delimiter if sep is None else sep, skip_empty=skip_empty, name=name)
    return SparseTensor(*found)


def split_strings(
    input: Any = None,
    sep: str | None = None,
    maxsplit: int = -1,
    result_type: str = "SparseTensor",
    source: Any = None,
    name: str | None = None,
) -> SparseTensor:
    """`tf.strings.split`: the words of each string as a row."""
    refuse("strings.split", result_type=None if result_type == "SparseTensor" else result_type)
    text = convert_to_tensor(chosen(..., input=input, source=source))
    text = ops.reshape(text, [-1]) if text.static_shape.rank == 0 else text
    return SparseTensor(*ops.string_split_v2(text, sep or "", maxsplit=maxsplit, name=name))


def strings_of(function: str, input: Any) -> tuple[Tensor, bool]:
    """A vector of strings, and whether it is a single one."""
    text = convert_to_tensor(input)
    if text.static_shape.rank not in (0, 1):
        raise InvalidValueError(f"{function}: a string or a vector is needed, not shape {text.static_shape}")
    alone = text.static_shape.rank == 0
    return (ops.reshape(text, [-1]) if alone else text), alone


def unicode_decode(
    input: Any,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = 65533,
    replace_control_characters: bool = False,
    name: str | None = None,
) -> Any:
    """`tf.strings.unicode_decode`: the code points of each string of a vector as a row, or of one string."""
    text, alone = strings_of("unicode_decode", input)
    splits, points = ops.unicode_decode(
        text, input_encoding, errors, replacement_char, replace_control_characters, name=name
    )
    return points if alone else RaggedTensor(points, splits)


def unicode_encode(
    input: Any, output_encoding: str, errors: str = "replace", replacement_char: int = 65533, name: str | None = None
) -> Tensor:
    """`tf.strings.unicode_encode`: strings of the code points of each row."""
    if isinstance(input, RaggedTensor):
        return ops.unicode_encode(input.values, input.row_splits, output_encoding, errors, replacement_char, name=name)
    points = convert_to_tensor(input)
    if points.static_shape.rank == 1:
        splits = ops.pack([0, ops.shape(points, out_type="int64")[0]])
        return ops.unicode_encode(points, splits, output_encoding, errors, replacement_char, name=name)[0]
    return unicode_encode(RaggedTensor.from_tensor(points), output_encoding, errors, replacement_char, name)


__getattr__, __dir__ = namespace(
    __name__,
    {
        "split": "functions.strings:split_strings",
        "format": "functions.strings:string_format",
        "lower": "ops:string_lower",
        "regex_full_match": "ops:regex_full_match",
        "regex_replace": "ops:regex_replace",
        "strip": "ops:string_strip",
        "to_hash_bucket": "ops:string_to_hash_bucket | string_tensor num_buckets name input=string_tensor",
        "to_hash_bucket_fast": "ops:string_to_hash_bucket_fast",
        "to_hash_bucket_strong": "ops:string_to_hash_bucket_strong",
        **{
            name: f"numerics.text:{name}"
            for name in """bytes_split ngrams unicode_decode_with_offsets unicode_split
            unicode_split_with_offsets""".split()
        },
        "unicode_script": "ops:unicode_script",
        "unicode_transcode": "ops:unicode_transcode",
        "unsorted_segment_join": "ops:unsorted_segment_join",
        "upper": "ops:string_upper",
    },
)
