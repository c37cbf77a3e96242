"""When nodes start, how long they can be put off, and which receives are held back."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.graph.partitioning.schedule import PREFETCH, SLOTS, Costs, Trigger, slacks, start_times, triggers


class Placed:
    """Nodes by name: each added with its device, time and inputs; `^name` is waited for, and gives no value."""

    def __init__(self, copy_time: float = 10.0) -> None:
        self.nodes: dict[int, Any] = {}
        self.ids: dict[str, int] = {}
        self.times: dict[int, float] = {}
        self.devices: dict[int, str] = {}
        self.copy_time = copy_time

    def __call__(self, name: str, device: str, time: float, *inputs: str, op: str = "Op") -> None:
        i = self.ids.setdefault(name, len(self.ids))
        self.times[i], self.devices[i] = time, device
        # Values that come the way back of a loop are named before they are there.
        data = tuple((self.ids.setdefault(x, len(self.ids)), 0) for x in inputs if x[0] != "^")
        controls = tuple(self.ids[x[1:]] for x in inputs if x[0] == "^")
        self.nodes[i] = SimpleNamespace(id=i, name=name, op=op, in_edges=data, control_edges=controls)

    @property
    def costs(self) -> Costs:
        return Costs(
            lambda node: self.devices[node.id], lambda node: self.times[node.id], lambda endpoint: self.copy_time
        )

    def named(self, values: Mapping[int, float]) -> dict[str, float]:
        return {self.nodes[i].name: value for i, value in values.items()}


class TestSlacks:
    def test_critical_path_has_none(self) -> None:
        g = Placed()
        g("a", "d", 5)
        g("long", "d", 20, "a")
        g("short", "d", 3, "a")
        g("b", "d", 2, "long", "short")
        g("aside", "d", 1)
        assert g.named(slacks(g.nodes, g.costs)) == {"a": 0, "long": 0, "short": 17, "b": 0, "aside": 26}

    def test_copies_take_time_and_what_is_only_waited_for_does_not(self) -> None:
        g = Placed(copy_time=10)
        g("a", "d", 5)
        g("there", "e", 1, "a")
        g("here", "d", 4, "a")
        g("waits", "e", 1, "^a")
        g("b", "d", 2, "there", "here", "^waits")
        # By way of `there` it is 5, 10, 1, 10, 2.
        assert g.named(slacks(g.nodes, g.costs)) == {"a": 0, "there": 0, "here": 17, "waits": 20, "b": 0}

    def test_merge_goes_on_with_its_first_value(self) -> None:
        g = Placed()
        g("quick", "d", 2)
        g("slow", "d", 50)
        g("merge", "d", 1, "quick", "slow", op="Merge")
        g("after", "d", 60, "merge")
        assert g.named(slacks(g.nodes, g.costs)) == {"quick": 0, "slow": 0, "merge": 0, "after": 0}

    def test_way_back_of_a_loop_is_left_out(self) -> None:
        g = Placed()
        g("enter", "d", 1, op="Enter")
        g("merge", "d", 1, "enter", "next", op="Merge")
        g("switch", "d", 1, "merge", op="Switch")
        g("body", "e", 7, "switch")
        g("next", "e", 1, "body", op="NextIteration")
        g("exit", "d", 1, "switch", op="Exit")
        assert g.named(slacks(g.nodes, g.costs)) == {
            "enter": 0,
            "merge": 0,
            "switch": 0,
            "body": 0,
            "next": 0,
            "exit": 17,
        }

    def test_nothing(self) -> None:
        assert slacks({}, Placed().costs) == start_times({}, Placed().costs) == {}


class TestStartTimes:
    def test_urgent_nodes_start_first_two_at_a_time(self) -> None:
        g = Placed()
        for i, time in enumerate([1, 2, 8, 4]):
            g(f"n{i}", "d", time)
        # The longest have no slack, or the least.
        assert g.named(start_times(g.nodes, g.costs)) == {"n2": 0, "n3": 0, "n1": 4, "n0": 6}

    def test_devices_run_beside_each_other_and_values_travel(self) -> None:
        g = Placed(copy_time=10)
        g("a", "d", 5)
        g("b", "e", 7)
        g("c", "d", 1, "a", "b")
        g("d", "e", 1, "^a")
        assert g.named(start_times(g.nodes, g.costs)) == {"a": 0, "b": 0, "c": 17, "d": 5}

    def test_inputs_from_elsewhere_are_there(self) -> None:
        g = Placed()
        g("fed", "d", 9)
        g("a", "d", 1, "fed")
        del g.nodes[g.ids["fed"]]
        assert g.named(start_times(g.nodes, g.costs)) == {"a": 0}


def _receives() -> tuple[Placed, dict[int, float]]:
    """A chain on one device, to which values come from elsewhere; all but the receives are of the whole graph."""
    g = Placed()
    starts = {}
    for i in range(12):
        g(f"recv{i}", "d", 0, op="_Recv")
        g(f"n{i}", "d", 100, *([f"n{i - 1}"] if i else []), f"recv{i}")
        starts[g.ids[f"n{i}"]] = 100.0 * i
    return g, starts


class TestTriggers:
    def test_receives_begin_six_epochs_before_they_are_needed(self) -> None:
        g, starts = _receives()
        receives = {i for name, i in g.ids.items() if name.startswith("recv")}
        # The last node starts at 1100: an epoch has 12 microseconds, and `n1` is of the 9th.
        found = {
            g.nodes[t.after].name: [g.nodes[i].name for i in t.receives] for t in triggers(g.nodes, starts, receives)
        }
        assert PREFETCH * 12 < 100
        assert found == {f"n{i - 1}": [f"recv{i}"] for i in range(1, 12)}

    def test_first_user_of_a_receive_decides(self) -> None:
        g, starts = _receives()
        g("early", "d", 1, "recv9")
        starts[g.ids["early"]] = 350.0
        (trigger,) = triggers(g.nodes, starts, {g.ids["recv9"]})
        assert g.nodes[trigger.after].name == "n2"

    def test_control_successor_counts_as_a_user_of_a_receive(self) -> None:
        g, starts = _receives()
        g("recv", "d", 0, op="_Recv")
        g("done", "d", 0, "recv")
        g("late", "d", 1, "^done")
        starts[g.ids["late"]] = 950.0
        assert triggers(g.nodes, starts, {g.ids["recv"]}) == [Trigger(g.ids["n8"], (g.ids["recv"],))]

    def test_loops_are_left_alone(self) -> None:
        g, starts = _receives()
        inside = {i for name, i in g.ids.items() if name not in ("recv11", "n0", "n1", "n2", "n10", "n11")}
        assert triggers(g.nodes, starts, {g.ids["recv11"], g.ids["recv5"]}, inside) == [
            Trigger(g.ids["n10"], (g.ids["recv11"],))
        ]

    def test_first_receives_are_not_held_back(self) -> None:
        g, starts = _receives()
        assert triggers(g.nodes, starts, {g.ids["recv0"]}) == []
        assert triggers({}, {}, ()) == []


@st.composite
def placed_graphs(draw: st.DrawFn) -> Placed:
    """Nodes on three devices with edges to earlier ones, some of them Merges."""
    g = Placed(copy_time=draw(st.sampled_from([0.0, 3.0, 10.0])))
    for i in range(draw(st.integers(1, 25))):
        inputs = draw(st.lists(st.integers(0, i - 1), max_size=3)) if i else []
        g(
            f"n{i}",
            draw(st.sampled_from("abc")),
            float(draw(st.integers(0, 40))),
            *(f"{draw(st.sampled_from(['', '', '^']))}n{j}" for j in inputs),
            op=draw(st.sampled_from(["Op", "Op", "Op", "Merge"])),
        )
    return g


def edges_of(g: Placed) -> list[tuple[int, int, float]]:
    """(producer, consumer, how long the value travels)."""
    return [
        (source, i, g.copy_time if is_data and g.devices[source] != g.devices[i] else 0.0)
        for i, node in g.nodes.items()
        for is_data, sources in ((True, [s for s, _ in node.in_edges]), (False, node.control_edges))
        for source in sources
    ]


@given(placed_graphs())
def test_schedule_keeps_all_dependencies_and_slots(g: Placed) -> None:
    starts = start_times(g.nodes, g.costs)
    assert starts.keys() == g.nodes.keys()
    for source, i, copy in edges_of(g):
        assert starts[i] >= starts[source] + g.times[source] + copy
    for i, start in starts.items():
        others = [j for j in starts if g.devices[j] == g.devices[i] and starts[j] <= start < starts[j] + g.times[j]]
        assert len(others) <= SLOTS


@given(placed_graphs())
def test_slack_is_what_a_node_can_be_put_off(g: Placed) -> None:
    """Without Merges: one that is put off by its slack leaves the length of the step, by more it does not."""
    for node in g.nodes.values():
        node.op = "Op"
    found = slacks(g.nodes, g.costs)
    edges = edges_of(g)

    def length(put_off: Mapping[int, float]) -> float:
        ends: dict[int, float] = {}
        for i in g.nodes:
            arrivals = [ends[source] + copy for source, consumer, copy in edges if consumer == i]
            ends[i] = max(arrivals, default=0.0) + put_off.get(i, 0.0) + g.times[i]
        return max(ends.values())

    step = length({})
    for i, slack in found.items():
        assert length({i: slack}) == pytest.approx(step)
        assert length({i: slack + 1}) > step + 0.5


@given(placed_graphs(), st.integers(1, 30))
def test_triggers_make_no_cycle(g: Placed, scale: int) -> None:
    """The graph as it would be split, with the triggers of all partitions, has no circle."""
    for i in g.times:
        g.times[i] *= scale  # so that there is something to hold back
    starts = start_times(g.nodes, g.costs)
    parts: dict[str, dict[int, Any]] = {device: {} for device in set(g.devices.values())}
    waits: dict[int, set[int]] = {}
    received: dict[tuple[int, str], int] = {}
    for i, node in g.nodes.items():
        device = g.devices[i]

        def at(source: int, device: str = device) -> int:
            if g.devices[source] == device:
                return source
            number = received.setdefault((source, device), 1000 + len(received))
            parts[device][number] = SimpleNamespace(id=number, op="_Recv", in_edges=(), control_edges=())
            waits[number] = {source}
            return number

        data = tuple((at(source), 0) for source, _ in node.in_edges)
        controls = tuple(at(source) for source in node.control_edges)
        parts[device][i] = SimpleNamespace(id=i, op=node.op, in_edges=data, control_edges=controls)
        waits[i] = {*(source for source, _ in data), *controls}
    for part in parts.values():
        for trigger in triggers(part, starts, {i for i in part if i >= 1000}):
            assert trigger.after in part
            for receive in trigger.receives:
                waits[receive].add(trigger.after)
    while waits:
        ready = [i for i, needed in waits.items() if not needed & waits.keys()]
        assert ready, "a circle"
        for i in ready:
            del waits[i]
