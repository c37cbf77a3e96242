"""`tf.io` and the readers: files, records and examples with TensorFlow's arguments.

Next to read: `aexec/io/`, `aexec/kernels/parsing/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from aexec import ops, proto
from aexec.client import input as _pipelines
from aexec.compat.v1.namespace import chosen, namespace, refuse, renamed
from aexec.compat.v1.values.sparse import SparseTensor
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import as_dtype
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.io import record

__all__ = [
    "FixedLenFeature",
    "FixedLenSequenceFeature",
    "FixedLengthRecordReader",
    "IdentityReader",
    "ReaderBase",
    "TFRecordCompressionType",
    "TFRecordOptions",
    "TFRecordReader",
    "TFRecordWriter",
    "TextLineReader",
    "VarLenFeature",
    "WholeFileReader",
    "decode_csv",
    "decode_raw",
    "parse_example",
    "parse_single_example",
    "string_input_producer",
    "summary_iterator",
    "tf_record_iterator",
]


class FixedLenFeature(NamedTuple):
    """`tf.FixedLenFeature`: a feature of the same shape in each example."""

    shape: Any
    dtype: Any
    default_value: Any = None


class FixedLenSequenceFeature(NamedTuple):
    """`tf.FixedLenSequenceFeature`: a feature with any number of values of the same shape."""

    shape: Any
    dtype: Any
    allow_missing: bool = False
    default_value: Any = None


class VarLenFeature(NamedTuple):
    """`tf.VarLenFeature`: a feature of any length."""

    dtype: Any


def parse_example(
    serialized: Any,
    features: Mapping[str, Any],
    name: str | None = None,
    example_names: Any = None,
) -> dict[str, Any]:
    """`tf.parse_example`: serialised examples as tensors and sparse tensors, by feature name."""
    dense = (FixedLenFeature, FixedLenSequenceFeature)
    fixed = {key: features[key] for key in sorted(features) if isinstance(features[key], dense)}
    varying = {key: features[key] for key in sorted(features) if isinstance(features[key], VarLenFeature)}
    if len(fixed) + len(varying) != len(features):
        raise errors.UnsupportedError(
            "parse_example: features are FixedLenFeature, FixedLenSequenceFeature or VarLenFeature"
        )
    empty = np.zeros(0, object)
    found = ops.parse_example_v2(
        serialized,
        empty if example_names is None else example_names,
        np.array([key.encode() for key in varying], object),
        np.array([key.encode() for key in fixed], object),
        empty,
        [_default(key, feature) for key, feature in fixed.items()],
        len(varying),
        [as_dtype(feature.dtype) for feature in varying.values()],
        [],
        [],
        [_dense_shape(feature) for feature in fixed.values()],
        name=name,
    )
    parsed: dict[str, Any] = dict(zip(fixed, found[3], strict=True))
    parsed |= {key: SparseTensor(*parts) for key, *parts in zip(varying, *found[:3], strict=True)}
    return parsed


def _dense_shape(feature: FixedLenFeature | FixedLenSequenceFeature) -> list[int]:
    return [*([-1] if isinstance(feature, FixedLenSequenceFeature) else []), *(int(size) for size in feature.shape)]


def _default(key: str, feature: FixedLenFeature | FixedLenSequenceFeature) -> Tensor:
    dtype = as_dtype(feature.dtype)
    if isinstance(feature, FixedLenSequenceFeature):
        if not feature.allow_missing:
            raise errors.InvalidValueError(
                f"Unsupported: FixedLenSequenceFeature requires allow_missing to be True: feature {key}"
            )
        padding = feature.default_value
        if padding is None:
            padding = "" if dtype is dtypes.string else 0
        return convert_to_tensor(padding, dtype)
    if feature.default_value is None:
        return convert_to_tensor(np.zeros(0, dtype.np), dtype)
    value = convert_to_tensor(feature.default_value, dtype)
    return ops.reshape(value, [int(size) for size in feature.shape])


def parse_single_example(
    serialized: Any, features: Mapping[str, Any], name: str | None = None, example_names: Any = None
) -> dict[str, Any]:
    """`tf.parse_single_example`: for one serialised example."""
    found = parse_example(ops.expand_dims(serialized, 0), features, name, example_names)
    return {key: _first(value) for key, value in found.items()}


def _first(value: Any) -> Any:
    if not isinstance(value, SparseTensor):
        return ops.squeeze(value, squeeze_dims=[0])
    return SparseTensor(value.indices[:, 1:], value.values, value.dense_shape[1:])


def decode_raw(
    input_bytes: Any = None,
    out_type: Any = None,
    little_endian: bool = True,
    name: str | None = None,
    bytes: Any = None,
) -> Tensor:
    """`tf.decode_raw`."""
    data = chosen(..., input_bytes=input_bytes, bytes=bytes)
    return ops.decode_raw(data, out_type=as_dtype(out_type), little_endian=little_endian, name=name)


def decode_csv(
    records: Any,
    record_defaults: Sequence[Any],
    field_delim: str = ",",
    use_quote_delim: bool = True,
    name: str | None = None,
    na_value: str = "",
    select_cols: Sequence[int] | None = None,
) -> list[Tensor]:
    """`tf.decode_csv`."""
    defaults = [convert_to_tensor([item] if isinstance(item, int | float | str) else item) for item in record_defaults]
    return ops.decode_csv(
        records,
        defaults,
        field_delim=field_delim,
        use_quote_delim=use_quote_delim,
        na_value=na_value,
        select_cols=list(select_cols or ()),
        name=name,
    )


# Records in Python


class TFRecordCompressionType:
    """`tf.python_io.TFRecordCompressionType`."""

    NONE = 0
    ZLIB = 1
    GZIP = 2


class TFRecordOptions:
    """`tf.python_io.TFRecordOptions`: how records are compressed.

    Attributes:
        compression_type: "", "ZLIB" or "GZIP".
        compression_type_map: these by `TFRecordCompressionType`.
    """

    compression_type_map: ClassVar[dict[int, str]] = {
        TFRecordCompressionType.NONE: "",
        TFRecordCompressionType.ZLIB: "ZLIB",
        TFRecordCompressionType.GZIP: "GZIP",
    }

    def __init__(
        self,
        compression_type: Any = None,
        flush_mode: Any = None,
        input_buffer_size: int | None = None,
        output_buffer_size: int | None = None,
        window_bits: int | None = None,
        compression_level: int | None = None,
        compression_method: int | None = None,
        mem_level: int | None = None,
        compression_strategy: int | None = None,
    ) -> None:
        refuse("TFRecordOptions", flush_mode=flush_mode, window_bits=window_bits, compression_level=compression_level)
        refuse("TFRecordOptions", compression_method=compression_method, mem_level=mem_level)
        refuse("TFRecordOptions", compression_strategy=compression_strategy)
        self.compression_type = self.get_compression_type_string(compression_type)

    @classmethod
    def get_compression_type_string(cls, options: Any) -> str:
        """The name of a compression, given as `TFRecordOptions`, a `TFRecordCompressionType`, or a name.

        Raises:
            ValueError: there is no such compression.
        """
        if isinstance(options, TFRecordOptions):
            return options.compression_type
        found = cls.compression_type_map.get(options or 0, options)
        if found not in cls.compression_type_map.values():
            raise errors.InvalidValueError(f'Not a valid compression_type: "{options}"')
        return str(found)


def _compressed(ours: Callable[..., Any], name: str) -> Callable[..., Any]:
    def opened(path: str, options: Any = None) -> Any:
        return ours(path, compression=TFRecordOptions.get_compression_type_string(options))

    opened.__name__ = opened.__qualname__ = name
    opened.__doc__ = f"`tf.python_io.{name}`: `options` is a `TFRecordOptions`, or the compression itself."
    return opened


TFRecordWriter = _compressed(record.RecordWriter, "TFRecordWriter")
tf_record_iterator = _compressed(record.read_records, "tf_record_iterator")


# Readers in a graph


class ReaderBase:
    """`tf.ReaderBase`: reads records from the files whose names are in a queue.

    Attributes:
        reader_ref: the reader's handle.
        supports_serialize: True if the reader's state can be saved and restored.
    """

    def __init__(self, reader_ref: Tensor, supports_serialize: bool = False) -> None:
        self.reader_ref = reader_ref
        self.supports_serialize = supports_serialize

    def read(self, queue: Any, name: str | None = None) -> tuple[Tensor, Tensor]:
        """The key and the value of the next record."""
        return ops.reader_read_v2(self.reader_ref, getattr(queue, "handle", queue), name=name)

    def read_up_to(self, queue: Any, num_records: Any, name: str | None = None) -> tuple[Tensor, Tensor]:
        """The keys and values of up to `num_records` records."""
        handle = getattr(queue, "handle", queue)
        return ops.reader_read_up_to_v2(
            self.reader_ref, handle, convert_to_tensor(num_records, dtypes.int64), name=name
        )

    def num_records_produced(self, name: str | None = None) -> Tensor:
        """The number of records that the reader has returned, int64."""
        return ops.reader_num_records_produced_v2(self.reader_ref, name=name)

    def reset(self, name: str | None = None) -> Any:
        """Reset the reader."""
        return ops.reader_reset_v2(self.reader_ref, name=name)

    def num_work_units_completed(self, name: str | None = None) -> Tensor:
        """The number of files that the reader has read to their end, int64."""
        return ops.reader_num_work_units_completed_v2(self.reader_ref, name=name)

    def serialize_state(self, name: str | None = None) -> Tensor:
        """The reader's state, a scalar string."""
        return ops.reader_serialize_state_v2(self.reader_ref, name=name)

    def restore_state(self, state: Any, name: str | None = None) -> Any:
        """The operation that restores a saved state."""
        return ops.reader_restore_state_v2(self.reader_ref, state, name=name)


