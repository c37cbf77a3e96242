"""Functions whose bodies run on several devices: results, copies, state, errors, cancellation, traces."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aexec
from aexec import errors, proto
from aexec.devices.simulated_device import SimulatedDevice, simulated_devices
from aexec.framework import dtypes
from aexec.framework.device_contract.rendezvous import Rendezvous
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.state.resource_variable import VariableLookup
from tests.support import gates
from tests.support.programs.functions import calls, function_def
from tests.support.programs.graphs import GraphBuilder

pytestmark = [pytest.mark.both_executors, pytest.mark.usefixtures("made_rendezvous")]

F, I, BOOL, R = dtypes.float32, dtypes.int32, dtypes.bool_, dtypes.resource  # noqa: E741
SIM = "/device:SIM:0"

register_op("TestTakesRows(v: resource, i: int32) -> y: float")


@kernel("TestTakesRows", cost=0)
def _takes_rows(c: Any) -> Any:
    lookup = VariableLookup()
    c.need_context()
    return lambda context, handle, rows: lookup(context.resources, handle).value[rows]


OTHER = "/device:SIM:1"


def on(device: str, function: proto.FunctionDef, **nodes: str) -> proto.FunctionDef:
    """A function whose nodes ask for a device, some for others."""
    for node in function.node_def:
        node.device = nodes.get(node.name, device)
    return function


def floats(name: str, value: float) -> tuple[str, str, list[str], dict[str, Any]]:
    return (name, "Const", [], {"dtype": F, "value": np.float32(value)})


def halve(name: str = "Halve") -> proto.FunctionDef:
    body = [floats("half", 0.5), ("n", "Mul", ["x", "half:output:0"], {"T": F})]
    return function_def(f"{name}(x: float) -> y: float", body=body, ret={"y": "n:z:0"})


def above(limit: float, name: str = "Above") -> proto.FunctionDef:
    body = [floats("limit", limit), ("n", "Greater", ["x", "limit:output:0"], {"T": F})]
    return function_def(f"{name}(x: float) -> y: bool", body=body, ret={"y": "n:z:0"})


def graph(*functions: proto.FunctionDef) -> GraphBuilder:
    g = GraphBuilder()
    g.graph_def.library.function.extend(functions)
    g.placeholder("x", F, [])
    return g


def call(g: GraphBuilder, name: str, to: str, *inputs: str, device: str = "", tin: Any = (F,), tout: Any = (F,)) -> str:
    attrs = {"Tin": list(tin), "Tout": list(tout), "f": calls(to)}
    return g(name, "StatefulPartitionedCall", *inputs, device=device, **attrs)


def session(g: GraphBuilder, **config: Any) -> aexec.Session:
    counts = {"CPU": 2, "SIM": 2}
    return aexec.Session(g.graph(), config=aexec.SessionConfig(device_count=counts, graph_passes=(), **config))


@dataclass
class Copies:
    """How often values went into a device, out of it, and to another one."""

    into: list[str] = field(default_factory=list)
    out: list[str] = field(default_factory=list)
    across: list[str] = field(default_factory=list)

    def counts(self) -> tuple[int, int, int]:
        """Return the counts and reset them."""
        found = len(self.into), len(self.out), len(self.across)
        for each in (self.into, self.out, self.across):
            each.clear()
        return found


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Copies:
    made = Copies()
    for method, noted in {"copy_in": made.into, "copy_out": made.out, "copy_across": made.across}.items():
        original = getattr(SimulatedDevice, method)

        def copy(self: Any, *args: Any, node: str, _original: Any = original, _noted: list[str] = noted) -> Any:
            _noted.append(node)
            return _original(self, *args, node=node)

        monkeypatch.setattr(SimulatedDevice, method, copy)
    return made


class TestWhatIsCopied:
    @pytest.mark.parametrize("device", ["", SIM])  # the body's nodes ask for it, or go where their call is
    async def test_nodes_of_one_device_copy_nothing(self, device: str, copies: Copies) -> None:
        g = graph(on(device, halve()))
        g("before", "Neg", "x", device=SIM, T=F)
        call(g, "c", "Halve", "before", device=SIM)
        g("after", "Neg", "c", device=SIM, T=F)
        async with session(g) as opened:
            assert await opened.run("after:0", {"x:0": 4.0}) == 2
            copies.counts()
            assert await opened.run("after:0", {"x:0": 4.0}) == 2
            assert copies.counts() == (1, 1, 0)  # what is fed, and what is fetched

    @pytest.mark.parametrize("device", ["", SIM])  # of the loop, which leaves values where they are either way
    @pytest.mark.parametrize("op", ["While", "StatelessWhile"])
    async def test_loop_copies_its_condition_alone(self, op: str, device: str, copies: Copies) -> None:
        g = graph(on(SIM, halve()), on(SIM, above(1.0)))
        g("w", op, "x", device=device, T=[F], cond=calls("Above"), body=calls("Halve"))
        async with session(g) as opened:
            for _ in range(2):
                assert await opened.run("w:0", {"x:0": 2.0**20}) == 1
                into, out, across = copies.counts()
            assert (out, across) == (21 + 1, 0)
            # A loop of the host has what is fed copied for its first condition, and for its first iteration.
            assert into == (1 if device else 2)

    async def test_counted_loop_copies_nothing(self, copies: Copies) -> None:
        body = [("n", "AddV2", ["x", "x"], {"T": F})]
        g = graph(on(SIM, function_def("Twice(i: int32, x: float) -> y: float", body=body, ret={"y": "n:z:0"})))
        for name, value in (("start", 0), ("limit", 10), ("delta", 1)):
            g.const(name, value, I)
        g("f", "For", "start", "limit", "delta", "x", T=[F], body=calls("Twice"))
        async with session(g) as opened:
            assert await opened.run("f:0", {"x:0": 1.0}) == 1024
            assert copies.counts() == (1, 1, 0)

    async def test_values_that_change_devices_in_an_iteration_are_copied(self, copies: Copies) -> None:
        body = [
            floats("half", 0.5),
            ("a", "Mul", ["x", "half:output:0"], {"T": F}),
            ("b", "Neg", ["a:z:0"], {"T": F}),
            ("c", "Abs", ["b:y:0"], {"T": F}),
        ]
        there = function_def("There(x: float) -> y: float", body=body, ret={"y": "c:y:0"})
        g = graph(on(OTHER, there, half=SIM, a=SIM), on(OTHER, above(1.0)))
        g("w", "While", "x", device=SIM, T=[F], cond=calls("Above"), body=calls("There"))
        async with session(g) as opened:
            await opened.run("w:0", {"x:0": 1024.0})
            copies.counts()
            assert await opened.run("w:0", {"x:0": 1024.0}) == 1
            _, out, across = copies.counts()
            assert out == 11 + 1
            assert across == 1 + 10 + 9 + 1  # to the first condition; there and back in iterations; where the loop is

    async def test_host_memory_inputs_and_outputs_are_not_copied(self, copies: Copies) -> None:
        body = [("n", "Shape", ["x"], {"T": F, "out_type": I}), ("m", "Reshape", ["x", "s"], {"T": F, "Tshape": I})]
        shaped = function_def(
            "Shaped(x: float, s: int32) -> y: float, z: int32", body=body, ret={"y": "m:output:0", "z": "n:output:0"}
        )
        g = graph(shaped)
        g.placeholder("s", I)
        call(g, "c", "Shaped", "x", "s", device=SIM, tin=(F, I), tout=(F, I))
        async with session(g) as opened:
            found = await opened.run(["c:0", "c:1"], {"x:0": 3.0, "s:0": [1, 1]})
            assert (found[0].tolist(), found[1].tolist()) == ([[3]], [])
            assert copies.counts() == (1, 1, 0)


def variable(g: GraphBuilder, device: str = SIM, value: float = 0.0) -> None:
    """`v`, with `init` that sets it."""
    g("v", "VarHandleOp", device=device, dtype=F, shape=[])
    g.const("value", value, F)
    g("init", "AssignVariableOp", "v", "value", dtype=F)


def add_to(name: str = "AddTo", op: str = "AddV2") -> proto.FunctionDef:
    """Adds `x` to the variable and returns its value."""
    body = [
        ("old", "ReadVariableOp", ["v"], {"dtype": F}),
        ("new", op, ["old:value:0", "x"], {"T": F}),
        ("set", "AssignVariableOp", ["v", "new:z:0"], {"dtype": F}),
        ("y", "ReadVariableOp", ["v", "^set"], {"dtype": F}),
    ]
    return function_def(f"{name}(v: resource, x: float) -> y: float", body=body, ret={"y": "y:value:0"}, stateful=True)


class TestVariables:
    @pytest.mark.parametrize("device", ["", "/cpu:1", SIM, OTHER])  # of the call; the variable's is its own
    async def test_nodes_go_where_the_variable_is(self, device: str, caplog: pytest.LogCaptureFixture) -> None:
        g = graph(add_to())
        variable(g)
        call(g, "c", "AddTo", "v", "x", device=device, tin=(R, F))
        g("read", "ReadVariableOp", "v", dtype=F)
        with caplog.at_level(logging.INFO):
            async with session(g, log_device_placement=True) as opened:
                await opened.run([], targets=["init"])
                assert [await opened.run("c:0", {"x:0": 2.0}) for _ in range(3)] == [2, 4, 6]
                assert await opened.run("read:0") == 6
        logged = [record.getMessage() for record in caplog.records if "(ReadVariableOp)" in record.getMessage()]
        assert logged
        assert all(line.endswith("SIM:0") for line in logged)

    async def test_variable_is_updated_in_branches_and_loops(self) -> None:
        body = [
            ("a", "StatefulPartitionedCall", ["v", "x"], {"Tin": [R, F], "Tout": [F], "f": calls("AddTo")}),
            floats("one", 1),
            ("less", "Sub", ["x", "one:output:0"], {"T": F}),
        ]
        step = function_def(
            "Step(v: resource, x: float) -> w: resource, y: float",
            body=body,
            ret={"w": "v", "y": "less:z:0"},
            stateful=True,
        )
        more = function_def(
            "More(v: resource, x: float) -> y: bool",
            body=[floats("zero", 0), ("n", "Greater", ["x", "zero:output:0"], {"T": F})],
            ret={"y": "n:z:0"},
        )
        g = graph(add_to(), add_to("Subtract", "Sub"), step, more)
        variable(g)
        g("w", "While", "v", "x", T=[R, F], cond=calls("More"), body=calls("Step"))
        # Who reads by the loop's handle is where the variable is, too.
        g("read", "ReadVariableOp", "w", "^w", dtype=F)
        g.placeholder("p", BOOL, [])
        branches = {"then_branch": calls("AddTo"), "else_branch": calls("Subtract")}
        g("if", "If", "p", "v", "x", Tcond=BOOL, Tin=[R, F], Tout=[F], **branches)
        async with session(g) as opened:
            await opened.run([], targets=["init"])
            assert await opened.run("read:0", {"x:0": 4.0}) == 4 + 3 + 2 + 1
            assert await opened.run("if:0", {"x:0": 5.0, "p:0": True}) == 15
            assert await opened.run("if:0", {"x:0": 8.0, "p:0": False}) == 7

    async def test_loop_updates_variables_of_two_devices(self) -> None:
        body = [
            ("a", "StatefulPartitionedCall", ["v", "x"], {"Tin": [R, F], "Tout": [F], "f": calls("AddTo")}),
            ("b", "StatefulPartitionedCall", ["u", "a:output:0"], {"Tin": [R, F], "Tout": [F], "f": calls("AddTo")}),
            floats("half", 0.5),
            ("n", "Mul", ["x", "half:output:0"], {"T": F}),
        ]
        step = function_def(
            "Step(v: resource, u: resource, x: float) -> v2: resource, u2: resource, y: float",
            body=body,
            ret={"v2": "v", "u2": "u", "y": "n:z:0"},
            stateful=True,
        )
        more = function_def(
            "More(v: resource, u: resource, x: float) -> y: bool",
            body=[floats("one", 1), ("n", "Greater", ["x", "one:output:0"], {"T": F})],
            ret={"y": "n:z:0"},
        )
        g = graph(add_to(), step, more)
        variable(g)
        g("u", "VarHandleOp", device=OTHER, dtype=F, shape=[], shared_name=b"u")
        g("init_u", "AssignVariableOp", "u", "value", dtype=F)
        g("w", "While", "v", "u", "x", T=[R, R, F], cond=calls("More"), body=calls("Step"))
        g("read", "ReadVariableOp", "u", "^w", dtype=F)
        async with session(g) as opened:
            await opened.run([], targets=["init", "init_u"])
            assert await opened.run("read:0", {"x:0": 8.0}) == 8 + 12 + 14

    async def test_variable_goes_where_the_functions_that_use_it_have_kernels(self) -> None:
        """Functions at any depth count; an error names the node in them."""
        body = [("n", "TestTakesRows", ["v", "i"], {})]  # which SIM has not
        inner = function_def("Inner(v: resource, i: int32) -> y: float", body=body, ret={"y": "n:y:0"})
        outer = function_def(
            "Outer(v: resource, i: int32) -> y: float", body=[("n", "Inner", ["v", "i"], {})], ret={"y": "n:y:0"}
        )
        g = graph(inner, outer)
        g.placeholder("i", I)
        g("v", "VarHandleOp", dtype=F, shape=[3])
        g.graph_def.node[-1].device = SIM
        g.const("value", [1.0, 2.0, 3.0], F)
        g("init", "AssignVariableOp", "v", "value", dtype=F)
        call(g, "c", "Outer", "v", "i", tin=(R, I))
        with pytest.raises(
            errors.InvalidArgumentError, match=r"(?s)SIM:0.*n \(TestTakesRows\) of function 'Inner', which c calls"
        ):
            session(g)
        async with session(g, allow_soft_placement=True) as opened:
            await opened.run([], targets=["init"])
            assert (await opened.run("c:0", {"i:0": [2, 0]})).tolist() == [3, 1]

    @pytest.mark.parametrize("branches", [False, True])  # in calls one after another, or in the branches of one
    async def test_variable_goes_where_every_call_of_a_function_has_kernels(self, branches: bool) -> None:
        """The attrs of a call decide which functions it calls."""
        takes = function_def(
            "Takes(v: resource, i: int32) -> y: float",
            body=[("n", "TestTakesRows", ["v", "i"], {})],  # which SIM has not
            ret={"y": "n:y:0"},
            stateful=True,
        )
        gathers = function_def(
            "Gathers(v: resource, i: int32) -> y: float",
            body=[("n", "ResourceGather", ["v", "i"], {"dtype": F, "Tindices": I})],
            ret={"y": "n:output:0"},
            stateful=True,
        )
        inner = ("n", "StatefulPartitionedCall", ["v", "i"], {"Tin": [R, I], "Tout": [F], "f": "$f"})
        outer = function_def(
            "Outer(v: resource, i: int32) -> y: float", "f: func", body=[inner], ret={"y": "n:output:0"}, stateful=True
        )
        g = graph(takes, gathers, outer)
        g.placeholder("i", I)
        g("v", "VarHandleOp", dtype=F, shape=[3], shared_name=b"v")
        g("w", "VarHandleOp", device=SIM, dtype=F, shape=[3], shared_name=b"w")
        first, second = (calls("Outer", f=calls(name)) for name in ("Gathers", "Takes"))
        types = {"Tin": [R, I], "Tout": [F]}
        if branches:
            g.const("p", True, BOOL)
            g("c", "If", "p", "w", "i", Tcond=BOOL, **types, then_branch=first, else_branch=second)
        else:
            g("b", "StatefulPartitionedCall", "v", "i", **types, f=first)
            g("c", "StatefulPartitionedCall", "w", "i", **types, f=second)
        with pytest.raises(errors.InvalidArgumentError, match=r"(?s)SIM:0.*n \(TestTakesRows\) of function 'Takes'"):
            session(g)


class TestErrors:
    async def test_unplaceable_function_nodes_are_named(self) -> None:
        body = [
            ("a", "ReadVariableOp", ["v"], {"dtype": F}),
            ("b", "ReadVariableOp", ["u"], {"dtype": F}),
            ("n", "AddV2", ["a:value:0", "b:value:0"], {"T": F, "_class": [b"loc:@a", b"loc:@b"]}),
        ]
        g = graph(function_def("Both(v: resource, u: resource) -> y: float", body=body, ret={"y": "n:z:0"}))
        variable(g)
        g("u", "VarHandleOp", device=OTHER, dtype=F, shape=[], shared_name=b"u")
        g("init_u", "AssignVariableOp", "u", "value", dtype=F)
        call(g, "c", "Both", "v", "u", tin=(R, R))
        async with session(g) as opened:
            await opened.run([], targets=["init", "init_u"])
            # Groups give way where they contradict each other, as in graphs with soft placement.
            assert await opened.run("c:0") == 0

    async def test_kernel_that_fails_on_the_device_fails_the_step(self) -> None:
        with simulated_devices() as devices:
            g = graph(on(SIM, halve()), on(SIM, above(1.0)))
            g("w", "While", "x", T=[F], cond=calls("Above"), body=calls("Halve"))
            async with session(g) as opened:
                assert await opened.run("w:0", {"x:0": 8.0}) == 1
                devices[0].faults.run_out_of_memory(node="n")
                with pytest.raises(errors.ResourceExhaustedError) as caught:
                    await opened.run("w:0", {"x:0": 8.0})
                assert caught.value.node == "n"
                assert await opened.run("w:0", {"x:0": 8.0}) == 1

    async def test_kernel_that_fails_after_its_function_has_ended_fails_the_step(self) -> None:
        """The end of the step waits for the work that devices do for a function."""
        unused = function_def(
            "Unused(v: resource, x: float)",
            body=[("n", "Square", ["x"], {"T": F}), ("s", "AssignVariableOp", ["v", "n:y:0"], {"dtype": F})],
            ret={},
            stateful=True,
        )
        with simulated_devices() as devices:
            g = graph(on(SIM, unused))
            variable(g)
            call(g, "c", "Unused", "v", "x", tin=(R, F), tout=())
            async with session(g) as opened:
                await opened.run([], targets=["init"])
                devices[0].faults.run_out_of_memory(node="n")
                with pytest.raises(errors.ResourceExhaustedError) as caught:
                    await opened.run([], {"x:0": 1.0}, targets=["c"])
                assert caught.value.node == "n"
                await opened.run([], {"x:0": 1.0}, targets=["c"])

    async def test_dead_result_is_an_error(self) -> None:
        dead = function_def(
            "Dead(x: float, p: bool) -> y: float",
            body=[("s", "Switch", ["x", "p"], {"T": F}), ("n", "Neg", ["s:output_true:0"], {"T": F})],
            ret={"y": "n:y:0"},
        )
        g = graph(on("", dead, n=SIM))
        g.placeholder("p", BOOL, [])
        call(g, "c", "Dead", "x", "p", device=OTHER, tin=(F, BOOL))
        async with session(g) as opened:
            assert await opened.run("c:0", {"x:0": 1.0, "p:0": True}) == -1
            with pytest.raises(errors.InvalidArgumentError, match="does not have value"):
                await opened.run("c:0", {"x:0": 1.0, "p:0": False})


class TestSteps:
    async def test_calls_of_one_function_at_the_same_time(self) -> None:
        """The partitions of each call have their own transfers."""
        gate = gates.Gate()
        body = [
            ("a", "Neg", ["x"], {"T": F}),
            ("g", "TestGate", ["a:y:0"], {"key": gate.key, "T": F}),
            ("b", "Square", ["g:y:0"], {"T": F}),
            ("c", "AddV2", ["b:y:0", "a:y:0"], {"T": F}),
        ]
        g = graph(
            on(
                SIM,
                function_def("Both(x: float) -> y: float", body=body, ret={"y": "c:z:0"}, stateful=True),
                g="/cpu:0",
                c=OTHER,
            )
        )
        names = [
            call(g, f"c{number}", "Both", number) for number in map(str, range(5)) if g.const(number, float(number), F)
        ]
        async with session(g) as opened:
            step = opened.start([f"{name}:0" for name in names], {})
            while gate.count < 5:
                await gate.entered.wait()
                gate.entered.clear()
            gate.open.set()
            assert await step == [n * n - n for n in range(5)]

    async def test_cancelling_in_the_middle(self, made_rendezvous: list[Rendezvous]) -> None:
        gate = gates.Gate()
        body = [
            ("a", "Neg", ["x"], {"T": F}),
            ("g", "TestGate", ["a:y:0"], {"key": gate.key, "T": F}),
            ("b", "Neg", ["g:y:0"], {"T": F}),
        ]
        slow = on(
            SIM,
            function_def("Slow(x: float) -> y: float", body=body, ret={"y": "b:y:0"}, stateful=True),
            g="/cpu:1",
            b=OTHER,
        )
        g = graph(slow, on(SIM, above(0.0)))
        g("w", "While", "x", T=[F], cond=calls("Above"), body=calls("Slow"))
        async with session(g) as opened:
            step = opened.start("w:0", {"x:0": 1.0})
            await gate.entered.wait()
            assert step.cancel("enough")
            with pytest.raises(errors.CancelledError, match="enough"):
                await step
            assert gate.cancelled == gate.count == 1
            gate.entered.clear()
            task = asyncio.create_task(opened.run("w:0", {"x:0": 1.0}))
            await gate.entered.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not opened.steps
        assert all(each.status is not None for each in made_rendezvous if each.statistics().sent)

    async def test_partial_run_calls_placed_functions(self) -> None:
        g = graph(on(SIM, halve()))
        g.placeholder("y", F, [])
        call(g, "a", "Halve", "x", device=OTHER)
        g("b", "AddV2", "a", "y", T=F)
        call(g, "c", "Halve", "b")
        async with session(g) as opened:
            setup = await opened.partial_run_setup(["a:0", "c:0"], ["x:0", "y:0"])
            assert await opened.partial_run(setup, "a:0", {"x:0": 4.0}) == 2
            assert await opened.partial_run(setup, "c:0", {"y:0": 2.0}) == 2

    @pytest.mark.default_executor
    async def test_trace_and_log_show_devices_of_function_nodes(self, caplog: pytest.LogCaptureFixture) -> None:
        body = [("a", "Neg", ["x"], {"T": F}), ("b", "Square", ["a:y:0"], {"T": F}), ("c", "Exp", ["b:y:0"], {"T": F})]
        g = graph(
            on("/cpu:1", function_def("Three(x: float) -> y: float", body=body, ret={"y": "c:y:0"}), a=SIM, b=OTHER)
        )
        call(g, "call", "Three", "x")
        metadata = aexec.RunMetadata()
        with caplog.at_level(logging.INFO):
            async with session(g, log_device_placement=True) as opened:
                await opened.run("call:0", {"x:0": 0.0}, options=aexec.RunOptions(trace=True), metadata=metadata)
        assert metadata.step_stats is not None
        seen = {
            (device.device.rpartition("device:")[2].partition("/")[0], stats.node_name)
            for device in metadata.step_stats.dev_stats
            for stats in device.node_stats
        }
        assert {("SIM:0", "a"), ("SIM:1", "b"), ("CPU:1", "c"), ("CPU:0", "call")} <= seen
        logged = [record.getMessage() for record in caplog.records]
        assert next(line for line in logged if line.startswith("b: (Square): ")).endswith("SIM:1")

    async def test_control_outputs_run(self) -> None:
        done = function_def(
            "Done(x: float) -> y: float",
            body=[("fails", "TestFail", ["x"], {"T": F}), ("n", "Neg", ["x"], {"T": F})],
            ret={"y": "n:y:0"},
            control_ret={"done": "fails"},
        )
        g = graph(on("/cpu:1", done, n=SIM))
        call(g, "c", "Done", "x")
        async with session(g) as opened:
            with pytest.raises(errors.InvalidArgumentError, match="failed on purpose") as caught:
                await opened.run("c:0", {"x:0": 1.0})
            assert caught.value.node == "fails"

    async def test_recursion_over_devices(self) -> None:
        step = function_def(
            "Step(x: float) -> y: float",
            body=[
                floats("one", 1),
                ("less", "Sub", ["x", "one:output:0"], {"T": F}),
                ("rest", "Factorial", ["less:z:0"], {}),
                ("n", "Mul", ["x", "rest:y:0"], {"T": F}),
            ],
            ret={"y": "n:z:0"},
        )
        one = function_def("One(x: float) -> y: float", body=[floats("one", 1)], ret={"y": "one:output:0"})
        branches = {"Tcond": BOOL, "Tin": [F], "Tout": [F], "then_branch": calls("Step"), "else_branch": calls("One")}
        whole = function_def(
            "Factorial(x: float) -> y: float",
            body=[("more", "Above", ["x"], {}), ("n", "If", ["more:y:0", "x"], branches)],
            ret={"y": "n:output:0"},
        )
        g = graph(on(SIM, step, n=OTHER), on("/cpu:1", one), whole, on(OTHER, above(0.0)))
        call(g, "c", "Factorial", "x", device=SIM)
        async with session(g) as opened:
            assert await opened.run("c:0", {"x:0": 6.0}) == 720
            with pytest.raises(errors.ResourceExhaustedError, match="nested more than 100 deep"):
                await opened.run("c:0", {"x:0": 1000.0})


PLACES = ["", "/cpu:0", "/cpu:1", SIM, OTHER]
UNARY, BINARY = ["Neg", "Square", "Abs"], ["AddV2", "Sub", "Maximum"]


@st.composite
def programs(draw: Any) -> GraphBuilder:
    """Functions that call those before them, by all ops that call functions, and nodes that use them all."""
    functions: list[proto.FunctionDef] = [on(draw(st.sampled_from(PLACES)), above(1.0))]
    callable_: list[str] = []
    for number in range(draw(st.integers(1, 4))):
        body: list[tuple[str, str, list[str], dict[str, Any]]] = []
        values = ["x"]
        for n in range(draw(st.integers(1, 5))):
            kind = draw(
                st.sampled_from(["unary", "binary", "call", "if", "while"] if callable_ else ["unary", "binary"])
            )
            first, second = (draw(st.sampled_from(values)) for _ in range(2))
            name = f"n{n}"
            if kind == "unary":
                body.append((name, draw(st.sampled_from(UNARY)), [first], {"T": F}))
                values.append(f"{name}:y:0")
            elif kind == "binary":
                body.append((name, draw(st.sampled_from(BINARY)), [first, second], {"T": F}))
                values.append(f"{name}:z:0")
            elif kind == "call":
                to = draw(st.sampled_from(callable_))
                body.append((name, "PartitionedCall", [first], {"Tin": [F], "Tout": [F], "f": calls(to)}))
                values.append(f"{name}:output:0")
            else:
                body.append((f"{name}p", "Above", [first], {}))
                if kind == "if":
                    a, b = draw(st.sampled_from(callable_)), draw(st.sampled_from(callable_))
                    attrs = {"Tcond": BOOL, "Tin": [F], "Tout": [F], "then_branch": calls(a), "else_branch": calls(b)}
                    body.append((name, "If", [f"{name}p:y:0", second], attrs))
                else:
                    body.append((name, "While", [first], {"T": [F], "cond": calls("Above"), "body": calls("Shrink")}))
                values.append(f"{name}:output:0")
        made = function_def(f"F{number}(x: float) -> y: float", body=body, ret={"y": values[-1]})
        for node in made.node_def:
            node.device = draw(st.sampled_from(PLACES))
        functions.append(made)
        callable_.append(made.signature.name)
    shrink = halve("Shrink")
    for node in shrink.node_def:
        node.device = draw(st.sampled_from(PLACES))
    g = graph(*functions, shrink)
    previous = "x"
    for name in callable_:
        previous = call(g, f"call_{name}", name, previous, device=draw(st.sampled_from(PLACES)))
        previous = g(f"neg_{name}", "Neg", previous, device=draw(st.sampled_from(PLACES)), T=F)
    return g


PASSES = st.sampled_from([(), ("function_inlining",)])


@settings(max_examples=25, deadline=None)
@given(programs(), PASSES)
def test_placed_anywhere_programs_give_what_they_give_on_one_device(g: GraphBuilder, passes: Any) -> None:
    check_placed_anywhere(g, passes)


@pytest.mark.soak
@settings(max_examples=400, deadline=None, derandomize=False)
@given(programs(), PASSES)
def test_random_programs_give_the_results_of_one_device(g: GraphBuilder, passes: Any) -> None:
    check_placed_anywhere(g, passes)


def check_placed_anywhere(g: GraphBuilder, passes: Any) -> None:
    async def run(config: aexec.SessionConfig) -> Any:
        async with aexec.Session(g.graph(), config=config) as opened:
            last = g.graph_def.node[-1].name
            return [await opened.run(f"{last}:0", {"x:0": value}) for value in (0.25, 1.75, 0.25)]

    several = asyncio.run(run(aexec.SessionConfig(device_count={"CPU": 2, "SIM": 2}, graph_passes=passes)))
    message = proto.GraphDef()
    message.CopyFrom(g.graph_def)
    for node in (*g.graph_def.node, *(n for f in g.graph_def.library.function for n in f.node_def)):
        node.device = ""
    one = asyncio.run(run(aexec.SessionConfig(graph_passes=())))
    np.testing.assert_array_equal(several, one)


# RemoteCall


def remote(g: GraphBuilder, to: str = "Halve", device: str = "") -> None:
    g.placeholder("where", dtypes.string, [])
    g("y", "RemoteCall", "where", "x", device=device, Tin=[F], Tout=[F], f=calls(to))


@pytest.mark.parametrize("at", ["", SIM])
async def test_remote_call_runs_where_its_input_says(at: str) -> None:
    g = graph(halve())
    remote(g, device=at)
    with simulated_devices() as devices:
        async with session(g) as s:
            for where in ("/device:CPU:1", SIM, OTHER, "/job:localhost/replica:0/task:0/device:SIM:1"):
                assert await s.run("y:0", {"x:0": 3.0, "where:0": where}) == 1.5
            devices[1].faults.run_out_of_memory(node="n")
            assert await s.run("y:0", {"x:0": 3.0, "where:0": SIM}) == 1.5
            with pytest.raises(errors.ResourceExhaustedError, match="as was planned"):
                await s.run("y:0", {"x:0": 3.0, "where:0": OTHER})


@pytest.mark.parametrize(
    ("where", "error", "message"),
    [
        ("/device:SIM:7", errors.InternalError, "Currently don't support instantiating functions on device: /device:"),
        ("over there", errors.InvalidArgumentError, "over there"),
        ("", errors.InvalidArgumentError, "target must name a device, got an empty string"),
    ],
)
async def test_remote_call_to_nowhere_is_refused(where: str, error: type[Exception], message: str) -> None:
    g = graph(halve())
    remote(g)
    async with session(g) as s:
        with pytest.raises(error, match=message) as caught:
            await s.run("y:0", {"x:0": 3.0, "where:0": where})
        assert caught.value.node == "y"  # type: ignore[attr-defined]
        assert await s.run("y:0", {"x:0": 3.0, "where:0": SIM}) == 1.5


async def test_remote_call_has_the_functions_types() -> None:
    g = graph(above(1.0))
    remote(g, "Above")
    async with session(g) as s:
        with pytest.raises(errors.InvalidArgumentError, match="Expect to produce"):
            await s.run("y:0", {"x:0": 3.0, "where:0": SIM})
