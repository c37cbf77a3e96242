"""Queues: the ops that make them, and the operations on them.

An operation that can be done at once returns its outputs.  One that must wait returns an attempt
(`aexec/queues/attempts.py`), which the executor waits for and cancels with the step.  Large copies run in a thread:
copies of arrays that may be written to elsewhere, and copies into a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Builder, Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.memory.memory import available_memory
from aexec.framework.shape import PartialTensorShape, shape_text
from aexec.framework.state.ref_cell import RefCell
from aexec.framework.state.resource_manager import (
    ContainerInfo,
    ResourceHandle,
    ResourceManager,
    handle_from_tensor,
    make_handle_tensor,
)
from aexec.framework.waiting.loop_budget import COPY_NS, CUT_NS, DEFAULT, JOIN_NS, MEASURE_NS, OBJECT_NS, current_budget
from aexec.kernels.common.allocation import allocator
from aexec.kernels.data_flow.keeping import copy_and_count, copy_shared, keeping_ns, may_keep
from aexec.queues.attempts import settled
from aexec.queues.batching import cut
from aexec.queues.joining import Joining
from aexec.queues.kinds import follow_queue_kinds, queue_class
from aexec.queues.queue_base import Element, QueueBase, QueueSpec, lookup_queue

# A size above that of any batch that the event loop has time to cut into rows.
_MANY = (int(DEFAULT.inline_ns / CUT_NS),)
# Strings of an element that are measured at once.
_MANY_STRINGS = int(DEFAULT.inline_ns / MEASURE_NS)
# The least memory of a row besides its data; below `_UNCHECKED_BYTES` in all, free memory is not looked up.
_ROW_BYTES = 150
_UNCHECKED_BYTES = 256 << 20


# Making queues


def _spec(c: OpKernelConstruction, kind: type[QueueBase]) -> QueueSpec:
    types, shapes = kind.with_leading(c.attr("component_types"), c.attr("shapes"))
    if not types:
        raise errors.InvalidArgumentError("A queue needs at least one component type")
    settings = {name: c.attr(name) for name in kind.settings}
    return QueueSpec(tuple(types), tuple(shapes), c.attr("capacity"), **settings)


def _make_queue(c: OpKernelConstruction) -> Callable[[OpKernelContext], ContainerInfo]:
    """A function that finds or makes the node's queue in the session's resources, and returns its name there."""
    kind = queue_class(c.op)
    if kind is None:
        raise errors.NotFoundError(f"No kind of queue '{c.op}' is registered any more")
    info = ContainerInfo.from_attrs(c.attrs, c.name)
    spec = _spec(c, kind)
    kind(info.name, spec)  # raises errors of the node's attrs before it runs
    checked: list[QueueBase] = []

    def find(context: OpKernelContext) -> ContainerInfo:
        queue = context.resources.lookup_or_create(info.container, info.name, QueueBase, lambda: kind(info.name, spec))
        if not checked or checked[0] is not queue:
            queue.check_same(c.op, spec)
            checked[:] = [queue]
        return info

    return find


def _queue_v2(c: OpKernelConstruction) -> Compute:
    find = _make_queue(c)
    handles: list[Any] = []
    c.need_context()

    def compute(context: OpKernelContext) -> Any:
        info = find(context)
        if not handles:
            handles.append(make_handle_tensor(ResourceHandle.of_type(QueueBase, info, c.device)))
        return handles[0]

    return compute


def _queue_v1(c: OpKernelConstruction) -> Compute:
    find = _make_queue(c)
    c.need_context()
    return lambda context: _old_handle(find(context))


def _old_handle(named: ContainerInfo | ResourceHandle) -> RefCell:
    """A handle of the first generation: a cell with the strings container and name."""
    names = np.array([named.container.encode(), named.name.encode()], object)
    return RefCell(dtypes.string, PartialTensorShape([2]), names)


def _register_kernels(kind: type[QueueBase]) -> None:
    """Register the kernels of the ops that make queues of a kind."""
    kernel(kind.kind, cost=0)(_queue_v1)
    kernel(f"{kind.kind}V2", cost=0)(_queue_v2)


follow_queue_kinds(_register_kernels)
kernel("FIFOQueueV2", device="DEFAULT", host_memory=("handle",), cost=0)(_queue_v2)


@kernel("FakeQueue", cost=0)
def fake_queue(c: OpKernelConstruction) -> Compute:
    return lambda handle: _old_handle(handle_from_tensor(handle, QueueBase))


# Finding queues


class _Finder:
    """Finds the queue of a handle; keeps the last one, since it is mostly the same.

    Args:
        check: called with each queue other than the last one.
    """

    __slots__ = ("_check", "_handle", "_queue", "_resources")

    def __init__(self, check: Callable[[QueueBase], None] = lambda _: None) -> None:
        self._check = check
        self._handle: Any = None
        self._resources: ResourceManager | None = None
        self._queue: QueueBase | None = None

    def __call__(self, context: OpKernelContext, handle: Any) -> QueueBase:
        queue = self._queue
        if queue is None or handle is not self._handle or context.resources is not self._resources or queue.dropped:
            queue = lookup_queue(context.resources, handle)
            self._check(queue)
            self._handle, self._resources, self._queue = handle, context.resources, queue
        return queue


def _check_timeout(c: OpKernelConstruction) -> None:
    if c.attr("timeout_ms") != -1:
        raise errors.InvalidArgumentError("Timeout not supported yet.")


# Putting


def _enqueue(many: bool) -> Builder:
    def build(c: OpKernelConstruction) -> Compute:
        _check_timeout(c)
        find = _Finder(lambda queue: c.match_signature((c.input_types[0], *queue.spec.types), ()))
        positions = range(1, len(c.input_types))
        texts = frozenset([position for position in positions if c.input_types[position].np.hasobject])
        put = QueueBase.enqueue_many if many else QueueBase.enqueue
        check = QueueBase.check_rows if many else QueueBase.check_element
        c.take_list()

        def compute(context: OpKernelContext, inputs: list[Any]) -> Any:
            queue = find(context, inputs[0])
            for position in positions:
                if not may_keep(inputs, position) or (many and inputs[position].shape[:1] > _MANY):
                    break
                if position in texts and inputs[position].size > _MANY_STRINGS:
                    break
            else:
                return put(queue, tuple(inputs[1:]))
            components = tuple(inputs[1:])
            getattr(queue, check.__name__)(components)
            rows = components[0].shape[0] if many else 1
            del components
            nanoseconds = max(keeping_ns(inputs, positions), CUT_NS * rows if many else 0.0)
            if not current_budget().allows(nanoseconds):
                return _copy_then_put(context, queue, inputs, positions, many)
            copy_shared(inputs, positions)
            return put(queue, tuple(inputs[1:]))

        return compute

    return build


def _check_memory(cut: int) -> None:
    """Rows may be many although they have no bytes: after cutting, each is an object."""
    if cut * _ROW_BYTES > _UNCHECKED_BYTES and cut * _ROW_BYTES > available_memory():
        raise errors.ResourceExhaustedError(f"OOM when cutting a batch into {cut} rows")


async def _copy_then_put(
    context: OpKernelContext, queue: QueueBase, inputs: list[Any], positions: Sequence[int], many: bool
) -> None:
    def prepare() -> list[Element]:
        rows = inputs[1].shape[0] if many else 0
        _check_memory(rows * (len(inputs) - 1))
        copy_and_count(inputs, positions, queue.kept, rows)
        return cut(inputs[1:]) if many else [tuple(inputs[1:])]

    await settled(queue.enqueue_all(await context.worker_pool.run(prepare), counted=True))


for _version, _devices in (("", ("CPU",)), ("V2", ("CPU", "DEFAULT"))):
    for _device in _devices:
        kernel(f"QueueEnqueue{_version}", device=_device, host_memory=("handle",) * (_device != "CPU"), cost=0)(
            _enqueue(many=False)
        )
    kernel(f"QueueEnqueueMany{_version}", cost=0)(_enqueue(many=True))


# Taking


@kernel("QueueDequeue", "QueueDequeueV2", cost=0)
@kernel("QueueDequeueV2", device="DEFAULT", host_memory=("handle",), cost=0)
def dequeue(c: OpKernelConstruction) -> Compute:
    _check_timeout(c)
    find = _Finder(lambda queue: c.match_signature(c.input_types, queue.spec.types))
    c.need_context()
    return lambda context, handle: find(context, handle).dequeue()


def _dequeue_many(up_to: bool) -> Builder:
    def build(c: OpKernelConstruction) -> Compute:
        _check_timeout(c)
        find = _Finder(lambda queue: c.match_signature(c.input_types, queue.spec.types))
        allocators = [allocator(c, output) for output in range(len(c.output_types))]
        c.need_context()

        def zeros(position: int, shape: Any) -> Any:
            return allocators[position](shape, c.xp.zeros)

        def join(queue: QueueBase, elements: list[Element]) -> Element:
            return queue.join(elements, zeros)

        def compute(context: OpKernelContext, handle: Any, n: Any) -> Any:
            queue = find(context, handle)
            if n.size != 1:
                raise errors.InvalidArgumentError(f"n must be a scalar, but has shape {shape_text(n.shape)}")
            return _begin_batch(context, queue, int(n.item()), up_to, lambda elements: join(queue, elements))

        return compute

    return build


def _begin_batch(
    context: OpKernelContext, queue: QueueBase, count: int, up_to: bool, join: Callable[[list[Element]], Element]
) -> Any:
    """A batch, or what to wait for: an attempt if joining is surely quick, else a `Joining`."""
    if _is_quick(queue, count):
        return queue.dequeue_many(count, up_to=up_to, finish=join)
    elements = queue.dequeue_many(count, up_to=up_to, finish=list)
    joining = Joining(queue, elements, join, context.worker_pool, context.loop)
    return joining.result() if joining.done() else joining


def _is_quick(queue: QueueBase, count: int) -> bool:
    nanoseconds = 0.0
    for dtype, shape in zip(queue.spec.types, queue.spec.shapes, strict=False):
        elements = shape.num_elements
        if elements is None:
            return False
        nanoseconds += JOIN_NS + elements * (OBJECT_NS if dtype.np.hasobject else COPY_NS * dtype.np.itemsize)
    return current_budget().allows(count * nanoseconds)


kernel("QueueDequeueMany", "QueueDequeueManyV2", cost=0)(_dequeue_many(up_to=False))
kernel("QueueDequeueUpTo", "QueueDequeueUpToV2", cost=0)(_dequeue_many(up_to=True))


# The rest


@kernel("QueueClose", "QueueCloseV2", cost=0)
@kernel("QueueCloseV2", device="DEFAULT", host_memory=("handle",), cost=0)
def close(c: OpKernelConstruction) -> Compute:
    cancel_pending_enqueues = c.attr("cancel_pending_enqueues")
    find = _Finder()
    c.need_context()
    return lambda context, handle: find(context, handle).request_close(cancel_pending_enqueues=cancel_pending_enqueues)


@kernel("QueueSize", "QueueSizeV2", cost=0)
@kernel("QueueSizeV2", device="DEFAULT", host_memory=("handle", "size"), cost=0)
def size(c: OpKernelConstruction) -> Compute:
    find = _Finder()
    c.need_context()
    return lambda context, handle: np.int32(len(find(context, handle)))


@kernel("QueueIsClosed", "QueueIsClosedV2", cost=0)
@kernel("QueueIsClosedV2", device="DEFAULT", host_memory=("handle",), cost=0)
def is_closed(c: OpKernelConstruction) -> Compute:
    find = _Finder()
    c.need_context()
    return lambda context, handle: np.bool_(find(context, handle).closed)
