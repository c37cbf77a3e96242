"""Queues of a graph being built: `GraphQueue` knows its components and makes the nodes that use it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aexec.client.building import name_scope
from aexec.client.random_seed import get_seed
from aexec.framework import errors
from aexec.framework.dtypes import DType, as_dtype
from aexec.framework.shape import PartialTensorShape
from aexec.framework.shape_functions.shape_handles import Shape, ShapeAndType
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import convert_to_tensor, create_node
from aexec.queues.kinds import queue_class, queue_kinds

__all__ = [
    "GraphQueue",
    "fifo_queue",
    "make_queue",
    "padding_fifo_queue",
    "priority_queue",
    "random_shuffle_queue",
]


class GraphQueue:
    """The node that makes a queue; its methods make the nodes that use it.

    Nodes are named after the queue: `q_enqueue`, `q_Dequeue`, `q_Close`, …

    Attributes:
        handle: the queue's handle.
        types, shapes: of its components; no shapes if elements may have any.
    """

    def __init__(self, handle: Tensor, types: Sequence[DType], shapes: Sequence[PartialTensorShape]) -> None:
        self.handle = handle
        self.types = list(types)
        self.shapes = list(shapes)
        self._base = handle.node.name.rpartition("/")[2]
        known = shapes or [PartialTensorShape(None)] * len(self.types)
        data = tuple(ShapeAndType(Shape.of(shape), dtype) for shape, dtype in zip(known, types, strict=True))
        handle.node.handle_data = (data,)  # lets the shapes of dequeued elements be inferred

    @property
    def name(self) -> str:
        """The name of the queue's node, as `Session.queue` takes it."""
        return self.handle.node.name

    def enqueue(self, element: Any, name: str | None = None) -> Node:
        """Enqueue an element: a tensor, or a list with one per component."""
        return self._put("QueueEnqueueV2", element, name or f"{self._base}_enqueue")

    def enqueue_many(self, components: Any, name: str | None = None) -> Node:
        """Enqueue the rows of a tensor, or of a list with one tensor per component."""
        return self._put("QueueEnqueueManyV2", components, name or f"{self._base}_EnqueueMany")

    def _put(self, op: str, element: Any, name: str) -> Node:
        values = element if isinstance(element, list | tuple) else [element]
        if len(values) != len(self.types):
            raise errors.InvalidValueError(
                f"Wrong number of components in tuple. Expected {len(self.types)}, got {len(values)}"
            )
        with name_scope(name) as scope:
            typed = enumerate(zip(values, self.types, strict=True))
            tensors = [convert_to_tensor(value, dtype, f"component_{i}") for i, (value, dtype) in typed]
            return create_node(op, {"handle": self.handle, "components": tensors}, {}, name=scope)

    def dequeue(self, name: str | None = None) -> Any:
        """Dequeue an element: a tensor, or a list with one per component."""
        return self._take("QueueDequeueV2", {}, name or f"{self._base}_Dequeue")

    def dequeue_many(self, count: Any, name: str | None = None) -> Any:
        """Dequeue `count` elements as a batch: a tensor, or a list with one per component."""
        return self._take("QueueDequeueManyV2", {"n": count}, name or f"{self._base}_DequeueMany")

    def dequeue_up_to(self, count: Any, name: str | None = None) -> Any:
        """Like `dequeue_many`, but returns fewer elements once the queue is closed and has no more."""
        return self._take("QueueDequeueUpToV2", {"n": count}, name or f"{self._base}_DequeueUpTo")

    def _take(self, op: str, inputs: dict[str, Any], name: str) -> Any:
        node = create_node(op, {"handle": self.handle, **inputs}, {"component_types": self.types}, name=name)
        return node.output(0) if len(self.types) == 1 else list(node.outputs)

    def close(self, *, cancel_pending_enqueues: bool = False, name: str | None = None) -> Node:
        """Close the queue: after the pending enqueues, or at once, failing them."""
        attrs = {"cancel_pending_enqueues": cancel_pending_enqueues}
        return create_node("QueueCloseV2", {"handle": self.handle}, attrs, name=name or f"{self._base}_Close")

    def size(self, name: str | None = None) -> Tensor:
        """The number of elements, int32."""
        return create_node("QueueSizeV2", {"handle": self.handle}, {}, name=name or f"{self._base}_Size").output(0)

    def is_closed(self, name: str | None = None) -> Tensor:
        name = name or f"{self._base}_is_closed"
        return create_node("QueueIsClosedV2", {"handle": self.handle}, {}, name=name).output(0)


