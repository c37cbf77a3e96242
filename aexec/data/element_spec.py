"""The spec of a dataset's elements: a structure of specs for tensors, sparse tensors, datasets and optionals.

Between nodes, an element is a flat list of tensors.  Datasets and optionals are scalar variants.  A sparse tensor is
the vector of three variants that SerializeSparse makes, so that it can be batched and unbatched like a dense tensor.
Next to read: `traced.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aexec import ops
from aexec.control_flow.function import TensorSpec
from aexec.control_flow.function_call import common_shape
from aexec.data.element_structure import flattened, is_sparse, leaves_up_to, map_leaves, repacked
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType, as_dtype
from aexec.framework.shape import UNKNOWN_RANK, PartialTensorShape
from aexec.framework.sparse_tensor import SparseTensor
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = [
    "DatasetSpec",
    "Dialect",
    "Optional",
    "OptionalSpec",
    "SparseTensorSpec",
    "batched",
    "classes_of",
    "common_spec",
    "flat_shapes",
    "flat_types",
    "leaf_of",
    "legacy_spec",
    "normal_spec",
    "rest_of",
    "shapes_of",
    "sparse_parts",
    "spec_and_tensors",
    "tensors_of",
    "types_of",
    "unbatched",
    "value_of",
]

SCALAR = PartialTensorShape([])


@dataclass(frozen=True)
class SparseTensorSpec:
    """The spec of a sparse tensor.

    Attributes:
        shape: the static dense shape; None for any.
        dtype: the dtype of the values.
    """

    shape: Any = None
    dtype: Any = "float32"


@dataclass(frozen=True)
class DatasetSpec:
    """The spec of a dataset that is part of an element.

    Attributes:
        element_spec: the spec of that dataset's elements.
    """

    element_spec: Any


@dataclass(frozen=True)
class OptionalSpec:
    """The spec of an `Optional` that is part of an element.

    Attributes:
        element_spec: the spec of the value.
    """

    element_spec: Any


class Optional:
    """A value that may be missing, such as the next element of an iterator.

    Attributes:
        element_spec: the spec of the value.
        variant: the scalar variant tensor that holds the value.
    """

    def __init__(self, variant: Tensor, element_spec: Any, dialect: Dialect) -> None:
        self.variant = variant
        self.element_spec = element_spec
        self._dialect = dialect

    def has_value(self, name: str | None = None) -> Tensor:
        """Whether there is a value, a scalar bool."""
        return ops.optional_has_value(self.variant, name=name)

    def get_value(self, name: str | None = None) -> Any:
        """The value.  The step fails with InvalidArgumentError if there is none."""
        made = ops.optional_get_value(
            self.variant, flat_types(self.element_spec), flat_shapes(self.element_spec), name=name
        )
        return value_of(self.element_spec, list(made), self._dialect)


@dataclass(frozen=True)
class Dialect:
    """The classes of the objects that programs get: aexec's own, or those of a compatibility layer.

    Attributes:
        dataset: (variant, element spec) → dataset.
        dataset_class: the class of datasets.
        iterator: the class of iterators.
        sparse: the class of sparse tensors.
        shape: `PartialTensorShape` → shape.
    """

    dataset: Callable[[Tensor, Any], Any]
    dataset_class: type[Any]
    iterator: type[Any]
    sparse: type[Any]
    shape: Callable[[PartialTensorShape], Any]


# What specs say


def _spec(leaf: Any) -> Any:
    """Normalise a leaf of a spec, with its shape and dtype as objects."""
    if isinstance(leaf, TensorSpec | SparseTensorSpec):
        return replace(leaf, shape=PartialTensorShape.of(leaf.shape), dtype=as_dtype(leaf.dtype).base)
    if isinstance(leaf, DatasetSpec | OptionalSpec):
        return replace(leaf, element_spec=normal_spec(leaf.element_spec))
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):  # of another library
        return TensorSpec(PartialTensorShape.of(leaf.shape), as_dtype(leaf.dtype))
    raise errors.InvalidTypeError(f"a part of an element is described by an aexec.TensorSpec, got {leaf!r:.100}")


def normal_spec(spec: Any) -> Any:
    """Normalise a spec that a program wrote, with all shapes and dtypes as objects.

    Raises:
        InvalidArgumentError: the value is not a structure of specs.
    """
    return map_leaves(_spec, spec)


def legacy_spec(types: Any, shapes: Any = None, classes: Any = None) -> Any:
    """Make a spec from structures of dtypes, shapes and classes, TensorFlow's older form of a spec.

    Args:
        shapes: by default unknown.
        classes: by default tensors.

    Raises:
        InvalidArgumentError: the structures differ.
    """
    flat = flattened(types)
    known = [None] * len(flat) if shapes is None else leaves_up_to(types, shapes, "output_shapes")
    kinds = [None] * len(flat) if classes is None else leaves_up_to(types, classes, "output_classes")
    return repacked(types, [_legacy_leaf(*leaf) for leaf in zip(flat, known, kinds, strict=True)])


def _legacy_leaf(dtype: Any, shape: Any, kind: Any) -> Any:
    if isinstance(dtype, DatasetSpec | OptionalSpec):
        return normal_spec(dtype)
    is_class = isinstance(kind, type) and issubclass(kind, SparseTensor)
    return _spec((SparseTensorSpec if is_class else TensorSpec)(shape, dtype))


def types_of(spec: Any) -> Any:
    """The dtypes of the parts; for a dataset, its spec."""
    return map_leaves(lambda leaf: getattr(leaf, "dtype", leaf), spec)


def shapes_of(spec: Any, dialect: Dialect) -> Any:
    """The shapes of the parts; for a dataset, its spec."""
    return map_leaves(lambda leaf: dialect.shape(leaf.shape) if hasattr(leaf, "shape") else leaf, spec)


def classes_of(spec: Any, dialect: Dialect) -> Any:
    """The classes of the parts."""
    kinds = {
        TensorSpec: Tensor,
        SparseTensorSpec: dialect.sparse,
        DatasetSpec: dialect.dataset_class,
        OptionalSpec: Optional,
    }
    return map_leaves(lambda leaf: kinds[type(leaf)], spec)


def flat_types(spec: Any) -> list[DType]:
    """The types of an element's tensors."""
    return [leaf.dtype if isinstance(leaf, TensorSpec) else dtypes.variant for leaf in flattened(spec)]


