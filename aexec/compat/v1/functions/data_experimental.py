"""`tf.data.experimental`: transformations for `Dataset.apply`, and a few sources.

Next to read: `data.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aexec import ops
from aexec.compat.v1.functions.data import Dataset, TFRecordDataset
from aexec.compat.v1.functions.io import parse_example
from aexec.compat.v1.namespace import namespace
from aexec.control_flow.function import TensorSpec
from aexec.data.dataset_base import building
from aexec.data.element_spec import DatasetSpec, OptionalSpec, SparseTensorSpec, batched
from aexec.data.transformations import AUTOTUNE, order_attr
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import as_dtype
from aexec.graph.nodes.node import Tensor

__all__ = [
    "Counter",
    "DatasetStructure",
    "OptionalStructure",
    "RandomDataset",
    "SparseTensorStructure",
    "TensorStructure",
    "assert_cardinality",
    "bucket_by_sequence_length",
    "cardinality",
    "choose_from_datasets",
    "dense_to_sparse_batch",
    "enumerate_dataset",
    "from_variant",
    "get_next_as_optional",
    "get_single_element",
    "get_structure",
    "group_by_reducer",
    "group_by_window",
    "ignore_errors",
    "load",
    "make_batched_features_dataset",
    "map_and_batch",
    "parallel_interleave",
    "parse_example_dataset",
    "prefetch_to_device",
    "rejection_resample",
    "sample_from_datasets",
    "save",
    "scan",
    "shuffle_and_repeat",
    "snapshot",
    "take_while",
    "to_variant",
    "unbatch",
    "unique",
]

# A transformation, for `Dataset.apply`.
_Apply = Callable[[Any], Any]


# InMemory


def Counter(start: Any = 0, step: Any = 1, dtype: Any = dtypes.int64) -> Any:  # noqa: N802
    """`tf.data.experimental.Counter`: `start`, `start + step`, … without end."""
    with building():
        first = ops.cast(start, DstT=as_dtype(dtype))
        further = ops.cast(step, DstT=as_dtype(dtype))
        return Dataset.from_tensors(0).repeat(None).scan(first, lambda state, _: (state + further, state))


def RandomDataset(  # noqa: N802
    seed: Any = None, rerandomize_each_iteration: bool | None = None, name: str | None = None
) -> Any:
    """`tf.data.experimental.RandomDataset`."""
    return Dataset.random(seed, rerandomize_each_iteration, name)


def choose_from_datasets(datasets: Sequence[Any], choice_dataset: Any, stop_on_empty_dataset: bool = False) -> Any:
    """`tf.data.experimental.choose_from_datasets`."""
    return Dataset.choose_from_datasets(datasets, choice_dataset, stop_on_empty_dataset)


def sample_from_datasets(
    datasets: Sequence[Any], weights: Any = None, seed: Any = None, stop_on_empty_dataset: bool = False
) -> Any:
    """`tf.data.experimental.sample_from_datasets`."""
    return Dataset.sample_from_datasets(datasets, weights, seed, stop_on_empty_dataset)


def make_batched_features_dataset(
    file_pattern: Any,
    batch_size: Any,
    features: Mapping[str, Any],
    reader: Callable[..., Any] | None = None,
    label_key: str | None = None,
    reader_args: Sequence[Any] | None = None,
    num_epochs: int | None = None,
    shuffle: bool = True,
    shuffle_buffer_size: int = 10000,
    shuffle_seed: Any = None,
    prefetch_buffer_size: int | None = None,
    reader_num_threads: int | None = None,
    parser_num_threads: int | None = None,
    sloppy_ordering: bool = False,
    drop_final_batch: bool = False,
) -> Any:
    """`tf.data.experimental.make_batched_features_dataset`: batches of parsed examples from files."""
    read = TFRecordDataset if reader is None else reader
    names = Dataset.list_files(file_pattern, shuffle, shuffle_seed)

    def records(filename: Tensor) -> Any:
        return read(filename, *(reader_args or ()))

    if reader_num_threads == AUTOTUNE:
        dataset = names.interleave(records, num_parallel_calls=AUTOTUNE)
    else:
        dataset = names.apply(parallel_interleave(records, reader_num_threads or 1, sloppy=sloppy_ordering))
    if dataset.output_types == (dtypes.string, dtypes.string):
        dataset = dataset.map(lambda _key, value: value)
    if shuffle:
        dataset = dataset.shuffle(shuffle_buffer_size, shuffle_seed)
    if num_epochs != 1:
        dataset = dataset.repeat(num_epochs)
    dataset = dataset.batch(batch_size, drop_remainder=drop_final_batch or num_epochs is None)
    dataset = dataset.apply(parse_example_dataset(features, 2 if parser_num_threads is None else parser_num_threads))
    if label_key is not None:
        if label_key not in features:
            raise errors.InvalidValueError(f"The `label_key` provided ({label_key!r}) must be one of the `features`.")
        dataset = dataset.map(lambda parsed: (_without(parsed, label_key), parsed[label_key]))
    return dataset.prefetch(AUTOTUNE if prefetch_buffer_size is None else prefetch_buffer_size)


def _without(parsed: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in parsed.items() if name != key}


# Transformations


def assert_cardinality(expected_cardinality: Any) -> _Apply:
    """`tf.data.experimental.assert_cardinality`."""
    return lambda dataset: dataset.assert_cardinality(expected_cardinality)


def bucket_by_sequence_length(
    element_length_func: Callable[..., Any],
    bucket_boundaries: Sequence[int],
    bucket_batch_sizes: Sequence[int],
    padded_shapes: Any = None,
    padding_values: Any = None,
    pad_to_bucket_boundary: bool = False,
    no_padding: bool = False,
    drop_remainder: bool = False,
) -> _Apply:
    """`tf.data.experimental.bucket_by_sequence_length`."""
    return lambda dataset: dataset.bucket_by_sequence_length(
        element_length_func,
        bucket_boundaries,
        bucket_batch_sizes,
        padded_shapes,
        padding_values,
        pad_to_bucket_boundary,
        no_padding,
        drop_remainder,
    )


def dense_to_sparse_batch(batch_size: Any, row_shape: Any) -> _Apply:
    """`tf.data.experimental.dense_to_sparse_batch`."""
    return lambda dataset: dataset.sparse_batch(batch_size, row_shape)


def enumerate_dataset(start: Any = 0) -> _Apply:
    """`tf.data.experimental.enumerate_dataset`."""
    return lambda dataset: dataset.enumerate(start)


def group_by_reducer(key_func: Callable[..., Any], reducer: Any) -> _Apply:
    """`tf.data.experimental.group_by_reducer`."""
    return lambda dataset: dataset.group_by_reducer(key_func, reducer)


def group_by_window(
    key_func: Callable[..., Any],
    reduce_func: Callable[..., Any],
    window_size: Any = None,
    window_size_func: Callable[..., Any] | None = None,
) -> _Apply:
    """`tf.data.experimental.group_by_window`."""
    return lambda dataset: dataset.group_by_window(key_func, reduce_func, window_size, window_size_func)


def ignore_errors(log_warning: bool = False) -> _Apply:
    """`tf.data.experimental.ignore_errors`."""
    return lambda dataset: dataset.ignore_errors(log_warning)


def map_and_batch(
    map_func: Callable[..., Any],
    batch_size: Any,
    num_parallel_batches: Any = None,
    drop_remainder: Any = False,
    num_parallel_calls: Any = None,
) -> _Apply:
    """`tf.data.experimental.map_and_batch`."""
    if num_parallel_batches is not None and num_parallel_calls is not None:
        raise errors.InvalidValueError(
            "`map_and_batch` allows only one of `num_parallel_batches` and `num_parallel_calls` to be set."
        )
    calls = batch_size if num_parallel_calls is None else num_parallel_calls
    if num_parallel_batches is not None:
        calls = batch_size * num_parallel_batches

    def apply(dataset: Any) -> Any:
        with building(dataset.graph):
            function = dataset.traced(map_func, "map_and_batch")
            known = batch_size if drop_remainder is True and isinstance(batch_size, int) else None
            inputs = {
                "other_arguments": function.captured,
                "batch_size": batch_size,
                "num_parallel_calls": calls,
                "drop_remainder": drop_remainder,
            }
            attrs = {"f": function.reference, "preserve_cardinality": True}
            return dataset.derived("MapAndBatchDataset", inputs, batched(function.spec, known), attrs, [function])

    return apply


def parallel_interleave(
    map_func: Callable[..., Any],
    cycle_length: Any,
    block_length: Any = 1,
    sloppy: bool | None = False,
    buffer_output_elements: Any = None,
    prefetch_input_elements: Any = None,
) -> _Apply:
    """`tf.data.experimental.parallel_interleave`."""

    def apply(dataset: Any) -> Any:
        with building(dataset.graph):
            function = dataset.making_datasets(map_func, "parallel_interleave")
            ahead = 2 * block_length if buffer_output_elements is None else buffer_output_elements
            open_early = 2 * cycle_length if prefetch_input_elements is None else prefetch_input_elements
            inputs = {
                "other_arguments": function.captured,
                "cycle_length": cycle_length,
                "block_length": block_length,
                "buffer_output_elements": ahead,
                "prefetch_input_elements": open_early,
            }
            attrs = {"f": function.reference, "deterministic": order_attr(None if sloppy is None else not sloppy)}
            return dataset.derived(
                "LegacyParallelInterleaveDatasetV2", inputs, function.spec.element_spec, attrs, [function]
            )

    return apply


def parse_example_dataset(
    features: Mapping[str, Any], num_parallel_calls: Any = 1, deterministic: bool | None = None
) -> _Apply:
    """`tf.data.experimental.parse_example_dataset`: batches of serialised examples as dicts of tensors."""
    if features is None:
        raise errors.InvalidValueError("Argument `features` is required, but not specified.")
    calls = None if isinstance(num_parallel_calls, int) and num_parallel_calls == 1 else num_parallel_calls

    def apply(dataset: Any) -> Any:
        return dataset.map(lambda serialized: parse_example(serialized, features), calls, deterministic)

    return apply


def prefetch_to_device(device: str, buffer_size: Any = None) -> _Apply:
    """`tf.data.experimental.prefetch_to_device`, for the CPU only; other devices copy an element when they read it."""
    if "CPU" not in device.upper():
        raise errors.UnsupportedError(f"prefetch_to_device: device={device!r} is not supported: use Dataset.prefetch")
    return lambda dataset: dataset.prefetch(buffer_size)


def rejection_resample(
    class_func: Callable[..., Any], target_dist: Any, initial_dist: Any = None, seed: int | None = None
) -> _Apply:
    """`tf.data.experimental.rejection_resample`."""
    return lambda dataset: dataset.rejection_resample(class_func, target_dist, initial_dist, seed)


def scan(initial_state: Any, scan_func: Callable[..., Any]) -> _Apply:
    """`tf.data.experimental.scan`."""
    return lambda dataset: dataset.scan(initial_state, scan_func)


def shuffle_and_repeat(buffer_size: Any, count: Any = None, seed: Any = None) -> _Apply:
    """`tf.data.experimental.shuffle_and_repeat`."""
    return lambda dataset: dataset.shuffle_and_repeat(buffer_size, count, seed)


def take_while(predicate: Callable[..., Any]) -> _Apply:
    """`tf.data.experimental.take_while`."""
    return lambda dataset: dataset.take_while(predicate)


def unbatch() -> _Apply:
    """`tf.data.experimental.unbatch`."""
    return lambda dataset: dataset.unbatch()


def unique() -> _Apply:
    """`tf.data.experimental.unique`."""
    return lambda dataset: dataset.unique()


# What datasets and their parts are


def cardinality(dataset: Any) -> Tensor:
    """`tf.data.experimental.cardinality`."""
    found: Tensor = dataset.cardinality()
    return found


def get_single_element(dataset: Any) -> Any:
    """`tf.data.experimental.get_single_element`."""
    return dataset.get_single_element()


def get_next_as_optional(iterator: Any) -> Any:
    """`tf.data.experimental.get_next_as_optional`."""
    return iterator.get_next_as_optional()


def get_structure(dataset_or_iterator: Any) -> Any:
    """`tf.data.experimental.get_structure`."""
    return dataset_or_iterator.element_spec


def to_variant(dataset: Any) -> Tensor:
    """`tf.data.experimental.to_variant`."""
    found: Tensor = dataset.variant
    return found


def from_variant(variant: Tensor, structure: Any) -> Any:
    """`tf.data.experimental.from_variant`."""
    return Dataset(variant, structure)


def TensorStructure(dtype: Any, shape: Any) -> TensorSpec:  # noqa: N802
    """`tf.data.experimental.TensorStructure`."""
    return TensorSpec(shape, dtype)


def SparseTensorStructure(dtype: Any, shape: Any) -> SparseTensorSpec:  # noqa: N802
    """`tf.data.experimental.SparseTensorStructure`."""
    return SparseTensorSpec(shape, dtype)


def OptionalStructure(element_spec: Any) -> OptionalSpec:  # noqa: N802
    """`tf.data.experimental.OptionalStructure`."""
    return OptionalSpec(element_spec)


def DatasetStructure(element_spec: Any, dataset_shape: Any = ()) -> DatasetSpec:  # noqa: N802
    """`tf.data.experimental.DatasetStructure`."""
    if tuple(dataset_shape):
        raise errors.UnsupportedError(f"DatasetStructure: dataset_shape={dataset_shape!r} is not supported")
    return DatasetSpec(element_spec)


def save(
    dataset: Dataset,
    path: Any,
    compression: str | None = None,
    shard_func: Callable[..., Any] | None = None,
    checkpoint_args: Any = None,
) -> Any:
    """`tf.data.experimental.save`: the operation that saves when it runs."""
    return dataset.save(path, compression, shard_func, checkpoint_args)


def load(
    path: Any,
    element_spec: Any = None,
    compression: str | None = None,
    reader_func: Callable[[Any], Any] | None = None,
) -> Dataset:
    """`tf.data.experimental.load`."""
    return Dataset.load(path, element_spec, compression, reader_func)


def snapshot(
    path: Any,
    compression: str | None = "AUTO",
    reader_func: Callable[[Any], Any] | None = None,
    shard_func: Callable[..., Any] | None = None,
) -> _Apply:
    """`tf.data.experimental.snapshot`."""
    return lambda dataset: dataset.snapshot(path, compression, reader_func, shard_func)


_NO_SAVING = "iterators are not saved in checkpoints"

__getattr__, __dir__ = namespace(
    __name__,
    {
        "AUTOTUNE": "aexec.data:AUTOTUNE",
        "AutotuneOptions": "aexec.data:AutotuneOptions",
        "CsvDataset": "functions.data:CsvDataset",
        "DistributeOptions": "aexec.data:DistributeOptions",
        "INFINITE_CARDINALITY": "aexec.resources.datasets.dataset:INFINITE",
        "OptimizationOptions": "aexec.data:OptimizationOptions",
        "Optional": "aexec.data:Optional",
        "Reducer": "aexec.data:Reducer",
        "ThreadingOptions": "aexec.data:ThreadingOptions",
        "UNKNOWN_CARDINALITY": "aexec.resources.datasets.dataset:UNKNOWN",
    },
    {
        "CheckpointInputPipelineHook": _NO_SAVING,
        "SqlDataset": "use Dataset.from_generator, or aexec.data.Dataset.from_async, with a client of the database",
        "copy_to_device": "a node copies what it takes to its device",
        "make_csv_dataset": "use tf.data.experimental.CsvDataset, with the columns' defaults",
        "make_saveable_from_iterator": _NO_SAVING,
        "service": "there is no data service",
    },
)
