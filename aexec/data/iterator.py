"""`Iterator`: a resource from which steps take the elements of a dataset."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from aexec import ops
from aexec.client.random_seed import get_seed
from aexec.data.copied import as_function
from aexec.data.dataset_base import DatasetBase
from aexec.data.element_spec import (
    Dialect,
    Optional,
    classes_of,
    common_spec,
    flat_shapes,
    flat_types,
    legacy_spec,
    shapes_of,
    types_of,
    value_of,
)
from aexec.data.element_structure import flattened
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import convert_to_tensor, create_node

__all__ = ["Iterator", "initializable_iterator", "one_shot_iterator"]


class Iterator:
    """An iterator of a graph.

    Args:
        handle: the resource handle.
        element_spec: the spec of an element.
        initializer: the operation that starts a pass; None if there is none, or several.

    Attributes:
        handle, element_spec: as given.
        dialect: the classes of elements and shapes that programs see.
    """

    dialect: ClassVar[Dialect]

    def __init__(self, handle: Tensor, element_spec: Any, initializer: Node | None = None) -> None:
        self.handle = handle
        self.element_spec = element_spec
        self._initializer = initializer

    @classmethod
    def from_structure(
        cls, output_types: Any, output_shapes: Any = None, shared_name: str | None = None, output_classes: Any = None
    ) -> Self:
        """An iterator for several datasets with the same spec; `make_initializer` makes an operation for each.

        Args:
            output_types, output_shapes, output_classes: structures as the properties of `Dataset`; by default tensors
                of unknown shape.
            shared_name: iterators with the same shared name are one iterator in a session.
        """
        spec = legacy_spec(output_types, output_shapes, output_classes)
        return cls(_resource(spec, shared_name), spec)

    @classmethod
    def from_string_handle(
        cls, string_handle: Any, output_types: Any, output_shapes: Any = None, output_classes: Any = None
    ) -> Self:
        """The iterator that a string identifies in each run.

        Args:
            string_handle: a scalar string, the value of another iterator's `string_handle`; usually fed.
            output_types, output_shapes, output_classes: as in `from_structure`.
        """
        spec = legacy_spec(output_types, output_shapes, output_classes)
        name = convert_to_tensor(string_handle, dtypes.string, "string_handle")
        return cls(ops.iterator_from_string_handle_v2(name, flat_types(spec), flat_shapes(spec)), spec)

    @property
    def initializer(self) -> Node:
        """The operation that starts a pass.

        Raises:
            InvalidArgumentError: the iterator starts by itself, or serves several datasets.
        """
        if self._initializer is None:
            raise errors.InvalidValueError(
                "Iterator does not have an initializer. This means it was likely created using "
                "`make_one_shot_iterator`; for an iterator of `from_structure` use `make_initializer`."
            )
        return self._initializer

    def make_initializer(self, dataset: DatasetBase, name: str | None = None) -> Node:
        """An operation that starts a pass through a dataset.

        Raises:
            InvalidArgumentError: the spec of the dataset's elements is not compatible with the iterator's.
        """
        common_spec([self.element_spec, dataset.spec_here], "An iterator and its dataset")
        shapes = zip(flat_shapes(self.element_spec), flat_shapes(dataset.spec_here), strict=True)
        if not all(mine.is_compatible_with(theirs) for mine, theirs in shapes):
            raise errors.InvalidTypeError(
                f"Expected output shapes compatible with {self.output_shapes!r} but got dataset with output shapes "
                f"{dataset.output_shapes!r}."
            )
        return _begin(dataset, self.handle, name)

    def get_next(self, name: str | None = None) -> Any:
        """The next element; each run takes one.  At the end of the dataset, the run fails with OutOfRangeError."""
        types, shapes = flat_types(self.element_spec), flat_shapes(self.element_spec)
        return value_of(
            self.element_spec, list(ops.iterator_get_next(self.handle, types, shapes, name=name)), self.dialect
        )

    def get_next_as_optional(self) -> Optional:
        """The next element as an `Optional`, which has no value at the end of the dataset."""
        types, shapes = flat_types(self.element_spec), flat_shapes(self.element_spec)
        return Optional(ops.iterator_get_next_as_optional(self.handle, types, shapes), self.element_spec, self.dialect)

    def string_handle(self, name: str | None = None) -> Tensor:
        """A scalar string that identifies the iterator in its session, for `from_string_handle`."""
        return ops.iterator_to_string_handle(self.handle, name=name)

    @property
    def output_types(self) -> Any:
        """The types of an element's parts."""
        return types_of(self.element_spec)

    @property
    def output_shapes(self) -> Any:
        """The shapes of an element's parts."""
        return shapes_of(self.element_spec, self.dialect)

    @property
    def output_classes(self) -> Any:
        """The classes of an element's parts."""
        return classes_of(self.element_spec, self.dialect)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} '{self.handle.node.name}' of {len(flattened(self.element_spec))} parts>"


def _resource(spec: Any, shared_name: str | None) -> Tensor:
    return ops.iterator_v2(
        shared_name=shared_name or "", container="", output_types=flat_types(spec), output_shapes=flat_shapes(spec)
    )


def _begin(dataset: DatasetBase, handle: Tensor, name: str | None = None) -> Node:
    return create_node(
        "MakeIterator", {"dataset": dataset.variant, "iterator": handle}, {}, name=name or "MakeIterator"
    )


def initializable_iterator(dataset: DatasetBase, shared_name: str | None) -> Any:
    """An iterator over one dataset, with an initializer."""
    handle = _resource(dataset.spec_here, shared_name)
    return dataset.dialect.iterator(handle, dataset.spec_here, _begin(dataset, handle))


def one_shot_iterator(dataset: DatasetBase) -> Any:
    """An iterator over one dataset that starts when the first element is requested."""
    get_seed(None)  # TensorFlow counts a random op here
    spec = dataset.spec_here
    attrs = {
        "dataset_factory": as_function(dataset.graph, dataset.variant),
        "output_types": flat_types(spec),
        "output_shapes": flat_shapes(spec),
    }
    return dataset.dialect.iterator(create_node("OneShotIterator", {}, attrs).output(0), spec)
