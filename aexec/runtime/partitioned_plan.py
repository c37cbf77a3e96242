"""The plan of a request whose nodes are on several devices: one ordinary plan for each device.

Feeds enter and fetches leave on the host's.  Next to read: `aexec/graph/partition.py` for how the graph is split,
and `partitioned_execution.py` for how the plans run beside one another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Any

from aexec.framework.device import Device
from aexec.framework.late_dataclass import dataclass
from aexec.framework.loop_budget import LoopBudget
from aexec.framework.op_kernel import BuiltKernel
from aexec.graph.node import Node
from aexec.graph.partition import Partition
from aexec.runtime.device_constants import DeviceConstant
from aexec.runtime.plan import Compilation, Plan, PlanKey, build_plan

__all__ = ["PartitionedPlan", "build_partitioned_plan"]


@dataclass(frozen=True, slots=True, eq=False)
class PartitionedPlan:
    """Plans that run as one.

    Attributes:
        partitions, plans: per device what it runs.
        host: position among them of the one that is fed and fetched from.
        compilation: says that it is not compiled.
    """

    partitions: tuple[Partition, ...]
    plans: tuple[Plan, ...]
    host: int
    compilation: Compilation = field(default_factory=Compilation)

    @property
    def num_nodes(self) -> int:
        return sum(plan.num_nodes for plan in self.plans)


def build_partitioned_plan(
    partitions: Sequence[Partition],
    kernel_of: Callable[[Partition, Node], BuiltKernel],
    budget: LoopBudget,
    on_device: Callable[[Device, Node, int, Any, str], DeviceConstant | None],
) -> PartitionedPlan:
    """Lay out partitions for execution.

    Args:
        kernel_of: builds (or remembers) the kernel of a node of a partition.
        on_device: a constant as the input of a node of a device that is not the host; see `plan.OnDevice`.

    Raises:
        InvalidArgumentError, NotFoundError: as `build_plan`.
    """
    plans = []
    for partition in partitions:
        signature = PlanKey(partition.feeds, partition.fetches, tuple(partition.targets))
        constant = None if partition.device.is_host else partial(on_device, partition.device)
        plans.append(build_plan(partition, signature, partial(kernel_of, partition), budget, constant))
    host = next((i for i, partition in enumerate(partitions) if partition.feeds or partition.fetches), 0)
    built = PartitionedPlan(tuple(partitions), tuple(plans), host)
    built.compilation.refuse("its nodes are on several devices")
    return built
