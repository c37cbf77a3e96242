"""`tf.contrib.data`: TensorFlow 1's predecessor of `tf.data.experimental`.

Next to read: `aexec/compat/v1/functions/data_experimental.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aexec import ops
from aexec.compat.v1.functions.data_experimental import make_batched_features_dataset
from aexec.compat.v1.namespace import namespace
from aexec.control_flow.function import TensorSpec
from aexec.data.element_structure import flattened, leaves_up_to, repacked
from aexec.framework import errors
from aexec.framework.shape import PartialTensorShape

__all__ = [
    "assert_element_shape",
    "batch_and_drop_remainder",
    "padded_batch_and_drop_remainder",
    "read_batch_features",
    "reduce_dataset",
    "sliding_window_batch",
]

_Apply = Callable[[Any], Any]


def assert_element_shape(expected_shapes: Any) -> _Apply:
    """`tf.contrib.data.assert_element_shape`: set the static shapes of elements, and check them in each run.

    Raises:
        TypeError: a component of the elements is not a tensor.
    """

    def apply(dataset: Any) -> Any:
        spec = dataset.spec_here
        for leaf in flattened(spec):
            if not isinstance(leaf, TensorSpec):
                raise errors.InvalidTypeError(f"assert_element_shape is only for tensors, and not for {leaf}")
        shapes = [PartialTensorShape.of(shape) for shape in leaves_up_to(spec, expected_shapes, "expected_shapes")]

        def ensured(*parts: Any) -> Any:
            leaves = flattened(parts if type(spec) is tuple else parts[0])
            return repacked(spec, [ops.ensure_shape(leaf, shape) for leaf, shape in zip(leaves, shapes, strict=True)])

        return dataset.map(ensured)

    return apply


def batch_and_drop_remainder(batch_size: Any) -> _Apply:
    """`tf.contrib.data.batch_and_drop_remainder`: `Dataset.batch` that drops a smaller last batch."""
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(batch_size: Any, padded_shapes: Any, padding_values: Any = None) -> _Apply:
    """`tf.contrib.data.padded_batch_and_drop_remainder`: `Dataset.padded_batch` that drops a smaller last batch."""
    return lambda dataset: dataset.padded_batch(batch_size, padded_shapes, padding_values, drop_remainder=True)


def read_batch_features(
    file_pattern: Any,
    batch_size: Any,
    features: Mapping[str, Any],
    reader: Callable[..., Any] | None = None,
    reader_args: Any = None,
    randomize_input: bool = True,
    num_epochs: int | None = None,
    capacity: int = 10000,
) -> Any:
    """`tf.contrib.data.read_batch_features`: tensors of the next batch of Examples, read from files and parsed.

    Arguments are those of `tf.data.experimental.make_batched_features_dataset`; `randomize_input` is its `shuffle`, and
    `capacity` its `shuffle_buffer_size`.
    """
    dataset = make_batched_features_dataset(
        file_pattern,
        batch_size,
        features,
        reader=reader,
        reader_args=reader_args,
        shuffle=randomize_input,
        num_epochs=num_epochs,
        shuffle_buffer_size=capacity,
    )
    return dataset.make_one_shot_iterator().get_next()


def reduce_dataset(dataset: Any, reducer: Any) -> Any:
    """`tf.contrib.data.reduce_dataset`: reduce all elements to one value with a `Reducer`."""
    grouped = dataset.group_by_reducer(lambda *_: 0, reducer)
    return grouped.get_single_element()


def sliding_window_batch(
    window_size: int, stride: int | None = None, window_shift: int | None = None, window_stride: int = 1
) -> _Apply:
    """`tf.contrib.data.sliding_window_batch`: overlapping batches of `window_size` elements.

    Args:
        stride: the older name of `window_shift`.
        window_shift: elements from the start of a batch to the start of the next; 1 by default.
        window_stride: elements from one element of a batch to the next.

    Raises:
        ValueError: both `stride` and `window_shift` are given.
    """
    if stride is not None and window_shift is not None:
        raise errors.InvalidValueError("Cannot specify both `stride` and `window_shift`")
    shift = next((given for given in (window_shift, stride) if given is not None), 1)

    def apply(dataset: Any) -> Any:
        def batch(*windows: Any) -> Any:
            parts = tuple(window.batch(window_size, drop_remainder=True) for window in windows)
            return parts[0] if len(parts) == 1 else type(dataset).dialect.dataset_class.zip(parts)

        return dataset.window(window_size, shift, window_stride, drop_remainder=True).flat_map(batch)

    return apply


_EXPERIMENTAL = """AUTOTUNE Counter CsvDataset Optional RandomDataset Reducer bucket_by_sequence_length
choose_from_datasets dense_to_sparse_batch enumerate_dataset get_next_as_optional get_single_element group_by_reducer
group_by_window ignore_errors make_batched_features_dataset map_and_batch parallel_interleave parse_example_dataset
prefetch_to_device rejection_resample sample_from_datasets scan shuffle_and_repeat unbatch unique""".split()

__getattr__, __dir__ = namespace(__name__, {name: f"functions.data_experimental:{name}" for name in _EXPERIMENTAL})
