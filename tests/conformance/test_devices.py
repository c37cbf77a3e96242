"""Conformance cases give the same when their nodes are scattered over several devices as on one.

Every node asks for a device that is drawn by its name; nodes that must be together go together, by soft placement.
Or costs are drawn, with which the simulation uses all devices.  On devices of the host they run one by one, and
compiled as one from the first run on.  Hypothesis draws cases, and where their nodes go.  Here a sample runs each
time, and with `--soak` all, a family a test.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aexec
from aexec import proto
from aexec.framework import dtypes
from aexec.framework.op_contract.op_registry import global_registry
from aexec.runtime.plans import compilation_policy
from tests.conformance import cases, runner
from tests.conformance.test_conformance import outcome
from tests.conformance.test_passes import check, check_family, complete_cases

# The devices that a session asks for, and where nodes are scattered to.
KINDS = {
    "host": ({"CPU": 4}, ("/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3")),
    "compiled": ({"CPU": 4}, ("/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3")),
    "simulated": ({"SIM": 3}, ("/cpu:0", "/device:SIM:0", "/device:SIM:1", "/device:SIM:2")),
}
EVERY = 97
# Cases that are not the same question any more, with the reason.
OTHER = {
    "extra_errors.create.colocate_conflict": "soft placement lets nodes go together that ask for different devices",
    "extra_errors.create.no_kernel": "the error lists the devices that there are",
    "variables_resource.sharing": "two handles of one name on two devices, where TensorFlow has two variables",
}


def scattered(data: bytes, seed: int, devices: Sequence[str]) -> aexec.Graph:
    """A graph whose nodes ask for devices at random, unless they ask for one themselves."""
    message = proto.GraphDef.FromString(data)
    for node in message.node:
        if not (node.device or _makes_state(node)):
            node.device = random.Random(f"{seed} {node.name}").choice(devices)
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


@pytest.fixture(
    params=[(k, how) for k in KINDS for how in (0, 1, "by cost")], ids=lambda p: f"{p[0]}-{p[1]}".replace(" ", "-")
)
def seed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Sessions of conformance cases have several devices, and nodes are scattered over them."""
    kind, how = request.param
    scatter(monkeypatch, kind, None if how == "by cost" else how)
    return list(KINDS).index(kind) * 3 + (2 if how == "by cost" else int(how))


def scatter(monkeypatch: pytest.MonkeyPatch, kind: str, seed: int | None) -> None:
    """Have sessions of conformance cases scatter nodes over devices of a kind, as drawn by a seed or by costs."""
    costs, by_cost = aexec.CostModel(copy_micros=0), seed is None
    if kind == "compiled":
        monkeypatch.setattr(compilation_policy, "COMPILE_AT", 1)
    count, devices = KINDS[kind]

    class Config(aexec.SessionConfig):
        def __post_init__(self) -> None:
            object.__setattr__(self, "device_count", count)
            object.__setattr__(self, "allow_soft_placement", True)
            object.__setattr__(self, "graph_passes", self.graph_passes if seed == 0 else ())
            object.__setattr__(self, "cost_model", costs if by_cost else None)
            object.__setattr__(self, "schedule_receives", seed != 0)

    class Scattered(aexec.Graph):
        @classmethod
        def from_bytes(cls, data: bytes) -> aexec.Graph:
            if seed is not None:
                return scattered(data, seed, devices)
            learn(costs, data)
            return super().from_bytes(data)

    monkeypatch.setattr(runner.aexec, "SessionConfig", Config)
    monkeypatch.setattr(runner.aexec, "Graph", Scattered)


def test_sample(seed: int) -> None:
    check(EVERY, seed, OTHER)


@pytest.mark.soak
@pytest.mark.parametrize("family", cases.families())
def test_all(seed: int, family: str) -> None:
    check_family(family, OTHER)


SPLIT = "models controlflow_v1 controlflow_v2 partial queues session staging variables_ref variables_resource".split()
CASES = [(family, name) for family, name in complete_cases() if family in SPLIT and name not in OTHER]
SPLITS = st.tuples(st.sampled_from(CASES), st.sampled_from([*KINDS]), st.integers(2, 2**30))


def check_split(split: tuple[tuple[str, str], str, int]) -> None:
    """A case gives what it gave on one device, with its nodes where a seed has them."""
    case, kind, seed = split
    with pytest.MonkeyPatch.context() as patch:
        scatter(patch, kind, seed)
        assert outcome(*case) is None


@settings(max_examples=15)
@given(SPLITS)
def test_case_that_is_split_anyhow(split: tuple[tuple[str, str], str, int]) -> None:
    check_split(split)


@pytest.mark.soak
@settings(max_examples=400, derandomize=False)
@given(SPLITS)
def test_many_cases_that_are_split_anyhow(split: tuple[tuple[str, str], str, int]) -> None:
    check_split(split)
