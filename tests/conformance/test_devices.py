"""Conformance cases give the same when their nodes are scattered over several devices as on one.

Every node asks for a device that is drawn by its name; nodes that must be together go together, by soft placement.
Or costs are drawn, with which the simulation uses all devices. Here a sample runs each time, and all with `--soak`.
"""

from __future__ import annotations

import random

import pytest

import aexec
from aexec import proto
from aexec.framework import dtypes
from aexec.framework.op_registry import global_registry
from tests.conformance import runner
from tests.conformance.test_conformance import outcome
from tests.conformance.test_passes import complete_cases

NUM_DEVICES = 4
EVERY = 9
# Cases that are not the same question any more, with the reason.
OTHER = {
    "extra_errors.create.colocate_conflict": "soft placement lets nodes go together that ask for different devices",
}


def scattered(data: bytes, seed: int) -> aexec.Graph:
    """A graph whose nodes ask for devices at random, unless they ask for one themselves."""
    message = proto.GraphDef.FromString(data)
    for node in message.node:
        if not (node.device or _makes_state(node)):
            node.device = f"/device:CPU:{random.Random(f'{seed} {node.name}').randrange(NUM_DEVICES)}"
    return aexec.Graph.from_graph_def(message)


def _makes_state(node: proto.NodeDef) -> bool:
    """A variable or resource: where it asks to be is binding; of those that are used together no two may disagree."""
    if not global_registry.has(node.op):
        return False
    outputs = global_registry.lookup(node.op).op_def.outputs
    return any(arg.is_ref or arg.type is dtypes.resource for arg in outputs)


def learn(costs: aexec.CostModel, data: bytes) -> None:
    """Costs of each node of a graph, so many that it is worth another device."""
    measured = proto.CostGraphDef()
    for node in proto.GraphDef.FromString(data).node:
        measured.node.add(name=node.name, compute_time=random.Random(node.name).randrange(1, 100))
    costs.add(measured)


@pytest.fixture(params=[0, 1, "by cost"])
def seed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Sessions of conformance cases have several devices, and nodes are scattered over them."""
    costs = aexec.CostModel(copy_micros=0)
    by_cost = request.param == "by cost"

    class Config(aexec.SessionConfig):
        def __post_init__(self) -> None:
            object.__setattr__(self, "device_count", {"CPU": NUM_DEVICES})
            object.__setattr__(self, "allow_soft_placement", True)
            object.__setattr__(self, "graph_passes", () if request.param else self.graph_passes)
            object.__setattr__(self, "cost_model", costs if by_cost else None)
            object.__setattr__(self, "schedule_receives", bool(request.param))

    class Scattered(aexec.Graph):
        @classmethod
        def from_bytes(cls, data: bytes) -> aexec.Graph:
            if not by_cost:
                return scattered(data, request.param)
            learn(costs, data)
            return super().from_bytes(data)

    monkeypatch.setattr(runner.aexec, "SessionConfig", Config)
    monkeypatch.setattr(runner.aexec, "Graph", Scattered)
    return 2 if by_cost else request.param


def check(every: int, offset: int = 0) -> None:
    failures = {
        name: why
        for family, name in list(complete_cases())[offset::every]
        if name not in OTHER and (why := outcome(family, name)) is not None
    }
    assert not failures, "\n".join(f"{name}: {why}" for name, why in failures.items())


def test_a_sample(seed: int) -> None:
    check(EVERY, seed)


@pytest.mark.soak
def test_all(seed: int) -> None:
    check(1)
