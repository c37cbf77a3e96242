"""Input pipelines built of queues: producers that iterate over inputs, and batching.

The functions add nodes to the current graph and queue runners that keep them going::

    with aexec.Graph() as graph:
        (example,) = input.slice_input_producer([examples], num_epochs=3)
        batch = input.shuffle_batch([example], 32, capacity=1000, min_after_dequeue=500)
    async with aexec.Session(graph) as session:
        await input.initialize(session)
        async with aexec.Coordinator() as coordinator:
            aexec.start_queue_runners(session, coordinator)
            while True:
                await session.run(batch)       # OutOfRangeError after the last epoch

Next to read: `data_flow.py`, `aexec/queues/queue_runner.py`.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from aexec import ops
from aexec.client.building import constant, control_dependencies, name_scope
from aexec.client.data_flow import GraphQueue, fifo_queue, padding_fifo_queue, random_shuffle_queue
from aexec.client.random_seed import get_seed
from aexec.framework import dtypes, errors
from aexec.framework.shape import PartialTensorShape
from aexec.graph.nodes.node import GraphView, Node, Tensor
from aexec.graph.op_functions import convert_to_tensor, require_graph
from aexec.queues.queue_runner import QueueRunner, add_queue_runner
from aexec.runtime.session.session import Session

__all__ = [
    "batch",
    "batch_join",
    "epoch_initializers",
    "initialize",
    "input_producer",
    "limit_epochs",
    "range_input_producer",
    "shuffle_batch",
    "shuffle_batch_join",
    "slice_input_producer",
    "string_input_producer",
]

# Nodes that set the epoch counters of a graph to zero.
_initializers: weakref.WeakKeyDictionary[GraphView, list[Node]] = weakref.WeakKeyDictionary()


async def initialize(session: Session) -> None:
    """Set the epoch counters of the session's graph to zero; required before its runners start."""
    nodes = epoch_initializers(session.graph)
    if nodes:
        await session.run([], targets=[node.name for node in nodes])


def epoch_initializers(graph: GraphView) -> list[Node]:
    """The operations that set the epoch counters of a graph to zero: `local_variables_initializer` runs them, too."""
    return list(_initializers.get(graph, ()))


# Producers


def limit_epochs(tensor: Any, num_epochs: int | None = None, name: str | None = None) -> Tensor:
    """The tensor, `num_epochs` times; then OutOfRangeError.  None for no limit.

    Raises:
        InvalidArgumentError: the number is not positive.
    """
    value = convert_to_tensor(tensor)
    if num_epochs is None:
        return value
    if num_epochs <= 0:
        raise errors.InvalidValueError(f"num_epochs must be > 0 not {num_epochs}.")
    with name_scope(name or "limit_epochs") as scope:
        epochs = ops.variable_v2(shape=[], dtype="int64", name="epochs")
        start = ops.assign(epochs, constant(0, "int64"), name="epochs/Assign").node
        _initializers.setdefault(value.graph, []).append(start)
        with control_dependencies([ops.count_up_to(epochs, num_epochs)]):
            return ops.identity(value, name=scope)


def input_producer(
    input_tensor: Any,
    element_shape: Any = None,
    num_epochs: int | None = None,
    *,
    shuffle: bool = True,
    seed: int | None = None,
    capacity: int = 32,
    shared_name: str | None = None,
    name: str | None = None,
) -> GraphQueue:
    """A queue that a runner fills with the rows of a tensor, repeatedly.

    Args:
        input_tensor: at least a vector.
        element_shape: of a row, if the tensor's shape does not tell.
        num_epochs: how often each row is enqueued; None for no limit.
        shuffle: enqueue the rows of each epoch in random order, with `seed`.
        capacity: of the queue.
        shared_name: sessions that share containers share a queue of this name.

    Raises:
        InvalidArgumentError: the shape of a row is unknown.
    """
    with name_scope(name or "input_producer"):
        rows = convert_to_tensor(input_tensor, name="input_tensor")
        shape = _without_first(rows)
        if element_shape is not None:
            shape = shape.merge_with(PartialTensorShape.of(element_shape))
        if not shape.is_fully_defined:
            raise errors.InvalidValueError(
                "Either `input_tensor` must have a fully defined shape or `element_shape` must be specified"
            )
        if shuffle:
            seed1, seed2 = get_seed(seed)
            rows = ops.random_shuffle(rows, seed=seed1, seed2=seed2)
        rows = limit_epochs(rows, num_epochs)
        queue = fifo_queue(capacity, [rows.dtype.base], [shape], shared_name=shared_name)
        _add_runner(queue, [queue.enqueue_many([rows])])
    return queue


