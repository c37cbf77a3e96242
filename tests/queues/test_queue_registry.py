"""A kind of queue that is plugged in is one wherever queues are looked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from aexec_server.sessions.model_changes import what_changes_model
from aexec_server.sessions.op_rules import OpUse

import aexec
from aexec import errors
from aexec.client import data_flow
from aexec.framework import dtypes
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.op_contract import op_registry
from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape import PartialTensorShape
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.queues.kinds import queue_class, queue_kinds
from aexec.queues.kinds.fifo_queue import FIFOQueue
from aexec.queues.queue_base import QueueBase
from aexec.queues.queue_registry import register_queue_kind, unregister_queue_kind

_ATTRS = (
    "component_types: list(type) >= 1",
    "shapes: list(shape) >= 0 = []",
    "capacity: int = -1",
    "container: string = ''",
    "shared_name: string = ''",
    "min_after_dequeue: int = 0",
)


class NumberedQueue(FIFOQueue):
    """Has a number in front, and gives what came last first."""

    kind = "NumberedQueue"
    leading = ((dtypes.int64, PartialTensorShape([])),)
    settings = ("min_after_dequeue",)

    def __init__(self, name: str, spec: Any) -> None:
        super().__init__(name, spec)
        self._take = self._elements.pop


@pytest.fixture
def numbered() -> Iterator[type[QueueBase]]:
    """The kind, while it is registered."""
    register_op("NumberedQueue() -> handle: Ref(string)", *_ATTRS, stateful=True, shape_fn=common.old_handle)
    register_op("NumberedQueueV2() -> handle: resource", *_ATTRS, shape_fn=common.scalar)
    yield register_queue_kind(NumberedQueue)
    unregister_queue_kind("NumberedQueue")
    for op in ("NumberedQueue", "NumberedQueueV2"):
        op_registry.global_registry.unregister(op)
        for kernel in kernel_registry.global_registry.kernels_of(op):
            kernel_registry.global_registry.unregister(kernel)


def make(**settings: Any) -> data_flow.GraphQueue:
    return data_flow.make_queue("NumberedQueue", 10, ["float32"], [[]], name="q", **settings)


async def test_registered_kind_is_made_by_its_ops(numbered: type[QueueBase]) -> None:
    with aexec.Graph() as graph:
        queue = make(min_after_dequeue=3)
        queue.enqueue([1, 2.5], name="put")
        number, value = queue.dequeue()
    async with aexec.Session(graph) as session:
        await session.run([], {}, ["put"])
        await session.queue("q").put((np.int64(2), np.float32(3.5)))
        assert session.queue("q").statistics().kind == "NumberedQueue"
        assert [await session.run([number, value]) for _ in range(2)] == [[2, 3.5], [1, 2.5]]


async def test_registered_kind_is_shared_only_with_its_like(numbered: type[QueueBase]) -> None:
    with aexec.Graph() as graph:
        nodes = [make(shared_name="s", min_after_dequeue=minimum).handle.node.name for minimum in (0, 0, 1)]
        nodes.append(data_flow.fifo_queue(10, ["float32"], [[]], shared_name="s").handle.node.name)
    async with aexec.Session(graph) as session:
        await session.run([], {}, nodes[:2])
        with pytest.raises(errors.InvalidArgumentError, match="has min_after_dequeue 0 but requested"):
            await session.run([], {}, [nodes[2]])
        with pytest.raises(errors.InvalidArgumentError, match="Expected NumberedQueue, found FIFOQueueV2"):
            await session.run([], {}, [nodes[3]])


def test_registered_kind_changes_no_model(numbered: type[QueueBase]) -> None:
    assert what_changes_model(OpUse("q", "NumberedQueue", lambda _: b"")) is None


def test_kind_is_registered_once(numbered: type[QueueBase]) -> None:
    assert queue_kinds()[-1] == "NumberedQueue" and queue_class("NumberedQueueV2") is numbered
    with pytest.raises(errors.AlreadyExistsError, match="kind of queue 'NumberedQueue' is registered already"):
        register_queue_kind(NumberedQueue)


def test_unknown_kind_is_refused() -> None:
    with aexec.Graph(), pytest.raises(errors.NotFoundError, match="'LastQueue' is registered; there are FIFOQueue, "):
        data_flow.make_queue("LastQueue", 10, ["float32"])
