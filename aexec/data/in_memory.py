"""`InMemory`: datasets of tensors and numbers."""

from __future__ import annotations

from typing import Any, Self

from aexec import ops
from aexec.control_flow.function import TensorSpec
from aexec.data.dataset_base import DatasetBase, building
from aexec.data.element_spec import SparseTensorSpec, leaf_of, sparse_parts, spec_and_tensors, unbatched
from aexec.data.element_structure import flattened, is_sparse, repacked
from aexec.data.seeds import seeds_of
from aexec.framework import dtypes, errors
from aexec.framework.shape import PartialTensorShape
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = ["InMemory"]

SCALAR = PartialTensorShape([])


class InMemory(DatasetBase):
    """The sources that read neither files nor other datasets."""

    @classmethod
    def from_tensors(cls, tensors: Any, name: str | None = None) -> Self:
        """A dataset with one element: the given tensor, or structure of tensors."""
        with building():
            spec, flat = spec_and_tensors(tensors)
            return cls.made("TensorDataset", {"components": flat}, spec, name=name)

    @classmethod
    def from_tensor_slices(cls, tensors: Any, name: str | None = None) -> Self:
        """A dataset of the rows of a tensor, or of a structure of tensors with equal first dimensions.

        Raises:
            InvalidArgumentError: a part is a scalar.
        """
        with building():
            leaves = [_in_rows(leaf) for leaf in flattened(tensors)]
            specs = repacked(tensors, [spec for spec, _ in leaves])
            sizes = {spec.shape[0] for spec, _ in leaves if spec.shape.rank} - {None}
            if len(sizes) > 1:
                raise errors.InvalidValueError(f"Dimensions {' and '.join(map(str, sorted(sizes)))} are not compatible")
            rows = [tensor for _, tensor in leaves]
            return cls.made("TensorSliceDataset", {"components": rows}, unbatched(specs), name=name)

    @classmethod
    def from_sparse_tensor_slices(cls, sparse_tensor: Any) -> Self:
        """A dataset of the rows of a sparse tensor, each a sparse tensor."""
        with building():
            spec, _ = spec_and_tensors(sparse_tensor)
            if not isinstance(spec, SparseTensorSpec):
                raise errors.InvalidTypeError(f"expected a sparse tensor, got {sparse_tensor!r:.100}")
            indices, values, shape = sparse_tensor
            inputs = {"indices": indices, "values": values, "dense_shape": shape}
            rank = None if spec.shape.rank is None else spec.shape.rank - 1
            row = (
                TensorSpec(PartialTensorShape([None, rank]), dtypes.int64),
                TensorSpec(PartialTensorShape([None]), spec.dtype),
                TensorSpec(PartialTensorShape([rank]), dtypes.int64),
            )
            return cls.made("SparseTensorSliceDataset", inputs, row)

    @classmethod
    def range(cls, *args: Any, output_type: Any = dtypes.int64, name: str | None = None) -> Self:
        """The numbers that Python's `range` gives for one, two or three ints or int64 scalars."""
        if not 1 <= len(args) <= 3:
            raise errors.InvalidValueError(f"Dataset.range takes one to three arguments, got {args}")
        bounds = (0, *args, 1) if len(args) == 1 else (*args, 1) if len(args) == 2 else args
        with building():
            names = ("start", "stop", "step")
            inputs = {
                key: convert_to_tensor(bound, dtypes.int64, key) for key, bound in zip(names, bounds, strict=True)
            }
            return cls.made("RangeDataset", inputs, TensorSpec(SCALAR, dtypes.as_dtype(output_type)), name=name)

    @classmethod
    def random(cls, seed: Any = None, rerandomize_each_iteration: bool | None = None, name: str | None = None) -> Self:
        """An infinite dataset of random 32-bit numbers, as int64.

        Raises:
            UnimplementedError: `rerandomize_each_iteration` is True.
        """
        if rerandomize_each_iteration:
            raise errors.UnsupportedError("Dataset.random: rerandomize_each_iteration is not supported")
        with building():
            first, second = seeds_of(seed)
            return cls.made(
                "RandomDataset", {"seed": first, "seed2": second}, TensorSpec(SCALAR, dtypes.int64), name=name
            )


def _in_rows(leaf: Any) -> tuple[Any, Tensor]:
    """The spec of a leaf, and a tensor whose rows are those of the leaf."""
    spec, tensor = leaf_of(leaf)
    if is_sparse(leaf):
        tensor = ops.serialize_many_sparse(*sparse_parts(leaf), out_type=dtypes.variant)
    return spec, tensor
