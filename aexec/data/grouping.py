"""`Grouping`: batches, windows, and groups of elements with equal keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from aexec import ops
from aexec.client.building import control_dependencies
from aexec.control_flow.function import TensorSpec
from aexec.data.dataset_base import building
from aexec.data.element_spec import DatasetSpec, SparseTensorSpec, batched, rest_of
from aexec.data.element_structure import flattened, is_nested, leaves_up_to, map_leaves, repacked
from aexec.data.traced import single
from aexec.data.transformations import Transformations, order_attr
from aexec.framework import dtypes, errors
from aexec.framework.shape import PartialTensorShape
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor, create_node

__all__ = ["Grouping", "Reducer"]

KEY = TensorSpec(PartialTensorShape([]), dtypes.int64)


class Reducer(NamedTuple):
    """How `group_by_reducer` reduces a group to one element.

    Attributes:
        init_func: key → initial state.
        reduce_func: (state, element) → next state.
        finalize_func: final state → element.
    """

    init_func: Callable[..., Any]
    reduce_func: Callable[..., Any]
    finalize_func: Callable[..., Any]


def _known(batch_size: Any, drop_remainder: Any) -> int | None:
    """The static batch size: known if the size is, and a smaller last batch is dropped."""
    is_known = drop_remainder is True and isinstance(batch_size, int | np.integer)
    return int(batch_size) if is_known else None


class Grouping(Transformations):
    """The transformations that combine several elements into one."""

    def batch(
        self,
        batch_size: Any,
        drop_remainder: Any = False,
        num_parallel_calls: Any = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Self:
        """Combine elements of equal shapes into batches.

        Args:
            batch_size: elements per batch.
            drop_remainder: drop the last batch if it is smaller.
            num_parallel_calls, deterministic: ignored.
        """
        spec = batched(self.spec_here, _known(batch_size, drop_remainder))
        inputs = {"batch_size": batch_size, "drop_remainder": drop_remainder}
        if num_parallel_calls is None:
            return self.derived("BatchDatasetV2", inputs, spec, name=name)
        inputs["num_parallel_calls"] = num_parallel_calls
        attrs = {"deterministic": order_attr(deterministic)}
        return self.derived("ParallelBatchDataset", inputs, spec, attrs, name=name)

    def padded_batch(
        self,
        batch_size: Any,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: Any = False,
        name: str | None = None,
    ) -> Self:
        """Pad elements to equal shapes, and combine them into batches.

        Args:
            padded_shapes: a shape per part, in which None or -1 stands for the largest size in the batch; by default
                the static shapes of the elements.
            padding_values: a scalar per part, or one for all; 0 or "" by default.

        Raises:
            InvalidArgumentError: a shape or a value does not fit the elements.
        """
        leaves = flattened(self.spec_here)
        for leaf in leaves:
            if not isinstance(leaf, TensorSpec):
                raise errors.InvalidTypeError(f"padded_batch is only for tensors, and not for {leaf}")
            if padded_shapes is None and leaf.shape.rank is None:
                raise errors.InvalidValueError("You must provide `padded_shapes`: a component has unknown rank")
        with building(self.graph):
            wanted = (
                [leaf.shape for leaf in leaves]
                if padded_shapes is None
                else leaves_up_to(self.spec_here, padded_shapes, "padded_shapes")
            )
            pairs = [_padded_shape(shape, leaf) for shape, leaf in zip(wanted, leaves, strict=True)]
            inputs = {
                "batch_size": batch_size,
                "padded_shapes": [tensor for tensor, _ in pairs],
                "padding_values": self._paddings(padding_values),
                "drop_remainder": drop_remainder,
            }
            padded = [TensorSpec(shape, leaf.dtype) for (_, shape), leaf in zip(pairs, leaves, strict=True)]
            spec = batched(repacked(self.spec_here, padded), _known(batch_size, drop_remainder))
            return self.derived("PaddedBatchDatasetV2", inputs, spec, name=name)

    def _paddings(self, values: Any) -> list[Tensor]:
        leaves = flattened(self.spec_here)
        if values is None or not is_nested(values):
            given = [values] * len(leaves)
        else:
            given = leaves_up_to(self.spec_here, values, "padding_values")
        return [_padding(value, leaf) for value, leaf in zip(given, leaves, strict=True)]

    def sparse_batch(self, batch_size: Any, row_shape: Any, name: str | None = None) -> Self:
        """Combine tensors of different sizes into batches that are sparse tensors.

        Args:
            row_shape: the dense shape of one element in the batch; every element must fit into it.
        """
        leaf = self.spec_here
        if not isinstance(leaf, TensorSpec):
            raise errors.InvalidTypeError(f"sparse_batch takes a dataset of one tensor, and not of {leaf!r}")
        shape = PartialTensorShape.of(None if isinstance(row_shape, Tensor) else row_shape)
        row = [-1 if size is None else size for size in shape] if shape.rank is not None else row_shape
        full = PartialTensorShape(None if shape.rank is None else [None, *shape])
        return self.derived(
            "DenseToSparseBatchDataset",
            {"batch_size": batch_size, "row_shape": row},
            SparseTensorSpec(full, leaf.dtype),
            name=name,
        )

    def rebatch(self, batch_size: Any, drop_remainder: Any = False, name: str | None = None) -> Self:
        """Change the batch size, like `unbatch` followed by `batch`.

        Args:
            batch_size: a size, or a vector of sizes that are used in turn.
        """
        with building(self.graph):
            sizes = convert_to_tensor(batch_size, dtypes.int64, "batch_sizes")
            rows = map_leaves(lambda leaf: TensorSpec(rest_of(leaf.shape), leaf.dtype), self.spec_here)
            spec = batched(rows, _known(batch_size, drop_remainder))
            return self.derived(
                "RebatchDatasetV2", {"batch_sizes": sizes, "drop_remainder": drop_remainder}, spec, name=name
            )

    def window(
        self, size: Any, shift: Any = None, stride: Any = 1, drop_remainder: Any = False, name: str | None = None
    ) -> Self:
        """Combine elements into windows; each part of an element becomes a dataset of `size` values.

        Args:
            shift: number of elements from the start of a window to the start of the next; `size` by default.
            stride: number of elements from one element of a window to the next.
            drop_remainder: drop windows with fewer than `size` elements.
        """
        spec = map_leaves(DatasetSpec, self.spec_here)
        inputs = {"size": size, "shift": size if shift is None else shift, "stride": stride}
        return self.derived("WindowDataset", {**inputs, "drop_remainder": drop_remainder}, spec, name=name)

    # Groups

    def group_by_window(
        self,
        key_func: Callable[..., Any],
        reduce_func: Callable[[Tensor, Any], Any],
        window_size: Any = None,
        window_size_func: Callable[[Tensor], Any] | None = None,
        name: str | None = None,
    ) -> Self:
        """Group elements by key, and concatenate the datasets that a function makes of the groups.

        Args:
            key_func: element → key, an int64 scalar.
            reduce_func: (key, dataset of the group's elements) → dataset.
            window_size: number of elements per group.
            window_size_func: key → number of elements per group, in place of `window_size`.

        Raises:
            InvalidArgumentError: both `window_size` and `window_size_func` are given, or neither.
        """
        if (window_size is None) == (window_size_func is None):
            raise errors.InvalidValueError(
                "Either the `window_size` argument or the `window_size_func` argument must be specified."
            )
        size_of = window_size_func or (lambda key: convert_to_tensor(window_size, dtypes.int64))
        with building(self.graph):
            key = self.traced(key_func, "group_by_window", tensors_of_result=single(dtypes.int64, "key_func"))
            made = self.making_datasets(reduce_func, "group_by_window", (KEY, DatasetSpec(self.spec_here)))
            size = self.traced(
                size_of, "group_by_window", KEY, tensors_of_result=single(dtypes.int64, "window_size_func")
            )
            inputs = {
                "key_func_other_arguments": key.captured,
                "reduce_func_other_arguments": made.captured,
                "window_size_func_other_arguments": size.captured,
            }
            attrs = {"key_func": key.reference, "reduce_func": made.reference, "window_size_func": size.reference}
            functions = [key, made, size]
            return self.derived("GroupByWindowDataset", inputs, made.spec.element_spec, attrs, functions, name)

    def bucket_by_sequence_length(
        self,
        element_length_func: Callable[..., Any],
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int],
        padded_shapes: Any = None,
        padding_values: Any = None,
        pad_to_bucket_boundary: bool = False,
        no_padding: bool = False,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Self:
        """Combine elements of similar lengths into padded batches.

        Args:
            element_length_func: element → length, an int32 scalar.
            bucket_boundaries: exclusive upper bounds of the lengths in all buckets but the last.
            bucket_batch_sizes: batch size of each bucket, one more than boundaries.
            padded_shapes, padding_values, drop_remainder: as in `padded_batch`.
            pad_to_bucket_boundary: pad to the bucket's boundary minus 1, not to the longest element of the batch.
            no_padding: do not pad; the elements of a batch must have equal shapes.

        Raises:
            InvalidArgumentError: the number of batch sizes is not one more than that of boundaries.
        """
        if len(bucket_batch_sizes) != len(bucket_boundaries) + 1:
            raise errors.InvalidValueError(
                "`len(bucket_batch_sizes)` must equal `len(bucket_boundaries) + 1` but "
                f"`len(bucket_batch_sizes)={len(bucket_batch_sizes)}` and "
                f"`len(bucket_boundaries)={len(bucket_boundaries)}`."
            )
        limits = np.array(bucket_boundaries, np.int64)
        sizes = np.array(bucket_batch_sizes, np.int64)

        def bucket_of(*parts: Any) -> Tensor:
            length = ops.cast(convert_to_tensor(element_length_func(*parts)), DstT=dtypes.int64)
            return ops.sum(ops.cast(ops.less_equal(limits, length), DstT=dtypes.int64), [0])

        def batches(bucket: Tensor, group: Any) -> Any:
            size = ops.gather_v2(sizes, bucket, 0)
            if no_padding:
                return group.batch(size, drop_remainder=drop_remainder)
            filler = _bound_of(bucket, limits) if pad_to_bucket_boundary else None
            wanted = self.spec_here if padded_shapes is None else None
            leaves = flattened(wanted) if wanted is not None else leaves_up_to(self.spec_here, padded_shapes, "shapes")
            shapes = [_filled(getattr(leaf, "shape", leaf), filler) for leaf in leaves]
            return group.padded_batch(size, repacked(self.spec_here, shapes), padding_values, drop_remainder)

        def size_of(bucket: Tensor) -> Tensor:
            return ops.gather_v2(sizes, bucket, 0)

        return self.group_by_window(bucket_of, batches, window_size_func=size_of, name=name)

    def group_by_reducer(self, key_func: Callable[..., Any], reducer: Reducer) -> Self:
        """Reduce all elements with the same key to one, in the order of the keys' first occurrences."""
        with building(self.graph):
            where = "group_by_reducer"
            key = self.traced(key_func, where, tensors_of_result=single(dtypes.int64, "key_func"))
            init = self.traced(reducer.init_func, where, KEY)
            reduced = self._with_state(reducer.reduce_func, init.spec, "reduce", lambda result: result)
            final = self.traced(reducer.finalize_func, where, reduced.spec)
            functions = {"key_func": key, "init_func": init, "reduce_func": reduced, "finalize_func": final}
            inputs = {f"{role}_other_arguments": function.captured for role, function in functions.items()}
            attrs = {role: function.reference for role, function in functions.items()}
            return self.derived("GroupByReducerDataset", inputs, final.spec, attrs, list(functions.values()))


def _padded_shape(wanted: Any, leaf: TensorSpec) -> tuple[Tensor, PartialTensorShape]:
    """A padded shape as a tensor of sizes, and as a static shape."""
    sizes = list(wanted) if isinstance(wanted, list | tuple | PartialTensorShape) else None
    if sizes is not None and any(isinstance(size, Tensor) for size in sizes):
        wanted = ops.pack([-1 if size is None else ops.cast(size, DstT=dtypes.int64) for size in sizes])
        known = PartialTensorShape([size if isinstance(size, int) and size >= 0 else None for size in sizes])
        return wanted, known
    if isinstance(wanted, Tensor):
        rank = wanted.static_shape[0] if wanted.static_shape.rank == 1 else None
        vector = wanted if wanted.dtype.base is dtypes.int64 else ops.cast(wanted, DstT=dtypes.int64)
        return vector, PartialTensorShape(None if rank is None else [None] * rank)
    shape = PartialTensorShape.of(wanted)
    if shape.rank is None:
        raise errors.InvalidValueError(f"padded_shapes: a shape must have a known rank, got {wanted!r}")
    own = list(leaf.shape) if leaf.shape.rank is not None else [None] * shape.rank
    fits = len(own) == shape.rank and all(a is None or b is None or a >= b for a, b in zip(shape, own, strict=True))
    if not fits:
        raise errors.InvalidValueError(
            f"The padded shape {shape} is not compatible with the shape {leaf.shape} of the corresponding component."
        )
    sizes = [-1 if size is None else size for size in shape]
    return convert_to_tensor(np.array(sizes, np.int64), dtypes.int64, "padded_shape"), shape


def _padding(value: Any, leaf: TensorSpec) -> Tensor:
    if value is None:
        value = "" if leaf.dtype is dtypes.string else np.zeros((), leaf.dtype.np)
    tensor = convert_to_tensor(value, leaf.dtype, "padding_value")
    if not tensor.static_shape.is_compatible_with(PartialTensorShape([])):
        raise errors.InvalidValueError(f"padding_values must be scalars, got shape {tensor.static_shape}")
    return tensor


def _bound_of(bucket: Tensor, limits: Any) -> Tensor:
    """The largest length in a bucket.  A run fails for an element of the last one."""
    message = "When pad_to_bucket_boundary=True, elements must have length < max(bucket_boundaries)."
    inputs = {"condition": ops.less(bucket, np.int64(len(limits))), "data": [message]}
    check = create_node("Assert", inputs, {})
    with control_dependencies([check]):
        found: Tensor = ops.gather_v2(limits, ops.identity(bucket), 0) - np.int64(1)
        return found


def _filled(shape: Any, filler: Tensor | None) -> Any:
    known = PartialTensorShape.of(shape)
    if filler is None or known.rank is None:
        return known
    return [filler if size is None else size for size in known]