def _reader(
    op: Callable[..., Tensor], arguments: str, name: str, *, supports_serialize: bool = False
) -> Callable[..., ReaderBase]:
    return renamed(lambda **settings: ReaderBase(op(**settings), supports_serialize), arguments, name)


WholeFileReader = _reader(ops.whole_file_reader_v2, "name", "WholeFileReader", supports_serialize=True)
IdentityReader = _reader(ops.identity_reader_v2, "name", "IdentityReader", supports_serialize=True)
TextLineReader = _reader(ops.text_line_reader_v2, "skip_header_lines name", "TextLineReader")
TFRecordReader = _reader(
    lambda compression=None, **settings: ops.tf_record_reader_v2(
        compression_type=TFRecordOptions.get_compression_type_string(compression), **settings
    ),
    "name options=compression",
    "TFRecordReader",
)
FixedLengthRecordReader = _reader(
    ops.fixed_length_record_reader_v2,
    "record_bytes header_bytes footer_bytes hop_bytes name encoding",
    "FixedLengthRecordReader",
)

string_input_producer = renamed(
    _pipelines.string_input_producer,
    "string_tensor num_epochs shuffle seed capacity shared_name name cancel_op=",
    "string_input_producer",
)


def summary_iterator(path: str) -> Iterator[Any]:
    """`tf.train.summary_iterator`: the events of an event file."""
    for data in record.read_records(path):
        yield proto.Event.FromString(data)


