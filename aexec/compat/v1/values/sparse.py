"""`tf.sparse`: sparse tensors, each made of three tensors that ops take separately.

Next to read: `sparse_ops.py`, then `session.py`, which feeds and fetches them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from aexec import ops
from aexec.client.building import name_scope, placeholder
from aexec.compat.v1.namespace import namespace
from aexec.compat.v1.values.default_session import default_session
from aexec.compat.v1.values.operations import consumers
from aexec.compat.v1.values.shapes import TensorShape
from aexec.compat.v1.values.static_values import shape_of_vector
from aexec.framework import dtypes
from aexec.framework import sparse_tensor as _sparse_tensor
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = [
    "SparseTensor",
    "SparseTensorValue",
    "edit_distance",
    "sparse_placeholder",
    "sparse_tensor_dense_matmul",
    "sparse_tensor_to_dense",
    "sparse_to_dense",
]


class SparseTensorValue(NamedTuple):
    """The arrays that a run takes, and returns, for a sparse tensor."""

    indices: Any
    values: Any
    dense_shape: Any


class SparseTensor(_sparse_tensor.SparseTensor[Tensor]):
    """A sparse tensor: indices [n, rank], int64; values [n]; sizes [rank], int64."""

    def __new__(cls, indices: Any, values: Any, dense_shape: Any) -> SparseTensor:
        return super().__new__(  # type: ignore[type-var]  # mypy has no bound for generic named tuples
            cls,
            convert_to_tensor(indices, dtypes.int64, "indices"),
            convert_to_tensor(values, name="values"),
            convert_to_tensor(dense_shape, dtypes.int64, "shape"),
        )

    @classmethod
    def from_value(cls, sparse_tensor_value: Any) -> SparseTensor:
        """A constant of a `SparseTensorValue`; a sparse tensor is returned unchanged."""
        return sparse_tensor_value if isinstance(sparse_tensor_value, cls) else cls(*sparse_tensor_value)

    @property
    def dtype(self) -> dtypes.DType:
        """Type of the values."""
        return self.values.dtype.base

    @property
    def graph(self) -> Any:
        """The graph of its tensors."""
        return self.values.graph

    @property
    def op(self) -> Node:
        """The operation that produces the values."""
        return self.values.op

    @property
    def shape(self) -> TensorShape:
        """The known static shape of the whole tensor."""
        said: TensorShape | None = self.__dict__.get("said")
        known = shape_of_vector(self.dense_shape)
        return known if said is None else known.merge_with(said)

    def get_shape(self) -> TensorShape:
        """The known static shape of the whole tensor."""
        return self.shape

    def set_shape(self, shape: Any) -> None:
        """Refine the shape that `dense_shape` tells.  Raises ValueError if it contradicts."""
        self.said = self.shape.merge_with(shape)

    def with_values(self, new_values: Any) -> SparseTensor:
        """Return a sparse tensor with the same indices and other values."""
        return SparseTensor(self.indices, new_values, self.dense_shape)

    def consumers(self) -> list[Node]:
        """The operations that use one of its parts as input."""
        return list(dict.fromkeys(node for part in self for node in consumers(part)))

    def eval(self, feed_dict: Mapping[Any, Any] | None = None, session: Any = None) -> SparseTensorValue:
        """The value in a session, by default that of the `with` block."""
        found: SparseTensorValue = (session or default_session()).run(self, feed_dict)
        return found

    def _elementwise(self, op: Callable[..., Tensor], name: str, dense: Any) -> SparseTensor:
        with name_scope(name) as scope:
            other = convert_to_tensor(dense, self.dtype, "y")
            return self.with_values(op(*self, other, name=scope))

    # The operators of tuples must not apply.

    def __mul__(self, y: Any) -> SparseTensor:
        return self._elementwise(ops.sparse_dense_cwise_mul, "mul", y)

    def __rmul__(self, y: Any) -> SparseTensor:
        return self.__mul__(y)

    def __truediv__(self, y: Any) -> SparseTensor:
        return self._elementwise(ops.sparse_dense_cwise_div, "truediv", y)

    def __repr__(self) -> str:
        return f"SparseTensor(indices={self.indices}, values={self.values}, dense_shape={self.dense_shape})"


def sparse_placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> SparseTensor:
    """`tf.sparse_placeholder`: fed with a `SparseTensorValue`, or three arrays."""
    with name_scope(name or "sparse"):
        if shape is None:
            sizes = placeholder(dtypes.int64, [None], "shape")
        else:
            known = None if isinstance(shape, Tensor) else [None if size == -1 else size for size in shape]
            listed = shape if known is None else [-1 if size is None else size for size in TensorShape(known).as_list()]
            given = convert_to_tensor(listed, dtypes.int64, "shape_default")
            sizes = ops.placeholder_with_default(given, shape=given.static_shape, name="shape")
        rank = sizes.static_shape[0] if sizes.static_shape.rank == 1 else None
        made = SparseTensor(
            placeholder(dtypes.int64, [None, rank], "indices"), placeholder(dtype, [None], "values"), sizes
        )
        if shape is not None:
            made.set_shape(shape_of_vector(given) if known is None else known)
        return made


def sparse_tensor_dense_matmul(
    sp_a: SparseTensor, b: Any, adjoint_a: bool = False, adjoint_b: bool = False, name: str | None = None
) -> Tensor:
    """`tf.sparse_tensor_dense_matmul`."""
    return ops.sparse_tensor_dense_mat_mul(*sp_a, b, adjoint_a=adjoint_a, adjoint_b=adjoint_b, name=name)


def sparse_to_dense(
    sparse_indices: Any,
    output_shape: Any,
    sparse_values: Any,
    default_value: Any = 0,
    validate_indices: bool = True,
    name: str | None = None,
) -> Tensor:
    """`tf.sparse_to_dense`."""
    values = convert_to_tensor(sparse_values)
    empty = convert_to_tensor(default_value, values.dtype.base)
    return ops.sparse_to_dense(
        sparse_indices, output_shape, values, empty, validate_indices=validate_indices, name=name
    )


def sparse_tensor_to_dense(
    sp_input: SparseTensor, default_value: Any = None, validate_indices: bool = True, name: str | None = None
) -> Tensor:
    """`tf.sparse_tensor_to_dense`."""
    default = (b"" if sp_input.dtype is dtypes.string else 0) if default_value is None else default_value
    indices, values, shape = sp_input
    return sparse_to_dense(indices, shape, values, default, validate_indices, name)


def edit_distance(
    hypothesis: SparseTensor, truth: SparseTensor, normalize: bool = True, name: str = "edit_distance"
) -> Tensor:
    """`tf.edit_distance`."""
    return ops.edit_distance(*hypothesis, *truth, normalize=normalize, name=name)


__getattr__, __dir__ = namespace(
    __name__,
    {
        **{
            name: f"functions.sparse_ops:sparse_{name}"
            for name in """add concat expand_dims eye fill_empty_rows from_dense mask maximum merge minimum reduce_max
            reduce_max_sparse reduce_sum reduce_sum_sparse reorder reset_shape reshape retain segment_mean
            segment_sqrt_n segment_sum slice softmax split to_indicator transpose""".split()
        },
        "matmul": "values.sparse:sparse_tensor_dense_matmul",
        "placeholder": "values.sparse:sparse_placeholder",
        "SparseConditionalAccumulator": "running.accumulators:SparseConditionalAccumulator",
        **{name: f"functions.sparse_crosses:{name}" for name in "bincount cross cross_hashed".split()},
        "sparse_dense_matmul": "values.sparse:sparse_tensor_dense_matmul",
        "to_dense": "values.sparse:sparse_tensor_to_dense",
    },
)
