"""`DatasetBase`: the variant tensor of a dataset in a graph being built, and the spec of its elements.

The methods that create datasets are in a chain of subclasses that ends with `Dataset`: `in_memory.py`,
`transformations.py`, `grouping.py`, `mixing.py`, `file_names.py`, `saved.py`,
`python_sources.py`, `dataset.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Self, cast

from aexec import ops
from aexec.control_flow.function import TensorSpec
from aexec.control_flow.function_call import add_call
from aexec.data.element_spec import (
    Dialect,
    classes_of,
    flat_shapes,
    flat_types,
    normal_spec,
    shapes_of,
    types_of,
)
from aexec.data.element_structure import map_leaves
from aexec.data.options import Options
from aexec.data.traced import Traced, traced
from aexec.framework.op_contract import op_registry
from aexec.graph.graph import Graph, current_graph
from aexec.graph.nodes.node import Tensor

__all__ = ["DatasetBase", "building"]


@contextmanager
def building(graph: Graph | None = None) -> Iterator[None]:
    """Context manager: add nodes to the current graph; if there is none, to `graph` or a new one."""
    if current_graph() is not None:
        yield
        return
    with Graph() if graph is None else graph:
        yield


class DatasetBase:
    """A dataset of a graph.

    Args:
        variant: the dataset's scalar variant tensor.
        element_spec: the spec of an element.
        options: the dataset's options, which derived datasets inherit.

    Attributes:
        variant: as given.
        spec_here: the spec of an element, with shapes as aexec's own objects.
        dialect: the classes of elements, shapes and derived datasets that programs see.
    """

    dialect: ClassVar[Dialect]

    def __init__(self, variant: Tensor, element_spec: Any, options: Options | None = None) -> None:
        self.variant = variant
        self.spec_here = normal_spec(element_spec)
        self._options = options or Options()

    @property
    def graph(self) -> Graph:
        """The graph that the dataset belongs to."""
        return cast(Graph, self.variant.graph)

    @property
    def element_spec(self) -> Any:
        """The spec of an element: a structure of `TensorSpec`s and other specs."""
        shape = self.dialect.shape

        def of(leaf: Any) -> Any:
            return TensorSpec(shape(leaf.shape), leaf.dtype) if isinstance(leaf, TensorSpec) else leaf

        return map_leaves(of, self.spec_here)

    @property
    def output_types(self) -> Any:
        """The dtypes of an element's parts, in the element's structure."""
        return types_of(self.spec_here)

    @property
    def output_shapes(self) -> Any:
        """The static shapes of an element's parts, in the element's structure."""
        return shapes_of(self.spec_here, self.dialect)

    @property
    def output_classes(self) -> Any:
        """The classes of an element's parts, in the element's structure."""
        return classes_of(self.spec_here, self.dialect)

    @classmethod
    def made(
        cls,
        op: str,
        inputs: Mapping[str, Any],
        spec: Any,
        attrs: Mapping[str, Any] | None = None,
        functions: Sequence[Traced] = (),
        name: str | None = None,
        options: Options | None = None,
    ) -> Self:
        """Create a dataset with a new node.

        Args:
            inputs, attrs: of the node; `output_types` and `output_shapes` are added to the attrs.
            functions: the functions that the node calls.
        """
        known = {attr.name for attr in op_registry.global_registry.lookup(op).op_def.attrs}
        all_attrs = dict(attrs or {})
        if "output_types" in known:
            all_attrs["output_types"] = flat_types(spec)
        if "output_shapes" in known:
            all_attrs["output_shapes"] = flat_shapes(spec)
        node = add_call(op, [function.graph for function in functions], dict(inputs), all_attrs, name or op)
        made: Self = cls.dialect.dataset(node.output(0), spec)
        made._options = options or made._options
        return made

    def derived(
        self,
        op: str,
        inputs: Mapping[str, Any],
        spec: Any = None,
        attrs: Mapping[str, Any] | None = None,
        functions: Sequence[Traced] = (),
        name: str | None = None,
    ) -> Self:
        """Create a dataset with a new node whose first input is this dataset.

        Args:
            spec: the spec of the new dataset's elements; by default that of this one's.
        """
        with building(self.graph):
            given = {"input_dataset": self.variant, **inputs}
            return self.made(
                op, given, self.spec_here if spec is None else spec, attrs, functions, name, options=self._options
            )

    def traced(self, function: Callable[..., Any], where: str, spec: Any = None, **how: Any) -> Traced:
        """Trace a function of this dataset's elements, or of elements of a given spec; `how` as for `traced.traced`."""
        return traced(function, self.spec_here if spec is None else spec, where, self.dialect, **how)

    def cardinality(self) -> Tensor:
        """The number of elements, an int64 scalar; -1 if it is infinite, -2 if only a pass can tell."""
        with building(self.graph):
            return ops.dataset_cardinality(self.variant)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} '{self.variant.node.name}' of {self.element_spec!r}>"