__getattr__, __dir__ = namespace(
    __name__,
    {
        **{name: f"ops:{name}" for name in "matching_files parse_tensor read_file serialize_tensor write_file".split()},
        "gfile": "platform.gfile",
        "decode_base64": "ops:decode_base64",
        "decode_bmp": "ops:decode_bmp",
        "decode_gif": "ops:decode_gif",
        "decode_jpeg": "ops:decode_jpeg",
        "decode_png": "ops:decode_png",
        **{
            name: f"ops:{name}"
            for name in "decode_and_crop_jpeg decode_compressed decode_json_example extract_jpeg_shape".split()
        },
        **{
            name: f"functions.sparse_ops:{name}"
            for name in "deserialize_many_sparse serialize_many_sparse serialize_sparse".split()
        },
        **{
            name: f"running.coordination:{name}" for name in "PaddingFIFOQueue PriorityQueue RandomShuffleQueue".split()
        },
        "decode_image": "functions.image:decode_image",
        **{name: f"numerics.sequence_examples:{name}" for name in "parse_single_sequence_example".split()},
        "is_jpeg": "numerics.images:is_jpeg",
        "decode_proto": """ops:decode_proto_v2 | bytes message_type field_names output_types descriptor_source
        message_format sanitize name""",
        "encode_base64": "ops:encode_base64",
        "encode_proto": "ops:encode_proto",
        "encode_jpeg": "ops:encode_jpeg",
        "encode_png": "ops:encode_png",
        "match_filenames_once": "ops:matching_files",
        "write_graph": "running.train:write_graph",
    },
    {
        "RaggedFeature": "use tf.VarLenFeature",
        "SparseFeature": "parse the indices and the values as tf.VarLenFeature, and make a tf.SparseTensor",
        "parse_sequence_example": "use tf.parse_single_sequence_example, or the op aexec.ops.parse_sequence_example_v2",
    },
)
