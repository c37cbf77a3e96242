# ruff: noqa: E501 (an expression a line)
"""Pipelines of datasets, as expressions of TensorFlow's Python, and a recorder of their elements.

In an environment with TensorFlow 2.21, from the root of the repository, `python -m tests.kernels.datasets.pipelines`
writes the graphs that TensorFlow makes of them, and the elements of their iterators, into `pipelines.json.gz`.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["FAILURES", "OF_FILES", "PIPELINES", "RECORDED", "passes_of"]

RECORDED = Path(__file__).resolve().parent / "pipelines.json.gz"
# The most elements of a pass, and errors after which it is given up.
MOST, MOST_ERRORS = 60, 3

# Expressions in which `T` is tensorflow, `tf` its module compat.v1, `d` is tf.data.Dataset, `e` is
# tf.data.experimental, CAPTURED a tensor (100), and EXAMPLES a list of serialised Examples.
PIPELINES = {
    "range": "d.range(5)",
    "range_step": "d.range(10, 3, -2)",
    "range_empty": "d.range(3, 3)",
    "tensors": "d.from_tensors((tf.constant([1,2]), tf.constant('a')))",
    "slices": "d.from_tensor_slices({'a': [[1.,2.],[3.,4.]], 'b': ['x','yy']})",
    "slices_scalars": "d.from_tensor_slices(tf.constant([3,1,2]))",
    "repeat": "d.range(3).repeat(2)",
    "repeat0": "d.range(3).repeat(0)",
    "forever_take": "d.range(3).repeat().take(7)",
    "empty_forever": "d.range(0).repeat()",
    "take_all": "d.range(3).take(-1)",
    "skip": "d.range(5).skip(2)",
    "skip_all": "d.range(5).skip(-1)",
    "shard": "d.range(10).shard(3, 1)",
    "concat": "d.range(2).concatenate(d.range(5, 7))",
    "zip": "d.zip((d.range(3), d.range(10, 15)))",
    "map": "d.range(5).map(lambda x: (x * 2, tf.strings.as_string(x)))",
    "map_captured": "d.range(4).map(lambda x: x + CAPTURED)",
    "map_parallel": "d.range(6).map(lambda x: x * x, num_parallel_calls=3)",
    "map_auto": "d.range(6).map(lambda x: x * x, num_parallel_calls=-1)",
    "filter": "d.range(10).filter(lambda x: tf.equal(x % 3, 0))",
    "take_while": "d.range(10).apply(e.take_while(lambda x: x < 4))",
    "scan": "d.range(5).apply(e.scan(tf.constant(0, tf.int64), lambda s, x: (s + x, s * 10)))",
    "flat_map": "d.range(4).flat_map(lambda x: d.range(x).map(lambda y: x * 10 + y))",
    "interleave": "d.range(1, 6).interleave(lambda x: d.from_tensors(x).repeat(6), cycle_length=2, block_length=4)",
    "interleave_short": "d.range(5).interleave(lambda x: d.range(x), cycle_length=3, block_length=2)",
    "interleave_parallel": "d.range(5).interleave(lambda x: d.range(x), cycle_length=3, block_length=2, num_parallel_calls=2)",
    "batch": "d.range(7).batch(3)",
    "batch_drop": "d.range(7).batch(3, drop_remainder=True)",
    "batch_strings": "d.from_tensor_slices(tf.constant(['a','bb','c'])).batch(2)",
    "batch_map": "d.range(10).map(lambda x: tf.fill([2], x)).batch(4).map(lambda x: x + 1)",
    "map_and_batch": "d.range(7).apply(e.map_and_batch(lambda x: x * 2, 3))",
    "padded": "d.range(1, 6).map(lambda x: tf.fill([x], x)).padded_batch(2, padded_shapes=[None])",
    "padded_fixed": "d.range(1, 6).map(lambda x: (tf.fill([x], x), x)).padded_batch(2, padded_shapes=([7], []), padding_values=(tf.constant(-1, tf.int64), tf.constant(0, tf.int64)))",
    "padded_strings": "d.range(1, 4).map(lambda x: tf.fill([x], 'ab')).padded_batch(2, padded_shapes=[None], drop_remainder=True)",
    "unbatch": "d.from_tensor_slices(tf.constant([[1,2],[3,4]])).unbatch()",
    "window": "d.range(7).window(3, shift=2, stride=1, drop_remainder=False).flat_map(lambda w: w.batch(3))",
    "window_stride": "d.range(10).window(3, shift=1, stride=2, drop_remainder=True).flat_map(lambda w: w.batch(3))",
    "shuffle": "d.range(20).shuffle(5, seed=42)",
    "shuffle_all": "d.range(20).shuffle(100, seed=1)",
    "shuffle_repeat": "d.range(6).shuffle(10, seed=3).repeat(3)",
    "shuffle_same": "d.range(6).shuffle(10, seed=3, reshuffle_each_iteration=False).repeat(3)",
    "repeat_shuffle": "d.range(6).repeat(3).shuffle(4, seed=3)",
    "shuffle_and_repeat": "d.range(6).apply(e.shuffle_and_repeat(4, count=3, seed=9))",
    "prefetch": "d.range(5).prefetch(2)",
    "prefetch0": "d.range(5).prefetch(0)",
    "cache": "d.range(5).cache().repeat(2)",
    "random": "e.RandomDataset(seed=5).take(5)",
    "enumerate": "d.from_tensor_slices(tf.constant(['a','b'])).enumerate(5)",
    "group_by_window": "d.range(20).apply(e.group_by_window(lambda x: x % 3, lambda k, w: w.batch(4), window_size=4))",
    "group_by_reducer": "d.range(10).apply(e.group_by_reducer(lambda x: x % 2, e.Reducer(lambda k: tf.constant(0, tf.int64), lambda s, x: s + x, lambda s: s)))",
    "bucket": "d.range(1, 12).map(lambda x: tf.fill([x % 5 + 1], x)).apply(e.bucket_by_sequence_length(lambda x: tf.shape(x)[0], [3, 5], [2, 3, 2]))",
    "ignore_errors": "d.from_tensor_slices([1., 2., 0., 4.]).map(lambda x: tf.debugging.check_numerics(1. / x, 'e')).apply(e.ignore_errors())",
    "unique": "d.from_tensor_slices([1, 37, 2, 37, 2, 1]).apply(e.unique())",
    "sample": "e.sample_from_datasets([d.range(5), d.range(10, 15)], weights=[0.5, 0.5], seed=7)",
    "choose": "e.choose_from_datasets([d.range(5), d.range(10, 15)], d.from_tensor_slices(tf.constant([0, 1, 1, 0], tf.int64)))",
    "dense_to_sparse": "d.range(1, 5).map(lambda x: tf.fill([x], x)).apply(e.dense_to_sparse_batch(2, [6])).map(lambda s: (s.indices, s.values, s.dense_shape))",
    "sparse_slices": "d.from_tensor_slices(tf.SparseTensor([[0, 1], [0, 2], [1, 0]], [1, 2, 3], [3, 4])).map(lambda s: (s.indices, s.values, s.dense_shape))",
    "rejection": "d.range(30).apply(e.rejection_resample(lambda x: tf.cast(x % 2, tf.int32), [0.5, 0.5], seed=1)).map(lambda c, x: (c, x))",
    "reduce": "d.from_tensors(d.range(5).reduce(tf.constant(0, tf.int64), lambda s, x: s + x))",
    "single": "d.from_tensors(e.get_single_element(d.range(3, 4)))",
    "assert_cardinality": "d.range(5).apply(e.assert_cardinality(5))",
    "rebatch": "d.range(10).batch(4).rebatch(3)",
    "counter": "e.Counter(2, 3).take(4)",
    "parse_example": "d.from_tensor_slices(EXAMPLES).batch(2).apply(e.parse_example_dataset({'a': tf.io.FixedLenFeature([2], tf.float32), 'b': tf.io.VarLenFeature(tf.int64)})).map(lambda f: (f['a'], f['b'].indices, f['b'].values, f['b'].dense_shape))",
}
FAILURES = {
    "map_error": "d.range(3).map(lambda x: tf.debugging.check_numerics(1. / tf.cast(x, tf.float32), 'bad'))",
    "batch_shapes": "d.range(1, 4).map(lambda x: tf.fill([x], x)).batch(2)",
    "batch_size0": "d.range(3).batch(0)",
    "shard_bad": "d.range(3).shard(tf.constant(0, tf.int64), tf.constant(0, tf.int64))",
    "padded_bad": "d.range(1, 6).map(lambda x: tf.fill([x], x)).padded_batch(2, padded_shapes=[3])",
    "range0": "d.range(0, 5, 0)",
}


# Pipelines that read the files of `_files`.
OF_FILES = {
    "lines": "tf.data.TextLineDataset(['lines.txt', 'empty.txt', 'lines.txt'])",
    "lines_small": "tf.data.TextLineDataset('lines.txt', buffer_size=2)",
    "lines_gzip": "tf.data.TextLineDataset('lines.gz', compression_type='GZIP')",
    "lines_zlib": "tf.data.TextLineDataset('lines.z', compression_type='ZLIB')",
    "lines_many": "tf.data.TextLineDataset('many.txt').skip(9990)",
    "lines_unknown_compression": "tf.data.TextLineDataset('lines.txt', compression_type='FOO')",
    "lines_negative": "tf.data.TextLineDataset('lines.txt', buffer_size=-1)",
    "records": "tf.data.TFRecordDataset(['a.tfrecord', 'a.tfrecord'])",
    "records_gzip": "tf.data.TFRecordDataset('gzip.tfrecord', compression_type='GZIP')",
    "records_zlib": "tf.data.TFRecordDataset('zlib.tfrecord', compression_type='ZLIB', buffer_size=10)",
    "records_cut": "tf.data.TFRecordDataset(['cut.tfrecord', 'a.tfrecord'])",
    "records_bad": "tf.data.TFRecordDataset(['bad.tfrecord', 'a.tfrecord'])",
    "records_bad_length": "tf.data.TFRecordDataset(['length.tfrecord', 'a.tfrecord'])",
    "records_none": "tf.data.TFRecordDataset('lines.txt')",
    "records_parallel": "tf.data.TFRecordDataset(['a.tfrecord', 'a.tfrecord'], num_parallel_reads=2)",
    "records_ignored": "tf.data.TFRecordDataset(['bad.tfrecord', 'a.tfrecord']).apply(e.ignore_errors())",
    "fixed": "tf.data.FixedLengthRecordDataset(['fixed.bin', 'fixed.bin'], 3, 2, 1)",
    "fixed_zlib": "tf.data.FixedLengthRecordDataset('fixed.z', 3, 2, 1, compression_type='ZLIB')",
    "fixed_odd_zlib": "tf.data.FixedLengthRecordDataset(['fixed.z', 'fixed.z'], 4, 2, 1, compression_type='ZLIB')",
    "fixed_zero": "tf.data.FixedLengthRecordDataset('fixed.bin', 0)",
    "fixed_empty": "tf.data.FixedLengthRecordDataset('empty.txt', 3)",
    "matching": "d.list_files(['*.z', 'a*'], shuffle=False)",
    "matching_none": "d.list_files('nothing*', shuffle=False)",
    "csv": "e.CsvDataset('a.csv', [tf.int32, tf.float32, tf.string])",
    "csv_defaults": "e.CsvDataset('a.csv', [[7], [0.5], ['none']], header=True)",
    "csv_small_buffer": "e.CsvDataset('a.csv', [[7], [0.5], ['none']], header=True, buffer_size=3)",
    "csv_columns": "e.CsvDataset('a.csv', [tf.int64, [b'x']], header=True, select_cols=[0, 2])",
    "csv_excluded": "T.data.experimental.CsvDataset('a.csv', [tf.constant([3], tf.int64), [b'x']], header=True, exclude_cols=[1])",
    "csv_missing_value": "e.CsvDataset('na.csv', [[1], [2.5]], na_value='NA')",
    "csv_delimiter": "e.CsvDataset('semi.csv', [tf.int32, tf.float64], field_delim=';')",
    "csv_no_quotes": "e.CsvDataset('quotes.csv', [tf.string, tf.string], use_quote_delim=False)",
    "csv_quotes": "e.CsvDataset('quotes.csv', [tf.string, tf.string])",
    "csv_ends": "e.CsvDataset('ends.csv', [[0], [0]])",
    "csv_gzip": "e.CsvDataset('ends.csv.gz', [[0], [0]], compression_type='GZIP')",
    "csv_empty_header": "e.CsvDataset(['empty.txt', 'ends.csv'], [[0], [0]], header=True)",
    "csv_columns_bad": "e.CsvDataset('a.csv', [tf.int64, [b'x']], select_cols=[2, 0])",
}

# These cannot be in the function of a one-shot iterator, which captures nothing.
CAPTURING = ("map_captured", "parse_example", "reduce", "shard_bad", "single", "sparse_slices")


def _example(tf: Any, floats: list[float], integers: list[int]) -> bytes:
    feature = {
        "a": tf.train.Feature(float_list=tf.train.FloatList(value=floats)),
        "b": tf.train.Feature(int64_list=tf.train.Int64List(value=integers)),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def _records(tf: Any, name: str, compression: str, records: list[bytes]) -> None:
    with tf.io.TFRecordWriter(name, options=compression) as writer:
        for record in records:
            writer.write(record)


def _make_files(tf: Any) -> None:
    """Write the files that `OF_FILES` reads into the current folder."""
    texts = {
        "empty.txt": b"",
        "lines.txt": b"a\rb\r\nc\n\nlast",
        "many.txt": b"".join(b"%d, of many\n" % number for number in range(10_000)),
        "fixed.bin": b"HH" + b"abcdefghi" + b"F",
        "a.csv": b'n,x,s\n1,2.5,a\n,,\r\n3,1e-3,"q ""u"" o\n,te"\nx,1,b\n4,y,c\n5,6\n6,7,8,9\n-8,+inf, d',
        "na.csv": b"1,NA\nNA,2\n,\n",
        "semi.csv": b"1;2\n3;4,5\n6;7",
        "quotes.csv": b'a,"b"\n"c"d,e\nf"g,h\n"i,""",j\n"k,l\n',
        "ends.csv": b"1,2\r3,4\n\r\n5,6\r\n\n7,",
    }
    for name, text in texts.items():
        Path(name).write_bytes(text)
    for name in ("lines", "ends.csv"):
        text = texts["lines.txt" if name == "lines" else name]
        Path(f"{name}.gz").write_bytes(gzip.compress(text, mtime=0))
    Path("lines.z").write_bytes(zlib.compress(texts["lines.txt"]))
    Path("fixed.z").write_bytes(zlib.compress(texts["fixed.bin"]))
    records = [b"record %d" % number for number in range(5)]
    for name, compression in (("a", ""), ("gzip", "GZIP"), ("zlib", "ZLIB")):
        _records(tf, f"{name}.tfrecord", compression, records)
    whole = Path("a.tfrecord").read_bytes()
    Path("cut.tfrecord").write_bytes(whole[:-3])
    Path("bad.tfrecord").write_bytes(whole.replace(b"record 2", b"record 0"))
    Path("length.tfrecord").write_bytes(b"\xff" + whole[1:])


