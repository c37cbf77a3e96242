"""`replica_device_setter`: places variables of a replica on parameter servers, and its other nodes on the worker.

The result is passed to `aexec.device`.  The parameter servers get variables in turn, or as a strategy says:
`GreedyLoadBalancingStrategy` gives each to the task with the smallest load so far. The rules are those of TensorFlow's
tf.compat.v1.train.replica_device_setter and tf.contrib.training. docs/distributed.md shows replicas in one graph, and
in one each.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from aexec.framework import errors
from aexec.framework.device_contract.device_name import DeviceName
from aexec.graph.nodes.node import Node
from aexec.graph.scopes import DeviceFunction

__all__ = ["GreedyLoadBalancingStrategy", "byte_size_load_fn", "replica_device_setter"]

# Ops that keep trained values.
_PS_OPS = frozenset(
    {
        "AutoReloadVariable",
        "BoostedTreesEnsembleResourceHandleOp",
        "BoostedTreesQuantileStreamResourceHandleOp",
        "DecisionTreeResource",
        "MutableDenseHashTable",
        "MutableDenseHashTableV2",
        "MutableHashTable",
        "MutableHashTableOfTensors",
        "MutableHashTableOfTensorsV2",
        "MutableHashTableV2",
        "ResourceConditionalAccumulator",
        "VarHandleOp",
        "Variable",
        "VariableV2",
    }
)

# A node that is to be on a parameter server → the number of its task.
PlacementStrategy = Callable[[Node], int]


def replica_device_setter(
    ps_tasks: int = 0,
    ps_device: str = "/job:ps",
    worker_device: str = "/job:worker",
    merge_devices: bool = True,
    cluster: Mapping[str, int | Sequence[str]] | None = None,
    ps_ops: Collection[str] | None = None,
    ps_strategy: PlacementStrategy | None = None,
) -> DeviceFunction | None:
    """A function for `aexec.device`: variables request a task of `ps_device`, all other nodes `worker_device`.

    Args:
        ps_tasks: number of parameter servers; overridden by `cluster`.
        ps_device: the device that variables request, without the task; if an inner block requests another job, that job
            stays, and no task is chosen.
        worker_device: the device that others request, "" for none.
        merge_devices: complete what inner blocks request; else leave it as it is.
        cluster: jobs, as of `SessionConfig`.
        ps_ops: types of the ops that count as variables, if not TensorFlow's list.
        ps_strategy: chooses the task; by default in turn.

    Returns:
        the function; None if there are no parameter servers.

    Raises:
        InvalidArgumentError: an invalid device name.
    """
    ps, worker = DeviceName.parse(ps_device), DeviceName.parse(worker_device)
    if cluster is not None:
        tasks = cluster.get(ps.job or "", 0)
        ps_tasks = tasks if isinstance(tasks, int) else len(tasks)
    if not ps_tasks:
        return None
    on_ps = _PS_OPS if ps_ops is None else frozenset(ps_ops)
    turns = itertools.cycle(range(ps_tasks))
    choose = ps_strategy or (lambda node: next(turns))

    def requested(node: Node) -> str:
        if node.device and not merge_devices:
            return node.device
        inner = DeviceName.parse(node.device)
        if not ps_device or node.op not in on_ps:
            return str(worker.specialised_to(inner))
        chosen = ps
        if ps.job is not None and inner.job in (None, ps.job):
            chosen = ps.specialised_to(DeviceName(task=choose(node)))
        return str(chosen.specialised_to(inner))

    return requested


class GreedyLoadBalancingStrategy:
    """Chooses the parameter server with the smallest load so far, the first of several.

    Args:
        num_tasks: number of parameter servers.
        load_fn: the load of a node, such as `byte_size_load_fn`.
    """

    def __init__(self, num_tasks: int, load_fn: Callable[[Node], float]) -> None:
        self._loads = [0.0] * num_tasks
        self._load_of = load_fn

    def __call__(self, node: Node) -> int:
        """The number of the task for a node."""
        task = self._loads.index(min(self._loads))
        self._loads[task] += self._load_of(node)
        return task


def byte_size_load_fn(node: Node) -> int:
    """The bytes of a variable's elements.

    Raises:
        InvalidArgumentError: its shape is not fully known.
    """
    shape: Any = node.attrs.get("shape")
    if shape is None or shape.num_elements is None:
        raise errors.InvalidValueError(
            f"{node.op} {node.name} has shape {shape}: its bytes are known of a full shape only", node=node.name
        )
    dtype = node.attrs["dtype"]
    return int(shape.num_elements) * int(dtype.size)