def flat_shapes(spec: Any) -> list[PartialTensorShape]:
    """The shapes of an element's tensors."""
    return [_flat_shape(leaf) for leaf in flattened(spec)]


def _flat_shape(leaf: Any) -> PartialTensorShape:
    if isinstance(leaf, TensorSpec):
        shape: PartialTensorShape = leaf.shape
        return shape
    return UNKNOWN_RANK if isinstance(leaf, SparseTensorSpec) else SCALAR


def batched(spec: Any, size: int | None) -> Any:
    """The spec of a batch of elements.

    Args:
        size: the batch size; None if it is unknown.

    Raises:
        InvalidArgumentError: a part of an element is a dataset.
    """

    def of(leaf: Any) -> Any:
        if not hasattr(leaf, "shape"):
            raise errors.InvalidTypeError("datasets in elements cannot be batched: use flat_map")
        return replace(leaf, shape=UNKNOWN_RANK if leaf.shape.rank is None else PartialTensorShape([size, *leaf.shape]))

    return map_leaves(of, spec)


def unbatched(spec: Any) -> Any:
    """The spec of the rows of an element.

    Raises:
        InvalidArgumentError: a part is a scalar, or a dataset.
    """

    def of(leaf: Any) -> Any:
        if not hasattr(leaf, "shape") or leaf.shape.rank == 0:
            raise errors.InvalidValueError(f"a part of an element has no rows to cut it into: {leaf}")
        return replace(
            leaf, shape=UNKNOWN_RANK if leaf.shape.rank is None else PartialTensorShape(list(leaf.shape)[1:])
        )

    return map_leaves(of, spec)


def rest_of(shape: PartialTensorShape) -> PartialTensorShape:
    """A shape without its first dimension."""
    return UNKNOWN_RANK if shape.rank is None else PartialTensorShape(list(shape)[1:])


def common_spec(specs: Sequence[Any], what: str) -> Any:
    """The most specific spec that includes several specs.

    Raises:
        InvalidArgumentError: structures or dtypes differ; `what` names the values in the message.
    """
    columns = [leaves_up_to(specs[0], spec, what) for spec in specs]
    return repacked(specs[0], [_common_leaf(leaves, what) for leaves in zip(*columns, strict=True)])


def _common_leaf(leaves: Sequence[Any], what: str) -> Any:
    first = leaves[0]
    same = all(type(leaf) is type(first) and getattr(leaf, "dtype", 0) is getattr(first, "dtype", 0) for leaf in leaves)
    if not same:
        raise errors.InvalidTypeError(f"{what} must have elements of the same types and classes, got {list(leaves)}")
    if hasattr(first, "shape"):
        return replace(first, shape=common_shape([leaf.shape for leaf in leaves]))
    return replace(first, element_spec=common_spec([leaf.element_spec for leaf in leaves], what))