def string_input_producer(
    string_tensor: Any, num_epochs: int | None = None, *, name: str | None = None, **options: Any
) -> GraphQueue:
    """`input_producer` for strings such as file names.

    Raises:
        InvalidArgumentError: there are no strings; for a tensor, this is checked when it runs.
    """
    if not isinstance(string_tensor, Tensor) and not len(string_tensor):
        raise errors.InvalidValueError("string_input_producer requires a non-null input tensor")
    with name_scope(name or "input_producer"):
        strings = convert_to_tensor(string_tensor, dtypes.string)
        some = ops.greater(ops.size(strings), constant(0))
        message = constant("string_input_producer requires a non-null input tensor")
        with control_dependencies([ops.assert_(some, [message])]):  # noqa: PT009
            strings = ops.identity(strings)
        return input_producer(strings, [], num_epochs, **options)


def range_input_producer(
    limit: Any, num_epochs: int | None = None, *, name: str | None = None, **options: Any
) -> GraphQueue:
    """`input_producer` for the integers from 0 to `limit` - 1."""
    with name_scope(name or "input_producer"):
        return input_producer(ops.range(constant(0), limit, constant(1)), [], num_epochs, **options)


def slice_input_producer(
    tensor_list: Sequence[Any], num_epochs: int | None = None, *, name: str | None = None, **options: Any
) -> list[Tensor]:
    """One row of each tensor at a time; options as of `input_producer`.

    Raises:
        InvalidArgumentError: there are no tensors.
    """
    if not len(tensor_list):
        raise errors.InvalidValueError("Expected at least one tensor in slice_input_producer().")
    with name_scope(name or "input_producer"):
        tensors = [convert_to_tensor(tensor) for tensor in tensor_list]
        count = ops.gather_v2(ops.shape(tensors[0]), constant(0), constant(0))
        index = range_input_producer(count, num_epochs, **options).dequeue()
        return [ops.gather_v2(tensor, index, constant(0)) for tensor in tensors]


# Batches


def batch(
    tensors: Any, batch_size: Any, num_threads: int = 1, capacity: int = 32, *, name: str | None = None, **options: Any
) -> Any:
    """Batches of the values of `tensors`, step after step.

    Args:
        tensors: a tensor, or a list or dict of them.
        batch_size: number of elements, an int or an int32 tensor.
        num_threads: number of tasks that enqueue elements; with more than one their order is lost.
        capacity: of the queue.
        enqueue_many: the first dimension of each tensor counts elements.
        shapes: of an element's components, if the tensors' shapes do not tell.
        dynamic_pad: pad unknown dimensions of elements to the largest in the batch.
        allow_smaller_final_batch: return the remaining elements at the end.
        keep_input: a bool tensor: enqueue the element only if it is true; a vector with `enqueue_many`.
        shared_name: of the queue.

    Returns:
        in the form of `tensors`.

    Raises:
        InvalidArgumentError: there are no tensors, or shapes are not known well enough.
    """
    return _batch([tensors] * num_threads, batch_size, capacity, None, name or "batch", **options)


def batch_join(
    tensors_list: Sequence[Any], batch_size: Any, capacity: int = 32, *, name: str | None = None, **options: Any
) -> Any:
    """Like `batch`, with a task for each entry of a list of such `tensors`, such as those of different files."""
    return _batch(tensors_list, batch_size, capacity, None, name or "batch_join", **options)


def shuffle_batch(
    tensors: Any,
    batch_size: Any,
    capacity: int,
    min_after_dequeue: int,
    num_threads: int = 1,
    *,
    seed: int | None = None,
    name: str | None = None,
    **options: Any,
) -> Any:
    """Like `batch`, in random order.

    Args:
        min_after_dequeue: number of elements that stay in the queue, to be mixed with later ones.
    """
    mix = (min_after_dequeue, seed)
    return _batch([tensors] * num_threads, batch_size, capacity, mix, name or "shuffle_batch", **options)


def shuffle_batch_join(
    tensors_list: Sequence[Any],
    batch_size: Any,
    capacity: int,
    min_after_dequeue: int,
    *,
    seed: int | None = None,
    name: str | None = None,
    **options: Any,
) -> Any:
    """Like `batch_join`, in random order."""
    mix = (min_after_dequeue, seed)
    return _batch(tensors_list, batch_size, capacity, mix, name or "shuffle_batch_join", **options)


