"""Strings: joining, splitting, hashing, regular expressions, Unicode."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.string import string_shapes as shapes

ON_ERROR = "{'strict', 'replace', 'ignore'}"

register_op(
    "AsString(input: T) -> output: string",
    "T: {realnumbertype, complex64, complex128, bool, variant, string}", "precision: int = -1",
    "scientific: bool = false", "shortest: bool = false", "width: int = -1", "fill: string = ''",
    shape_fn=common.unchanged_shape,
)
register_op("DecodeBase64(input: string) -> output: string", shape_fn=common.unchanged_shape)
register_op("EncodeBase64(input: string) -> output: string", "pad: bool = false", shape_fn=common.unchanged_shape)
register_op(
    "ReduceJoin(inputs: string, reduction_indices: int32) -> output: string",
    "keep_dims: bool = false", "separator: string = ''", shape_fn=common.reduction,
)
register_op("RegexFullMatch(input: string, pattern: string) -> output: bool", shape_fn=shapes.unchanged_with_scalars)
register_op(
    "RegexReplace(input: string, pattern: string, rewrite: string) -> output: string",
    "replace_global: bool = true", shape_fn=shapes.unchanged_with_scalars,
)
register_op("StaticRegexFullMatch(input: string) -> output: bool", "pattern: string", shape_fn=common.unchanged_shape)
register_op(
    "StaticRegexReplace(input: string) -> output: string",
    "pattern: string", "rewrite: string", "replace_global: bool = true", shape_fn=common.unchanged_shape,
)
register_op(
    "StringFormat(inputs: T) -> output: string",
    "T: list(type) >= 0", "template: string = '%s'", "placeholder: string = '%s'", "summarize: int = 3",
    shape_fn=shapes.string_format,
)
register_op(
    "StringJoin(inputs: N * string) -> output: string",
    "N: int >= 0", "separator: string = ''", shape_fn=shapes.string_join,
)
register_op(
    "StringLength(input: string) -> output: int32",
    "unit: {'BYTE', 'UTF8_CHAR'} = 'BYTE'", shape_fn=common.unchanged_shape,
)
register_op("StringLower(input: string) -> output: string", "encoding: string = ''", shape_fn=common.unchanged_shape)
register_op(
    "StringNGrams(data: string, data_splits: Tsplits) -> ngrams: string, ngrams_splits: Tsplits",
    "separator: string", "ngram_widths: list(int) >= 0", "left_pad: string", "right_pad: string", "pad_width: int",
    "preserve_short_sequences: bool", "Tsplits: {int32, int64} = int64", shape_fn=shapes.string_n_grams,
)
register_op(
    "StringSplit(input: string, delimiter: string) -> indices: int64, values: string, shape: int64",
    "skip_empty: bool = true", shape_fn=shapes.string_split,
)
register_op(
    "StringSplitV2(input: string, sep: string) -> indices: int64, values: string, shape: int64",
    "maxsplit: int = -1", shape_fn=shapes.string_split,
)
register_op("StringStrip(input: string) -> output: string", shape_fn=common.unchanged_shape)
register_op(
    "StringToHashBucket(string_tensor: string) -> output: int64",
    "num_buckets: int >= 1", shape_fn=common.unchanged_shape,
)
register_op(
    "StringToHashBucketFast(input: string) -> output: int64",
    "num_buckets: int >= 1", shape_fn=common.unchanged_shape,
)
register_op(
    "StringToHashBucketStrong(input: string) -> output: int64",
    "num_buckets: int >= 1", "key: list(int)", shape_fn=common.unchanged_shape,
)
register_op("StringUpper(input: string) -> output: string", "encoding: string = ''", shape_fn=common.unchanged_shape)
register_op(
    "Substr(input: string, pos: T, len: T) -> output: string",
    "T: {int32, int64}", "unit: {'BYTE', 'UTF8_CHAR'} = 'BYTE'", shape_fn=shapes.substr,
)
register_op(
    "UnicodeDecode(input: string) -> row_splits: Tsplits, char_values: int32",
    "input_encoding: string", f"errors: {ON_ERROR} = 'replace'", "replacement_char: int = 65533",
    "replace_control_characters: bool = false", "Tsplits: {int32, int64} = int64", shape_fn=shapes.unicode_decode,
)
register_op(
    "UnicodeDecodeWithOffsets(input: string) -> row_splits: Tsplits, char_values: int32, char_to_byte_starts: int64",
    "input_encoding: string", f"errors: {ON_ERROR} = 'replace'", "replacement_char: int = 65533",
    "replace_control_characters: bool = false", "Tsplits: {int32, int64} = int64", shape_fn=shapes.unicode_decode,
)
register_op(
    "UnicodeEncode(input_values: int32, input_splits: Tsplits) -> output: string",
    "errors: {'ignore', 'replace', 'strict'} = 'replace'", "output_encoding: {'UTF-8', 'UTF-16-BE', 'UTF-32-BE'}",
    "replacement_char: int = 65533", "Tsplits: {int32, int64} = int64", shape_fn=shapes.unicode_encode,
)
register_op("UnicodeScript(input: int32) -> output: int32", shape_fn=common.unchanged_shape)
register_op(
    "UnicodeTranscode(input: string) -> output: string",
    "input_encoding: string", "output_encoding: {'UTF-8', 'UTF-16-BE', 'UTF-32-BE'}", f"errors: {ON_ERROR} = 'replace'",
    "replacement_char: int = 65533", "replace_control_characters: bool = false", shape_fn=common.unchanged_shape,
)
register_op(
    "UnsortedSegmentJoin(inputs: string, segment_ids: Tindices, num_segments: Tnumsegments) -> output: string",
    "separator: string = ''", "Tindices: {int32, int64}", "Tnumsegments: {int32, int64} = int32",
    shape_fn=common.unsorted_segment_reduction,
)
register_op(
    "_TensorToHashBucketFast(input: T) -> output: int64",
    "T: {int8, uint8, int16, uint16, int32, uint32, int64, uint64}", "num_buckets: int >= 1",
    shape_fn=common.unchanged_shape,
)
