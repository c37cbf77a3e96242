"""`PythonSources`: datasets whose elements come from Python code during a run.

Each source is a user-defined op, so other processes cannot import its GraphDef, as with `tf.py_func`.
Next to read: `pulled.py`.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from time import perf_counter
from typing import Any, Self

import numpy as np

from aexec.client.user_ops import op
from aexec.control_flow.function import TensorSpec
from aexec.data.dataset_base import building
from aexec.data.element_spec import SparseTensorSpec, flat_shapes, flat_types, legacy_spec, normal_spec
from aexec.data.element_structure import flattened, leaves_up_to, map_leaves
from aexec.data.pulled import Pulled
from aexec.data.saved import Saved
from aexec.framework import dtypes, errors
from aexec.framework.shape import PartialTensorShape
from aexec.framework.shape_functions import common_shape_fns
from aexec.framework.waiting.inline_call import check_inline
from aexec.framework.waiting.loop_budget import COPY_NS, SLICE_SECONDS
from aexec.graph.op_functions import convert_to_tensor
from aexec.resources.datasets.dataset import Element, Elements
from aexec.runtime.feeding.feeds import FeedSpec
from aexec.runtime.threads.worker_pool import OnCancel, run_in_thread

__all__ = ["PythonSources"]

_numbers = itertools.count()

# A generator is called in a thread until this many consecutive calls were short, then on the event loop.
_SHORT_CALLS = 3
_SHORT_SECONDS = SLICE_SECONDS / 5

_END = object()

# An array made from a value of these types shares no memory with the value.
_WITHOUT_MEMORY = (list, tuple, int, float, complex, str, bytes, np.generic)


class PythonSources(Saved):
    """The sources whose elements come from Python code."""

    @classmethod
    def from_async(
        cls,
        source: AsyncIterable[Any] | Callable[..., Any],
        signature: Any,
        args: Sequence[Any] = (),
        name: str | None = None,
    ) -> Self:
        """A dataset of the elements of an asynchronous iterator, such as a database cursor or a websocket.

        ::

            async def rows():
                async with connect() as connection:
                    async for row in connection.cursor("select x, y from points"):
                        yield row

            points = Dataset.from_async(rows, (TensorSpec([], "float32"), TensorSpec([], "float32")))

        A task on the session's event loop requests one element at a time, when a step needs it.  A cancelled step loses
        no element.  The source is closed (`aclose`) at its end, and when its pass or its session ends.

        Args:
            source: an asynchronous iterable; or a function that returns one and is called for each pass, such as an
                async generator function or a coroutine function.
            signature: the spec of an element: a structure of `TensorSpec`s or of dtypes.
            args: tensors whose values are passed to the function as arrays.
            name: name of the node.

        Raises:
            InvalidArgumentError: `source` or `signature` is of another kind.
        """
        if not callable(source) and not isinstance(source, AsyncIterable):
            raise errors.InvalidTypeError(
                f"from_async takes an asynchronous iterable or a function, got {source!r:.100}"
            )
        spec = normal_spec(map_leaves(_spec, signature))
        return cls._of_python("FromAsync", _opener(source), spec, args, name)

    @classmethod
    def from_generator(
        cls,
        generator: Callable[..., Iterable[Any]],
        output_types: Any = None,
        output_shapes: Any = None,
        args: Sequence[Any] | None = None,
        output_signature: Any = None,
        name: str | None = None,
    ) -> Self:
        """A dataset of the elements of a Python generator.

        The generator runs in a thread; once its calls are found to be short, it runs on the event loop.

        Args:
            generator: a function that returns an iterable; called for each pass.
            output_types, output_shapes: dtypes and shapes of an element's parts, in its structure; shapes are unknown
                by default.
            args: tensors whose values are passed to the function as arrays.
            output_signature: the spec of an element, in place of dtypes and shapes: a structure of `TensorSpec`s.

        Raises:
            InvalidArgumentError: `generator` is not callable, or not exactly one of dtypes and signature is given.
        """
        if not callable(generator):
            raise errors.InvalidTypeError("`generator` must be a Python callable.")
        if (output_types is None) == (output_signature is None):
            raise errors.InvalidTypeError("Provide either `output_types` and `output_shapes`, or `output_signature`.")
        if output_signature is not None and output_shapes is not None:
            raise errors.InvalidTypeError("Provide either `output_shapes` or `output_signature`.")
        known = output_types is None
        spec = normal_spec(output_signature) if known else legacy_spec(output_types, output_shapes)

        async def opened(*values: Any) -> AsyncIterator[Any]:
            return _advanced(generator, values)

        return cls._of_python("FromGenerator", opened, spec, args or (), name)

    @classmethod
    def _of_python(
        cls, kind: str, opened: Callable[..., Any], spec: Any, args: Sequence[Any], name: str | None
    ) -> Self:
        label = [kind]  # then the node's name
        types, shapes = tuple(flat_types(spec)), tuple(flat_shapes(spec))

        def make(*values: Any) -> Elements:
            arrays = [value if value.ndim else value[()] for value in map(np.asarray, values)]
            convert = _converter(spec, label[0])

            async def open_source() -> AsyncIterator[Any]:
                found: AsyncIterator[Any] = await opened(*arrays)
                return found

            return Elements(label[0], types, shapes, lambda one: Pulled(one, label[0], open_source, convert))

        with building():
            tensors = [convert_to_tensor(value, name="args") for value in args]
            given = ", ".join(f"x{i}: {tensor.dtype.base}" for i, tensor in enumerate(tensors))
            definition = f"{kind}{next(_numbers)}({given}) -> handle: variant"
            made = op(definition, stateful=True, shape_fn=common_shape_fns.scalar)(make)(*tensors, name=name or kind)
            label[0] = made.node.name
            dataset: Self = cls.dialect.dataset(made, spec)
            return dataset


def _spec(leaf: Any) -> Any:
    return leaf if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else TensorSpec(None, leaf)


# Opening sources


def _opener(source: Any) -> Callable[..., Any]:
    """Make a coroutine function that opens the asynchronous iterator of a pass."""
    begun: list[bool] = []

    async def opened(*values: Any) -> AsyncIterator[Any]:
        found = source(*values) if callable(source) else source
        if inspect.isawaitable(found):
            found = await found
        if not isinstance(found, AsyncIterable):
            raise errors.InvalidArgumentError(f"the function must return an asynchronous iterable, got {found!r:.100}")
        if found is source and isinstance(found, AsyncIterator):
            if begun:
                raise errors.FailedPreconditionError(
                    "its asynchronous iterator has been used: give a function that makes one for each pass"
                )
            begun.append(True)
        return aiter(found)

    return opened


async def _advanced(generator: Callable[..., Iterable[Any]], values: Sequence[Any]) -> AsyncIterator[Any]:
    """Iterate over a generator: in a thread until its calls are found to be short, then on the event loop."""

    def begin() -> Any:
        return iter(generator(*values))

    items = await run_in_thread(begin, on_cancel=OnCancel.WAIT)
    short = 0
    try:
        while True:
            if short < _SHORT_CALLS:
                item, seconds = await run_in_thread(_timed, items, on_cancel=OnCancel.WAIT)
            else:
                item, seconds = _timed(items)
            short = short + 1 if seconds < (_SHORT_SECONDS if short < _SHORT_CALLS else SLICE_SECONDS) else 0
            if item is _END:
                return
            yield item
    finally:
        if hasattr(items, "close"):
            await run_in_thread(items.close, on_cancel=OnCancel.WAIT)


def _timed(items: Any) -> tuple[Any, float]:
    began = perf_counter()
    return next(items, _END), perf_counter() - began


# Elements


def _converter(spec: Any, name: str) -> Callable[[Any], Element]:
    """Make a function that converts a Python value to an element.

    It raises InvalidArgumentError if the structure, a dtype or a shape does not match the spec.
    """
    parts = [_part(leaf, f"{name}[{index}]") for index, leaf in enumerate(flattened(spec))]
    if isinstance(spec, TensorSpec):
        only = parts[0]
        return lambda value: (only(value),)

    def convert(value: Any) -> Element:
        leaves = leaves_up_to(spec, value, "an element")
        return tuple([part(leaf) for part, leaf in zip(parts, leaves, strict=True)])

    return convert


def _part(spec: Any, name: str) -> Callable[[Any], Any]:
    if isinstance(spec, TensorSpec):
        return _tensor(FeedSpec(name, spec.dtype, spec.shape))
    if not isinstance(spec, SparseTensorSpec):
        raise errors.InvalidTypeError(f"{name}: a source gives tensors and sparse tensors, and not {spec}")
    rank = spec.shape.rank
    shapes = ([None, rank], [None], [rank])
    types = (dtypes.int64, spec.dtype, dtypes.int64)
    arrays = [
        _tensor(FeedSpec(f"{name}.{field}", dtype, PartialTensorShape(shape)))
        for field, dtype, shape in zip(("indices", "values", "dense_shape"), types, shapes, strict=True)
    ]

    def convert(value: Any) -> Any:
        variant = np.empty(3, object)
        for place, (array, part) in enumerate(zip(arrays, value, strict=True)):
            variant[place] = array(part)
        return variant

    return convert


def _tensor(feed: FeedSpec) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        array = value if feed.fits(value) else feed.convert(value)
        if isinstance(value, _WITHOUT_MEMORY) or not array.flags.writeable:
            return array
        check_inline(COPY_NS * array.nbytes)
        return array.copy()  # the source may write to its own array later

    return convert