def _batch(
    tensors_list: Sequence[Any],
    batch_size: Any,
    capacity: int,
    mix: tuple[int, int | None] | None,
    name: str,
    *,
    enqueue_many: bool = False,
    shapes: Any = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    keep_input: Any = True,
    shared_name: str | None = None,
) -> Any:
    with name_scope(name) as scope:
        lists = [_as_list(tensors) for tensors in tensors_list]
        if not lists or any(len(tensors) != len(lists[0]) or not tensors for tensors in lists):
            raise errors.InvalidValueError("Expected at least one tensor, and as many in each entry")
        types = [tensor.dtype.base for tensor in lists[0]]
        known = _element_shapes(lists, shapes, enqueue_many, keep_input)
        if mix is not None:
            queue = random_shuffle_queue(capacity, mix[0], types, known, seed=mix[1], shared_name=shared_name)
        elif dynamic_pad:
            queue = padding_fifo_queue(capacity, types, known, shared_name=shared_name)
        else:
            queue = fifo_queue(capacity, types, known, shared_name=shared_name)
        _add_runner(queue, [_enqueue(queue, tensors, keep_input, enqueue_many) for tensors in lists])
        take = queue.dequeue_up_to if allow_smaller_final_batch else queue.dequeue_many
        return _like(tensors_list[0], take(batch_size, name=scope))


def _element_shapes(
    lists: list[list[Tensor]], shapes: Any, enqueue_many: bool, keep_input: Any
) -> list[PartialTensorShape]:
    if shapes is not None:
        return [PartialTensorShape.of(shape) for shape in shapes]
    # One row for each element, also if a vector says which rows are kept.
    rows = enqueue_many or (isinstance(keep_input, Tensor) and keep_input.static_shape.rank == 1)
    merged = []
    for tensors in zip(*lists, strict=True):
        candidates = [_without_first(tensor) if rows else tensor.static_shape for tensor in tensors]
        shape = candidates[0]
        for other in candidates[1:]:
            shape = _common(shape, other)
        merged.append(PartialTensorShape(shape.dims))
    return merged


def _common(first: PartialTensorShape, second: PartialTensorShape) -> PartialTensorShape:
    """The dimensions on which both shapes agree."""
    if first.dims is None or second.dims is None or len(first.dims) != len(second.dims):
        return PartialTensorShape(None)
    return PartialTensorShape([a if a == b else None for a, b in zip(first.dims, second.dims, strict=True)])


def _without_first(tensor: Tensor) -> PartialTensorShape:
    dims = tensor.static_shape.dims
    if dims is not None and not dims:
        raise errors.InvalidValueError(f"'{tensor.name}' is a scalar and has no rows")
    return PartialTensorShape(None if dims is None else dims[1:])


def _enqueue(queue: GraphQueue, tensors: list[Tensor], keep_input: Any, enqueue_many: bool) -> Node:
    put = queue.enqueue_many if enqueue_many else queue.enqueue
    if keep_input is True:
        return put(tensors)
    keep = convert_to_tensor(keep_input, dtypes.as_dtype("bool"))
    if keep.static_shape.rank == 1:
        if not enqueue_many:
            raise errors.InvalidValueError("keep_input must be a scalar unless enqueue_many is set")
        chosen = ops.reshape(ops.where(keep), constant([-1]))
        return put([ops.gather_v2(tensor, chosen, constant(0)) for tensor in tensors])
    # Dead if it is false, so nothing is enqueued.
    return put([ops.switch(tensor, keep)[1] for tensor in tensors])


def _add_runner(queue: GraphQueue, enqueue_ops: list[Node]) -> None:
    close, cancel = queue.close(), queue.close(cancel_pending_enqueues=True)
    add_queue_runner(QueueRunner(queue.handle, enqueue_ops, close_op=close, cancel_op=cancel), require_graph())


def _as_list(tensors: Any) -> list[Tensor]:
    if isinstance(tensors, Mapping):
        values = [tensors[key] for key in sorted(tensors)]
    else:
        values = list(tensors) if isinstance(tensors, list | tuple) else [tensors]
    return [convert_to_tensor(value) for value in values]


def _like(original: Any, taken: Any) -> Any:
    if isinstance(original, Mapping):
        values = taken if isinstance(taken, list) else [taken]
        return dict(zip(sorted(original), values, strict=True))
    return taken
