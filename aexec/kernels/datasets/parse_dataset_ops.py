"""Datasets of parsed examples: each element of the input is a vector of serialised examples."""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.shape import shape_text
from aexec.framework.waiting.inline_call import check_inline
from aexec.framework.zeros import zeros_of_type
from aexec.kernels.common.variants import boxed
from aexec.kernels.datasets.arguments import Made
from aexec.kernels.datasets.parallel_dataset_ops import Ahead, in_flight
from aexec.kernels.parsing import example_records as example
from aexec.kernels.parsing.example_ops import ParsedExamples, parse_ns
from aexec.kernels.parsing.feature_columns import as_ragged, as_sparse
from aexec.kernels.ragged.variant_ops import RaggedTensorVariant
from aexec.resources.datasets.dataset import Element, dataset_of


class _Parser:
    """Parses a batch of serialised examples into an element, whose components are in the order of the keys' names.

    Args:
        c: the node, whose attrs name the features.
        defaults: of the dense features.
    """

    def __init__(self, c: OpKernelConstruction, defaults: tuple[Any, ...]) -> None:
        types, shapes = c.attr("Tdense"), c.attr("dense_shapes")
        example.check_shapes(shapes, types)
        self._dense = example.dense_features(example.key_texts(c.attr("dense_keys")), types, shapes, defaults)
        self._sparse = _typed(c, "sparse_keys", c.attr("sparse_types"))
        values, splits = c.attrs.get("ragged_value_types", []), c.attrs.get("ragged_split_types", [])
        keys = example.key_texts(c.attrs.get("ragged_keys", []))
        if not len(keys) == len(values) == len(splits):
            raise errors.InvalidArgumentError("len(ragged_keys) must be that of ragged_value_types and its splits")
        self._ragged = list(zip(keys, values, splits, strict=True))
        self._features = [
            *((feature.key, feature.dtype) for feature in self._dense),
            *self._sparse,
            *((key, dtype) for key, dtype, _ in self._ragged),
        ]
        names = [key for key, _ in self._features]
        if len(set(names)) < len(names):
            raise errors.InvalidArgumentError("The keys of features must be different from each other")
        self._order = sorted(range(len(names)), key=names.__getitem__)
        self.num_features = len(names)

    def parse(self, serialized: Any) -> Element:
        """Raises InvalidArgumentError for what is no example, or lacks a feature."""
        batch = ParsedExamples(serialized, np.empty(0, object), self._features)
        components = [batch.dense(feature, _allocator(feature.dtype)) for feature in self._dense]
        for key, dtype in self._sparse:
            components.append(np.empty(3, object))
            components[-1][:] = as_sparse(batch.column(key, dtype))
        for key, dtype, splits_type in self._ragged:
            values, splits = as_ragged(batch.column(key, dtype), splits_type)
            components.append(boxed(RaggedTensorVariant((splits,), values)))
        return tuple([components[position] for position in self._order])

    async def __call__(self, context: OpKernelContext, element: Element) -> Element:
        (serialized,) = element
        if serialized.ndim != 1:
            raise errors.InvalidArgumentError(
                f"Expected serialized to be a vector, got shape: {shape_text(serialized.shape)}"
            )
        nanoseconds = parse_ns(serialized, self.num_features)

        def parsed() -> Element:
            check_inline(nanoseconds)
            return self.parse(serialized)

        result: Element = await context.worker_pool.run_here_or_in_thread(parsed)
        return result


def _typed(c: OpKernelConstruction, keys: str, types: list[DType]) -> list[tuple[str, DType]]:
    names = example.key_texts(c.attr(keys))
    if len(names) != len(types):
        raise errors.InvalidArgumentError(f"len({keys}) == {len(names)}, but there are {len(types)} types")
    return list(zip(names, types, strict=True))


def _allocator(dtype: DType) -> Any:
    return lambda shape: zeros_of_type(shape, dtype)


@kernel("ParseExampleDataset", "ParseExampleDatasetV2", "ExperimentalParseExampleDataset", cost=0)
def parse_example_dataset(c: OpKernelConstruction) -> Compute:
    made = Made(c)

    def compute(tensor: Any, num_parallel_calls: Any, *defaults: Any) -> Any:
        source, limit, parser = dataset_of(tensor), in_flight(num_parallel_calls), _Parser(c, defaults)
        if source.types != (dtypes.string,):
            raise errors.InvalidArgumentError("Input dataset must have one component, of serialized examples")
        if parser.num_features != len(made.types):
            raise errors.InvalidArgumentError(
                f"There are {parser.num_features} features, but {len(made.types)} output_types"
            )
        return made.of(lambda one: Ahead(one, one.begin(source), limit, parser, preserves=True), source.cardinality())

    return compute
