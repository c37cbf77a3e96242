"""Which devices the nodes of a replica request; expected are TensorFlow's requests for the same programs."""

from __future__ import annotations

from typing import Any

import pytest

import aexec
from aexec import errors
from aexec.training import GreedyLoadBalancingStrategy, byte_size_load_fn, replica_device_setter

COMMON = {"a/Initializer/random_uniform/shape": "", "f": "/job:ps/task:7", "g": "/job:con", "h": "", "z": "/job:other"}
CASES: list[tuple[dict[str, Any], dict[str, str]]] = [
    (
        {"ps_tasks": 3},
        {
            "a": "/job:ps/task:0",
            "a/Assign": "/job:ps/task:0",
            "a/Read/ReadVariableOp": "/job:ps/task:0",
            "AssignVariableOp": "/job:worker",
            "b": "/job:ps/task:1",
            "b/Assign": "/job:ps/task:1",
            "c": "/job:ps/task:2",
            "d": "/job:ps/task:0/device:CPU:1",
            "d/Assign": "/job:ps/task:0/device:CPU:1",
            "e": "/job:other",
            "x": "/job:worker",
            "y": "/job:worker/device:CPU:1",
        },
    ),
    (
        {"ps_tasks": 2, "worker_device": "/job:worker/task:3", "merge_devices": False},
        {
            "a": "/job:ps/task:0",
            "AssignVariableOp": "/job:worker/task:3",
            "b": "/job:ps/task:1",
            "c": "/job:ps/task:0",
            "d": "/device:CPU:1",
            "e": "/job:other",
            "x": "/job:worker/task:3",
            "y": "/device:CPU:1",
        },
    ),
    (
        {"cluster": {"ps": ["a:1", "b:1"], "worker": 1}, "ps_device": "/job:ps/device:CPU:0", "worker_device": ""},
        {
            "a": "/job:ps/task:0/device:CPU:0",
            "AssignVariableOp": "",
            "b": "/job:ps/task:1/device:CPU:0",
            "c": "/job:ps/task:0/device:CPU:0",
            "d": "/job:ps/task:1/device:CPU:1",
            "e": "/job:other/device:CPU:0",
            "f": "/job:ps/task:7/device:CPU:0",
            "x": "",
            "y": "/device:CPU:1",
        },
    ),
]


@pytest.mark.parametrize(("arguments", "expected"), CASES)
def test_requests_are_tensorflows(arguments: dict[str, Any], expected: dict[str, str]) -> None:
    with aexec.Graph() as graph, aexec.device(replica_device_setter(**arguments)):
        a = aexec.get_variable("a", [10, 10], use_resource=True)
        aexec.get_variable("b", [2], use_resource=False)
        aexec.get_variable("c", [3, 1], use_resource=True)
        aexec.constant(1.0, name="x")
        with aexec.device("/device:CPU:1"):
            aexec.get_variable("d", [4], use_resource=True)
            aexec.constant(1.0, name="y")
        with aexec.device("/job:other"):
            aexec.get_variable("e", [4], use_resource=True)
            aexec.constant(1.0, name="z")
        with aexec.device("/job:ps/task:7"):
            aexec.get_variable("f", [4], use_resource=True)
        with aexec.device(lambda node: f"/job:{node.op.lower()[:3]}"):
            aexec.constant(1.0, name="g")
        with aexec.device(None):
            aexec.constant(1.0, name="h")
        a.assign(a + 1)
    requests = {node.name: node.device for node in graph.nodes}
    wanted = {**COMMON, **expected}
    assert {name: requests[name] for name in wanted} == wanted


def test_setter_is_none_without_parameter_servers() -> None:
    assert replica_device_setter() is None
    assert replica_device_setter(cluster={"worker": 2}) is None


def test_chosen_ops_go_to_parameter_servers() -> None:
    setter = replica_device_setter(1, ps_ops=["Const"], worker_device="")
    with aexec.Graph() as graph, aexec.device(setter):
        aexec.constant(1.0, name="x")
        aexec.get_variable("v", [], use_resource=True)
    assert graph.node("x").device == "/job:ps/task:0" and graph.node("v").device == ""


def test_variables_go_where_the_least_bytes_are() -> None:
    strategy = GreedyLoadBalancingStrategy(2, byte_size_load_fn)
    sizes = [8, 2, 2, 2, 4]
    with aexec.Graph() as graph, aexec.device(replica_device_setter(2, ps_strategy=strategy)):
        for number, size in enumerate(sizes):
            aexec.get_variable(f"v{number}", [size], "float32" if number else "float16", use_resource=number % 2 == 0)
    tasks = [graph.node(f"v{number}").device.rpartition(":")[2] for number in range(len(sizes))]
    assert tasks == ["0", "1", "1", "0", "1"]
    with graph, pytest.raises(errors.InvalidArgumentError, match="known of a full shape only"):
        byte_size_load_fn(aexec.ops.var_handle_op("float32", [None]).node)
