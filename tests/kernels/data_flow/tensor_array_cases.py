"""Graphs of tensor arrays: valid ones, edges, what is refused, and gradients.

TensorFlow's answers are in `tests/kernels/data/tensor_array_answers.json`; `tests/kernels/recorded_answers.py` records
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.kernels.recorded_answers import Case, Kit

__all__ = ["CASES", "OURS"]


class Array:
    """A tensor array, and the flow that comes after all that was done with it."""

    def __init__(self, k: Kit, size: Any, dtype: str = "float32", shape: Any = None, **options: Any) -> None:
        self.k, self.dtype = k, k.tf.as_dtype(dtype)
        options.setdefault("clear_after_read", False)
        self.handle, self.flow = k.ops.TensorArrayV3(
            size=k.whole(size), dtype=self.dtype, element_shape=k.tf.TensorShape(shape), **options
        )

    def gradient(self, source: str = "gradients") -> Array:
        made = object.__new__(Array)
        made.k, made.dtype = self.k, self.dtype
        made.handle, made.flow = self.k.ops.TensorArrayGradV3(handle=self.handle, flow_in=self.flow, source=source)
        return made

    def write(self, index: Any, value: Any, dtype: Any = None) -> Array:
        tensor = self.k.tensor(value, dtype or self.dtype.name)
        self.flow = self.k.ops.TensorArrayWriteV3(
            handle=self.handle, index=self.k.whole(index), value=tensor, flow_in=self.flow
        )
        return self

    def read(self, index: Any, dtype: Any = None) -> Any:
        return self.k.ops.TensorArrayReadV3(
            handle=self.handle,
            index=self.k.whole(index),
            flow_in=self.flow,
            dtype=self.k.tf.as_dtype(dtype or self.dtype),
        )

    def after(self, *tensors: Any) -> Array:
        """What is done next is done after these are there."""
        with self.k.tf.control_dependencies(list(tensors)):
            self.flow = self.k.tf.identity(self.flow)
        return self

    def gather(self, indices: Any, shape: Any = None, dtype: Any = None) -> Any:
        return self.k.ops.TensorArrayGatherV3(
            handle=self.handle,
            indices=self.k.whole(indices),
            flow_in=self.flow,
            dtype=self.k.tf.as_dtype(dtype or self.dtype),
            element_shape=self.k.tf.TensorShape(shape),
        )

    def scatter(self, indices: Any, value: Any, dtype: Any = None) -> Array:
        tensor = self.k.tensor(value, dtype or self.dtype.name)
        self.flow = self.k.ops.TensorArrayScatterV3(
            handle=self.handle, indices=self.k.whole(indices), value=tensor, flow_in=self.flow
        )
        return self

    def concat(self, shape: Any = None, dtype: Any = None) -> Any:
        return self.k.ops.TensorArrayConcatV3(
            handle=self.handle,
            flow_in=self.flow,
            dtype=self.k.tf.as_dtype(dtype or self.dtype),
            element_shape_except0=self.k.tf.TensorShape(shape),
        )

    def split(self, value: Any, lengths: Any, dtype: Any = None) -> Array:
        tensor = self.k.tensor(value, dtype or self.dtype.name)
        self.flow = self.k.ops.TensorArraySplitV3(
            handle=self.handle, value=tensor, lengths=self.k.tensor(lengths, "int64"), flow_in=self.flow
        )
        return self

    def size(self) -> Any:
        return self.k.ops.TensorArraySizeV3(handle=self.handle, flow_in=self.flow)

    def closed(self) -> Array:
        return self.after(self.k.ops.TensorArrayCloseV3(handle=self.handle))


def grown(k: Kit, sizes: Sequence[int], more: Sequence[Any], infer: bool) -> Any:
    """The gradient of a split of an array that is written to behind the parts, as TensorFlow's class makes it."""
    array = k.tf.TensorArray(k.tf.float32, size=len(sizes), dynamic_size=True, infer_shape=infer)
    x = k.tf.constant(np.arange(1.0, sum(sizes) + 1), k.tf.float32)
    y = array.split(x, k.tf.constant(sizes)).write(len(sizes), more).concat()
    return [y, *k.tf.gradients(y, x)]


def grown_stack(k: Kit, *, infer: bool) -> Any:
    """As `grown`, of rows that are unstacked and one more."""
    array = k.tf.TensorArray(k.tf.float32, size=2, dynamic_size=True, infer_shape=infer)
    x = k.tf.constant([[1.0, 2.0], [3.0, 4.0]])
    y = array.unstack(x).write(2, [5.0, 6.0]).stack()
    return [y, *k.tf.gradients(y * y, x)]