def _encoded(value: Any) -> list[Any]:
    array = np.asarray(value)
    if array.dtype.kind in "OS":
        texts = array.astype(object).ravel().tolist()
        return ["string", list(array.shape), [base64.b64encode(text).decode() for text in texts]]
    return [array.dtype.name, list(array.shape), array.ravel().tolist()]


def _pass(tf: Any, session: Any, initializer: str | None, fetches: list[str]) -> dict[str, Any]:
    elements: list[Any] = []
    failed: list[str] = []
    try:
        if initializer is not None:
            session.run(initializer)
        while len(elements) < MOST and len(failed) < MOST_ERRORS:
            try:
                elements.append([_encoded(value) for value in session.run(fetches)])
            except tf.errors.OutOfRangeError:
                break
            except tf.errors.OpError as error:
                elements.append(None)
                failed.append(type(error).__name__)
    except tf.errors.OpError as error:
        failed.append(type(error).__name__)
    return {"elements": elements, "errors": failed}


def passes_of(tensorflow: Any, tf: Any, nest: Any, source: str, *, one_shot: bool) -> dict[str, Any]:
    """The graph of a pipeline, in hexadecimal, and what passes through it give.

    Args:
        tensorflow, tf: the modules with the names of TensorFlow 2 and of TensorFlow 1.
        nest: the module that flattens structures.
    """
    with tf.Graph().as_default() as graph, tf.Session() as session:
        names = {
            "T": tensorflow,
            "tf": tf,
            "d": tf.data.Dataset,
            "e": tf.data.experimental,
            "CAPTURED": tf.constant(100, tf.int64),
        }
        examples = [([1.0, 2.0], [3]), ([4.0, 5.0], [6, 7]), ([8.0, 9.0], [])]
        dataset = eval(source, {**names, "EXAMPLES": [_example(tf, *example) for example in examples]})
        if one_shot:
            iterator, initializer = tf.data.make_one_shot_iterator(dataset), None
        else:
            iterator = tf.data.make_initializable_iterator(dataset)
            initializer = iterator.initializer.name
        fetches = [tensor.name for tensor in nest.flatten(iterator.get_next(), expand_composites=True)]
        return {
            "graph": graph.as_graph_def().SerializeToString().hex(),
            "initializer": initializer,
            "fetches": fetches,
            "passes": [_pass(tf, session, initializer, fetches) for _ in range(1 if one_shot else 2)],
        }


def _main() -> None:
    import tensorflow

    tf: Any = tensorflow.compat.v1
    tf.disable_eager_execution()
    recorded = {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        _make_files(tf)
        files = {path.name: base64.b64encode(path.read_bytes()).decode() for path in Path().iterdir()}
        for name, source in {**PIPELINES, **FAILURES, **OF_FILES}.items():
            recorded[name] = passes_of(tensorflow, tf, tensorflow.nest, source, one_shot=False)
            if name not in CAPTURING and name not in OF_FILES:
                recorded[f"{name}, one shot"] = passes_of(tensorflow, tf, tensorflow.nest, source, one_shot=True)
    text = json.dumps({"files": files, "pipelines": recorded}, separators=(",", ":"), sort_keys=True)
    RECORDED.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{len(recorded)} pipelines, {RECORDED.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    _main()