def make_queue(
    kind: str,
    capacity: int,
    types: Any,
    shapes: Any = None,
    *,
    shared_name: str | None = None,
    name: str | None = None,
    **settings: Any,
) -> GraphQueue:
    """Make a queue of any kind.

    Args:
        kind: as `aexec.queues.queue_registry.register_queue_kind` knows it, such as `"FIFOQueue"`.
        capacity, types, shapes, shared_name: as `fifo_queue` takes them.
        name: of the node; by default that of the kind.
        settings: the other attrs of its op.

    Raises:
        NotFoundError: there is no such kind.
    """
    queue = queue_class(kind)
    if queue is None:
        raise errors.NotFoundError(f"No kind of queue '{kind}' is registered; there are {', '.join(queue_kinds())}")
    component_types = [as_dtype(t) for t in (types if isinstance(types, list | tuple) else [types])]
    if shapes is None:
        shapes = []
    component_shapes = [PartialTensorShape.of(shape) for shape in shapes]
    attrs = {
        "component_types": component_types,
        "shapes": component_shapes,
        "capacity": capacity,
        "shared_name": shared_name,
        **settings,
    }
    handle = create_node(f"{queue.kind}V2", {}, attrs, name=name).output(0)
    return GraphQueue(handle, *queue.with_leading(component_types, component_shapes))


def fifo_queue(
    capacity: int, types: Any, shapes: Any = None, *, shared_name: str | None = None, name: str = "fifo_queue"
) -> GraphQueue:
    """A queue that returns elements in the order in which they were enqueued.

    Args:
        capacity: the most elements; negative for no limit.
        types: of the components, or of the only one.
        shapes: a list of the components' shapes, fully known, or None for any.
        shared_name: of the resource; nodes with the same shared_name share a queue.
    """
    return make_queue("FIFOQueue", capacity, types, shapes, shared_name=shared_name, name=name)


def padding_fifo_queue(
    capacity: int, types: Any, shapes: Any, *, shared_name: str | None = None, name: str = "padding_fifo_queue"
) -> GraphQueue:
    """Like `fifo_queue`; shapes may have unknown dimensions, which are padded in batches."""
    return make_queue("PaddingFIFOQueue", capacity, types, shapes, shared_name=shared_name, name=name)


def priority_queue(
    capacity: int, types: Any, shapes: Any = None, *, shared_name: str | None = None, name: str = "priority_queue"
) -> GraphQueue:
    """A queue that returns the smallest element first: the first component, before the given ones, is the priority, an
    int64.
    """
    return make_queue("PriorityQueue", capacity, types, shapes or [], shared_name=shared_name, name=name)


def random_shuffle_queue(
    capacity: int,
    min_after_dequeue: int,
    types: Any,
    shapes: Any = None,
    *,
    seed: int | None = None,
    shared_name: str | None = None,
    name: str = "random_shuffle_queue",
) -> GraphQueue:
    """A queue that returns elements in random order; `min_after_dequeue` stay in it until it is closed."""
    seed1, seed2 = get_seed(seed)
    extra = {"min_after_dequeue": min_after_dequeue, "seed": seed1, "seed2": seed2}
    return make_queue("RandomShuffleQueue", capacity, types, shapes, shared_name=shared_name, name=name, **extra)