def written(k: Kit, at: Sequence[int], count: int) -> Any:
    """The gradient of values of which some are never read."""
    array = k.tf.TensorArray(k.tf.float32, size=count, element_shape=[], clear_after_read=False)
    x = k.tf.constant(2.0)
    for index in range(count):
        array = array.write(index, x * float(index + 1))
    return k.tf.gradients([array.read(index) for index in at], x)


CASES: dict[str, Case] = {
    # Making
    "size": lambda k: Array(k, 3).size(),
    "size: negative": lambda k: Array(k, -1).size(),
    "size: no scalar": lambda k: Array(k, [1, 2]).size(),
    "size: after it grew": lambda k: Array(k, 1, dynamic_size=True).write(4, 1.0).size(),
    "size: of a closed one": lambda k: Array(k, 1).closed().size(),
    "close twice": lambda k: Array(k, 1).closed().closed().flow,
    # Writing
    "write and read": lambda k: Array(k, 2).write(1, [1.0, 2.0]).read(1),
    "write: another type": lambda k: Array(k, 2).write(1, b"a", "string").flow,
    "write: a negative index": lambda k: Array(k, 2).write(-1, 1.0).flow,
    "write: a negative index, growing": lambda k: Array(k, 2, dynamic_size=True).write(-1, 1.0).flow,
    "write: past the end": lambda k: Array(k, 2).write(2, 1.0).flow,
    "write: past the end, growing": lambda k: Array(k, 2, dynamic_size=True).write(2, 1.0).read(2),
    "write: an index that is no scalar": lambda k: Array(k, 2).write([1], 1.0).flow,
    "write: twice": lambda k: Array(k, 2).write(1, 1.0).write(1, 1.0).flow,
    "write: after it was read": lambda k: (lambda a: a.after(a.read(1)).write(1, 1.0).flow)(Array(k, 2).write(1, 1.0)),
    "write: another shape": lambda k: Array(k, 2, shape=[2]).write(1, [1.0]).flow,
    "write: another rank": lambda k: Array(k, 2, shape=[2]).write(1, 1.0).flow,
    "write: another shape than the first": lambda k: (
        Array(k, 2, identical_element_shapes=True).write(0, [1.0, 2.0]).write(1, [1.0]).flow
    ),
    "write: a closed one": lambda k: Array(k, 2).closed().write(0, 1.0).flow,
    # Reading
    "read: never written, shape known": lambda k: Array(k, 2, shape=[2]).read(1),
    "read: never written, a string": lambda k: Array(k, 2, "string", shape=[2]).read(1),
    "read: never written, a bool": lambda k: Array(k, 2, "bool", shape=[2]).read(1),
    "read: never written, shape not known": lambda k: Array(k, 2).read(1),
    "read: never written, half of the shape known": lambda k: Array(k, 2, shape=[None, 2]).read(1),
    "read: never written, shape of the first": lambda k: (
        Array(k, 2, identical_element_shapes=True).write(0, [1.0, 2.0]).read(1)
    ),
    "read: a negative index": lambda k: Array(k, 2).read(-1),
    "read: past the end": lambda k: Array(k, 2).read(2),
    "read: past the end, growing": lambda k: Array(k, 2, shape=[], dynamic_size=True).read(2),
    "read: an index that is no scalar": lambda k: Array(k, 2).read([1]),
    "read: another type": lambda k: Array(k, 2).write(0, 1.0).read(0, "string"),
    "read: twice": lambda k: (lambda a: [a.read(0), a.after(a.read(0)).read(0)])(Array(k, 1).write(0, 1.0)),
    "read: twice, cleared": lambda k: (lambda a: a.after(a.read(0)).read(0))(
        Array(k, 1, clear_after_read=True).write(0, 1.0)
    ),
    "read: a closed one": lambda k: Array(k, 2).closed().read(0),
    # Gathering
    "gather": lambda k: Array(k, 2).write(0, [1.0, 2.0]).write(1, [3.0, 4.0]).gather([1, 0, 1]),
    "gather: never written": lambda k: Array(k, 2, shape=[2]).gather([1, 0]),
    "gather: never written, strings": lambda k: Array(k, 2, "string", shape=[]).gather([1, 0]),
    "gather: one never written, shape of the first": lambda k: (
        Array(k, 2, identical_element_shapes=True).write(0, [1.0, 2.0]).gather([1, 0])
    ),
    "gather: one never written, shape asked for": lambda k: Array(k, 2).write(0, [1.0, 2.0]).gather([1, 0], [2]),
    "gather: never written, shape asked for": lambda k: Array(k, 2).gather([1, 0], [2]),
    "gather: nothing": lambda k: Array(k, 2, shape=[2]).gather([]),
    "gather: nothing, shape asked for": lambda k: Array(k, 2).gather([], [2]),
    "gather: nothing, shape not known": lambda k: Array(k, 2).gather([]),
    "gather: elements differ": lambda k: Array(k, 2).write(0, [1.0, 2.0]).write(1, [3.0]).gather([0, 1]),
    "gather: another than asked for": lambda k: Array(k, 1).write(0, [1.0, 2.0]).gather([0], [3]),
    "gather: the array has another than asked for": lambda k: Array(k, 1, shape=[2]).gather([0], [3]),
    "gather: the array has another than asked for, nothing": lambda k: Array(k, 1, shape=[2]).gather([], [3]),
    "gather: past the end": lambda k: Array(k, 2, shape=[2]).gather([2]),
    "gather: a negative index": lambda k: Array(k, 2, shape=[2]).gather([-1]),
    "gather: a matrix of indices": lambda k: Array(k, 2, shape=[2]).gather([[0]]),
    "gather: another type": lambda k: Array(k, 2, shape=[2]).gather([0], dtype="string"),
    # Scattering
    "scatter": lambda k: Array(k, 3).scatter([2, 0], [[1.0, 2.0], [3.0, 4.0]]).gather([0, 2]),
    "scatter: growing": lambda k: Array(k, 1, dynamic_size=True).scatter([2, 0], [1.0, 2.0]).size(),
    "scatter: growing, strings, the rest is empty": lambda k: (
        Array(k, 1, "string", shape=[], dynamic_size=True).scatter([2], [b"a"]).gather([0, 1, 2])
    ),
    "scatter: past the end": lambda k: Array(k, 2).scatter([7], [1.0]).flow,
    "scatter: a negative index": lambda k: Array(k, 2).scatter([-1], [1.0]).flow,
    "scatter: an index twice": lambda k: Array(k, 2).scatter([1, 1], [1.0, 2.0]).flow,
    "scatter: too many indices": lambda k: Array(k, 2).scatter([0, 1], [1.0]).flow,
    "scatter: too few indices": lambda k: Array(k, 2).scatter([0], [1.0, 2.0]).flow,
    "scatter: a scalar": lambda k: Array(k, 2).scatter([0], 1.0).flow,
    "scatter: a matrix of indices": lambda k: Array(k, 2).scatter([[0]], [1.0]).flow,
    "scatter: another type": lambda k: Array(k, 2).scatter([0], [b"a"], "string").flow,
    "scatter: another shape": lambda k: Array(k, 2, shape=[2]).scatter([0], [[1.0]]).flow,
    "scatter: nothing": lambda k: Array(k, 2).scatter([], np.zeros(0)).size(),
    # Joining
    "concat": lambda k: Array(k, 2).write(0, [1.0, 2.0]).write(1, [3.0]).concat(),
    "concat: never written": lambda k: Array(k, 2, shape=[2]).concat(),
    "concat: never written, strings": lambda k: Array(k, 2, "string", shape=[2]).concat(),
    "concat: one never written, shape of the first": lambda k: (
        Array(k, 2, identical_element_shapes=True).write(0, [1.0, 2.0]).concat()
    ),
    "concat: one never written, shape not known": lambda k: Array(k, 2).write(0, [1.0, 2.0]).concat(),
    "concat: nothing": lambda k: Array(k, 0).concat([2]),
    "concat: nothing, shape in the array": lambda k: Array(k, 0, shape=[2, 3]).concat(),
    "concat: nothing, shape not known": lambda k: Array(k, 0).concat(),
    "concat: scalars": lambda k: Array(k, 1).write(0, 1.0).concat(),
    "concat: elements differ": lambda k: Array(k, 2).write(0, [[1.0, 2.0]]).write(1, [[3.0]]).concat(),
    "concat: another than asked for": lambda k: Array(k, 1).write(0, [[1.0, 2.0]]).concat([3]),
    "concat: the array has another than asked for": lambda k: (
        Array(k, 1, shape=[1, 2]).write(0, [[1.0, 2.0]]).concat([3])
    ),
    "concat: another type": lambda k: Array(k, 1, shape=[1]).concat(dtype="string"),
    # Taking apart
    "split": lambda k: Array(k, 2).split([1.0, 2.0, 3.0], [2, 1]).concat(),
    "split: growing": lambda k: Array(k, 1, dynamic_size=True).split([1.0, 2.0, 3.0], [1, 1, 1]).size(),
    "split: empty parts": lambda k: Array(k, 2).split([1.0], [0, 1]).concat(),
    "split: other number": lambda k: Array(k, 2).split([1.0, 2.0, 3.0], [1, 1, 1]).flow,
    "split: too short": lambda k: Array(k, 2).split([1.0, 2.0, 3.0], [1, 1]).flow,
    "split: too long": lambda k: Array(k, 2).split([1.0], [1, 1]).flow,
    "split: a scalar": lambda k: Array(k, 2).split(1.0, [1, 1]).flow,
    "split: a matrix of lengths": lambda k: Array(k, 2).split([1.0, 2.0], [[1, 1]]).flow,
    "split: another type": lambda k: Array(k, 2).split([b"a", b"b"], [1, 1], "string").flow,
    "split: another shape": lambda k: Array(k, 2, shape=[1]).split([1.0, 2.0, 3.0], [2, 1]).flow,
    # Gradients
    "gradient: never written": lambda k: Array(k, 2, shape=[2]).gradient().read(1),
    "gradient: never written, shape of the element": lambda k: Array(k, 2).write(1, [1.0, 2.0]).gradient().read(1),
    "gradient: never written, a scalar element": lambda k: Array(k, 2).write(1, 1.0).gradient().read(1),
    "gradient: never written, nothing known": lambda k: Array(k, 2).gradient().read(1),
    "gradient: sums": lambda k: Array(k, 1).write(0, 1.0).gradient().write(0, 2.0).write(0, 3.0).read(0),
    "gradient: other shapes": lambda k: Array(k, 1).gradient().write(0, 2.0).write(0, [3.0]).flow,
    "gradient: past the end": lambda k: Array(k, 1, shape=[]).gradient().read(2),
    "gradient: gathered past the end": lambda k: Array(k, 1, shape=[]).gradient().gather([0, 2]),
    "gradient: written past the end": lambda k: Array(k, 1, dynamic_size=True).gradient().write(2, 1.0).flow,
    "gradient: of what was summed": lambda k: Array(k, 1).gradient().write(0, 1.0).write(0, 2.0).gradient("again").flow,
    "gradient: of a closed one": lambda k: Array(k, 1).closed().gradient().flow,
    "gradient: the array grows no more": lambda k: (
        lambda a: (lambda g: a.after(g.flow).write(3, 1.0).flow)(a.gradient())
    )(Array(k, 1, dynamic_size=True)),
    "gradient: twice is one": lambda k: (lambda a: [a.gradient().write(0, 1.0).flow, a.gradient().size()])(
        Array(k, 1, shape=[])
    ),
    "gradient: concat of a split": lambda k: Array(k, 2).split([1.0, 2.0, 3.0], [2, 1]).gradient().concat(),
    "gradient: concat of a split that grew": lambda k: (
        Array(k, 2, dynamic_size=True).split([1.0, 2.0, 3.0], [2, 1]).write(2, [4.0]).gradient().concat()
    ),
    "gradient: size of a split that grew": lambda k: (
        Array(k, 2, dynamic_size=True).split([1.0, 2.0, 3.0], [2, 1]).write(2, [4.0]).gradient().size()
    ),
    "gradient: gather of a scatter that grew": lambda k: (
        Array(k, 2, dynamic_size=True).scatter([0, 1], [1.0, 2.0]).write(2, 4.0).gradient().gather([0, 1])
    ),
    "gradient: split [1,1,1], one row more": lambda k: grown(k, [1, 1, 1], [4.0], True),
    "gradient: split [1,2], two rows more": lambda k: grown(k, [1, 2], [9.0, 8.0], False),
    "gradient: split [2], one row more": lambda k: grown(k, [2], [9.0], False),
    "gradient: unstack, one row more": lambda k: grown_stack(k, infer=True),
    "gradient: unstack, one row more, nothing inferred": lambda k: grown_stack(k, infer=False),
    "gradient: some are read": lambda k: written(k, [0, 2], 3),
    "gradient: one is read twice": lambda k: written(k, [1, 1], 2),
}

# What aexec answers where it does not answer as TensorFlow does, and why.
_NO_STRINGS = "['', ''"
OURS: dict[str, str] = {
    # Strings have zeros as numbers have.
    "read: never written, a string": _NO_STRINGS,
    "gather: never written, strings": _NO_STRINGS,
    "scatter: growing, strings, the rest is empty": _NO_STRINGS,
    "concat: never written, strings": _NO_STRINGS,
    # The array's own element shape is enough.
    "gather: nothing": "[0, 2]",
    # What was read is not noted where it stays.
    "write: after it was read": "Could not write to TensorArray index 1 because it has already been written to.",
    # TensorFlow complains of the container.
    "gradient: of what was summed": "gradients of an array whose writes were aggregated are not defined",
}
