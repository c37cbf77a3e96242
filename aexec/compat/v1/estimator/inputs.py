"""`tf.estimator.inputs`: input functions that batch NumPy arrays and pandas tables.

Next to read: `model.py`, which calls them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aexec.compat.v1.functions.data import Dataset
from aexec.compat.v1.functions.script_ops import py_func
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType, as_dtype

__all__ = ["numpy_input_fn", "pandas_input_fn"]


def numpy_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
) -> Callable[[], Any]:
    """`tf.estimator.inputs.numpy_input_fn`: an input_fn over arrays.

    The arrays are read batch by batch, and are not copied.

    Args:
        x: features: an array, or a dict of arrays; all have the same number of rows.
        y: labels: likewise; or None.
        batch_size: rows per batch; the last batch may be smaller.
        num_epochs: number of passes over the rows; None for endless.
        shuffle: required.  True to draw rows at random from a buffer of `queue_capacity` rows.
        num_threads: ignored, since the input has no queue.

    Returns:
        A function that returns features, or (features, labels): a dict of tensors for a dict, else a tensor.

    Raises:
        ValueError: `shuffle` is not a bool, arrays differ in length, or a dict is empty.
        TypeError: `x` is neither an array nor a dict.
    """
    _check_shuffle(shuffle)
    if not isinstance(x, Mapping | np.ndarray):
        raise errors.InvalidTypeError(f"x must be a dict or array; got {type(x).__name__}")
    if isinstance(x, Mapping) and not x:
        raise errors.InvalidValueError("x cannot be an empty dict")
    if isinstance(y, Mapping) and not y:
        raise errors.InvalidValueError("y cannot be empty dict, use None instead.")
    features, labels = _arrays(x), {} if y is None else _arrays(y)
    _check_lengths({**{("x", key): value for key, value in features.items()}, **_marked("y", labels)})

    def input_fn() -> Any:
        batches = _batches([*features.values(), *labels.values()], batch_size, num_epochs, shuffle, queue_capacity)
        found = _like(x, dict(zip(features, batches, strict=False)))
        return found if y is None else (found, _like(y, dict(zip(labels, batches[len(features) :], strict=True))))

    return input_fn


def pandas_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
    target_column: str = "target",
) -> Callable[[], Any]:
    """`tf.estimator.inputs.pandas_input_fn`: an input_fn over the columns of a table; features are named by column.

    Args:
        x: features: a `pandas.DataFrame`.
        y: labels: a Series, or a DataFrame for a dict of labels, or None.
        batch_size, num_epochs, shuffle, queue_capacity, num_threads: as in `numpy_input_fn`.
        target_column: must not be the name of a column of `x` if `y` is a Series.

    Raises:
        TypeError: `x` is not a DataFrame, or pandas is not installed.
        ValueError: `shuffle` is not a bool, `x` and `y` have different indices, or `x` has a column `target_column`.
    """
    _check_shuffle(shuffle)
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        raise errors.InvalidTypeError("pandas_input_fn should not be called without pandas installed") from None
    if not isinstance(x, pandas.DataFrame):
        raise errors.InvalidTypeError(f"x must be a pandas.DataFrame; got {type(x).__name__}")
    if y is not None and not x.index.equals(y.index):
        raise errors.InvalidValueError(
            f"Index for x and y are mismatched.\nIndex for x: {x.index}\nIndex for y: {y.index}\n"
        )
    if y is not None and not isinstance(y, pandas.DataFrame) and target_column in x:
        raise errors.InvalidValueError(
            f"Cannot use name {target_column} for target column: DataFrame already has a column with that name: "
            f"{list(x.columns)}"
        )
    labels = None if y is None else _columns(y) if isinstance(y, pandas.DataFrame) else y.to_numpy()
    return numpy_input_fn(_columns(x), labels, batch_size, num_epochs, shuffle, queue_capacity, num_threads)


def _columns(table: Any) -> dict[str, Any]:
    return {name: table[name].to_numpy() for name in table.columns}


def _check_shuffle(shuffle: Any) -> None:
    if not isinstance(shuffle, bool):
        raise errors.InvalidValueError(
            "shuffle must be provided and explicitly set as boolean (it is recommended to set it as True for "
            f"training); got {shuffle!r}"
        )


def _arrays(values: Any) -> dict[Any, Any]:
    """Arrays by name, sorted; a single array has the name None.  Strings become object arrays of bytes."""
    named = dict(sorted(values.items())) if isinstance(values, Mapping) else {None: values}
    return {name: _with_bytes(np.asarray(value)) for name, value in named.items()}


def _with_bytes(array: Any) -> Any:
    if array.dtype.kind not in "OSU":
        return array
    flat = [item.encode() if isinstance(item, str) else bytes(item) for item in array.ravel().tolist()]
    made = np.empty(len(flat), object)
    made[:] = flat
    return made.reshape(array.shape)


def _marked(which: str, arrays: Mapping[Any, Any]) -> dict[Any, Any]:
    return {(which, key): value for key, value in arrays.items()}


def _check_lengths(arrays: Mapping[Any, Any]) -> None:
    if len({len(array) for array in arrays.values()}) > 1:
        shapes = {which if key is None else f"{which}[{key!r}]": array.shape for (which, key), array in arrays.items()}
        raise errors.InvalidValueError(
            "Length of tensors in x and y is mismatched. All elements in x and y must have the same length. Shapes: "
            f"{shapes}"
        )


def _like(values: Any, tensors: Mapping[Any, Any]) -> Any:
    return dict(tensors) if isinstance(values, Mapping) else tensors[None]


def _batches(arrays: list[Any], size: int, epochs: int | None, shuffle: Any, window: int) -> list[Any]:
    """Tensors of the next batch of rows, one per array.

    The dataset yields only row numbers.  If it held the arrays, they would be constants of the graph, and every
    checkpoint's MetaGraph would include them.
    """
    rows = Dataset.range(len(arrays[0])).repeat(epochs)
    if shuffle:
        rows = rows.shuffle(window)
    chosen = rows.batch(size).make_one_shot_iterator().get_next()
    found: list[Any] = py_func(lambda at: [array[at] for array in arrays], [chosen], [_type(a) for a in arrays])
    for tensor, array in zip(found, arrays, strict=True):
        tensor.set_shape([None, *array.shape[1:]])
    return found


def _type(array: Any) -> DType:
    return dtypes.string if array.dtype.kind == "O" else as_dtype(array.dtype)