# Elements as tensors


def spec_and_tensors(value: Any) -> tuple[Any, list[Tensor]]:
    """Convert an element to its spec and its tensors; values that are not tensors become constants.

    Raises:
        InvalidArgumentError: a part cannot become a tensor.
    """
    specs, tensors = [], []
    for leaf in flattened(value):
        spec, tensor = leaf_of(leaf)
        specs.append(spec)
        tensors.append(tensor)
    return repacked(value, specs), tensors


def leaf_of(leaf: Any) -> tuple[Any, Tensor]:
    """The spec and the tensor of one part of an element.  Raises as `spec_and_tensors`."""
    if is_sparse(leaf):
        parts = sparse_parts(leaf)
        spec = SparseTensorSpec(_sparse_shape(leaf), parts[1].dtype.base)
        return spec, ops.serialize_sparse(*parts, out_type=dtypes.variant)
    if hasattr(leaf, "variant") and hasattr(leaf, "spec_here"):
        return DatasetSpec(leaf.spec_here), leaf.variant
    if isinstance(leaf, Optional):
        return OptionalSpec(leaf.element_spec), leaf.variant
    tensor = convert_to_tensor(leaf, name="component")
    return TensorSpec(tensor.static_shape, tensor.dtype.base), tensor


def sparse_parts(value: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Indices, values and shape as tensors, given a sparse tensor or three arrays."""
    indices, values, shape = value
    return (
        convert_to_tensor(indices, dtypes.int64, "indices"),
        convert_to_tensor(values, name="values"),
        convert_to_tensor(shape, dtypes.int64, "shape"),
    )


def _sparse_shape(value: Any) -> PartialTensorShape:
    """The known static shape of a sparse tensor."""
    said = getattr(value, "shape", None)  # TensorFlow's names
    if said is not None:
        return PartialTensorShape.of(said)
    sizes = value.dense_shape
    if not isinstance(sizes, Tensor):
        return PartialTensorShape([int(size) for size in np.asarray(sizes)])
    rank = sizes.static_shape[0] if sizes.static_shape.rank == 1 else None
    return UNKNOWN_RANK if rank is None else PartialTensorShape([None] * rank)


def tensors_of(spec: Any, value: Any, what: str) -> list[Tensor]:
    """Convert an element to tensors that match a spec.

    Raises:
        InvalidArgumentError: structure, dtype or shape differ; `what` names the element in the message.
    """
    leaves = zip(flattened(spec), leaves_up_to(spec, value, what), strict=True)
    return [_fitting(leaf, given, what) for leaf, given in leaves]


def _fitting(spec: Any, leaf: Any, what: str) -> Tensor:
    """Convert a leaf to a tensor that matches its spec.  Raises as `tensors_of`."""
    if isinstance(spec, TensorSpec):
        tensor = convert_to_tensor(leaf, spec.dtype, "component")
        if not tensor.static_shape.is_compatible_with(spec.shape):
            raise errors.InvalidValueError(f"{what} must have shape {spec.shape}, got {tensor.static_shape}")
        return tensor
    given, tensor = leaf_of(leaf)
    if type(given) is not type(spec):
        raise errors.InvalidTypeError(f"{what} must be described by {spec}, got {leaf!r:.100}")
    return tensor


def value_of(spec: Any, tensors: Sequence[Tensor], dialect: Dialect) -> Any:
    """Assemble an element from its tensors, in the classes of the dialect."""
    return repacked(spec, [_value(leaf, one, dialect) for leaf, one in zip(flattened(spec), tensors, strict=True)])


def _value(spec: Any, tensor: Tensor, dialect: Dialect) -> Any:
    if isinstance(spec, TensorSpec):
        return tensor
    if isinstance(spec, SparseTensorSpec):
        return _sparse_value(spec, tensor, dialect)
    if isinstance(spec, DatasetSpec):
        return dialect.dataset(tensor, spec.element_spec)
    return Optional(tensor, spec.element_spec, dialect)


def _sparse_value(spec: SparseTensorSpec, tensor: Tensor, dialect: Dialect) -> Any:
    indices, values, shape = ops.deserialize_sparse(tensor, spec.dtype)
    rank = spec.shape.rank
    indices.node.shapes = (PartialTensorShape([None, rank]), PartialTensorShape([None]), PartialTensorShape([rank]))
    made = dialect.sparse(indices, values, shape)
    if rank is not None and hasattr(made, "set_shape"):
        made.set_shape(dialect.shape(spec.shape))
    return made
