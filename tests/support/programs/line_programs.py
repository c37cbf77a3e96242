"""Random graphs that can be compiled: blocks of calls, loops and conditionals.

Their kernels record in `TALLY` that they ran, and with which inputs: any order of calls is right, but a call that is
made twice or not at all is a fault.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.op_contract.op_registry import register_op
from tests.support.machine import ints
from tests.support.programs.graphs import GraphBuilder

I = dtypes.int32  # noqa: E741
BOOL = dtypes.bool_

# (node, inputs) → number of calls.
TALLY: Counter[tuple[str, tuple[int, ...]]] = Counter()
# Tells whether a call of a TestTallySlow would hold up the loop.
IS_HEAVY: list[Callable[[], bool]] = []
# Called by the kernels first; may raise to say that a call cannot go on inline.
BEFORE_CALL: list[Callable[[], None]] = []

register_op("TestTally(x: int32) -> y: int32", "c: int", stateful=True)
register_op("TestTallyPair(x: int32, y: int32) -> (z: int32, w: int32)", stateful=True)
register_op("TestTallyIn(x: int32) -> y: int32", stateful=True)
register_op("TestTallyDone(x: int32)", stateful=True)
register_op("TestTallySource() -> y: int32", stateful=True)
register_op("TestTallySlow(x: int32) -> y: int32", "c: int")
register_op("TestFailing(x: int32) -> y: int32", "at: int", stateful=True)


def _note(name: str, *inputs: Any) -> None:
    for hook in BEFORE_CALL:
        hook()
    TALLY[name, tuple(map(int, inputs))] += 1


@kernel("TestTally", cost=0)
def _tally(c: Any) -> Any:
    add = c.attr("c")

    def compute(x: Any) -> Any:
        _note(c.name, x)
        y = np.int32((3 * int(x) + add) % 1009)
        # The kinds of results that kernels may return: an array, a number, a tuple.
        return (np.asarray(y), y, (y,))[add % 3]

    return compute


@kernel("TestTallyPair", cost=0)
def _pair(c: Any) -> Any:
    def compute(x: Any, y: Any) -> Any:
        _note(c.name, x, y)
        return np.int32((int(x) + int(y)) % 1009), np.int32((7 * int(x) + 5 * int(y) + 1) % 1009)

    return compute


@kernel("TestTallyIn", cost=0)
def _tally_in(c: Any) -> Any:
    c.need_context()

    def compute(context: Any, x: Any) -> Any:
        _note(c.name, x, *context.frame_iter)
        return np.int32((int(x) + context.frame_iter[1]) % 1009)

    return compute


@kernel("TestTallyDone", cost=0)
def _done(c: Any) -> Any:
    def compute(x: Any) -> None:
        _note(c.name, x)

    return compute


@kernel("TestTallySource", cost=0)
def _source(c: Any) -> Any:
    def compute() -> Any:
        _note(c.name)
        return np.int32(7)

    return compute


@kernel("TestTallySlow", cost=lambda x: 1e9 if any(heavy() for heavy in IS_HEAVY) else 1.0)
def _slow(c: Any) -> Any:
    add = c.attr("c")

    def compute(x: Any) -> Any:
        for hook in BEFORE_CALL:
            hook()
        TALLY[c.name, (int(x),)] = 1  # a compiled loop calls it once if its input stays the same
        return np.asarray(np.int32((3 * int(x) + add) % 1009))

    return compute


@kernel("TestFailing", cost=0)
def _failing(c: Any) -> Any:
    at = c.attr("at")

    def compute(x: Any) -> Any:
        _note(c.name, x)
        if int(x) % 11 == at:
            raise errors.DataLossError("no good") if at % 2 else ValueError("no good")
        return x

    return compute


@dataclass
class Block:
    """What one block has made: `values` hold values, `nodes` can be waited for.

    Attributes:
        live: the `values` that an iteration has only if it goes on.
    """

    values: list[str]
    nodes: list[str] = field(default_factory=list)
    live: set[str] = field(default_factory=set)


class LineProgram:
    """A random graph over the feeds `x`, `y`, `z`, and its fetches.

    Attributes:
        fetches, targets: of a run; some fetches occur twice.
    """

    def __init__(self, seed: int, *, size: int = 8, failing: bool = False, slow: bool = False) -> None:
        self.random = random.Random(seed)
        self.g = GraphBuilder()
        self.counter = 0
        self.failing = failing
        self.slow = slow
        ints(self.g, "x", "y", "z")
        block = Block(["x", "y", "z"])
        for _ in range(self.random.randint(1, 3)):
            name = self._name("const")
            self.g.const(name, self.random.randrange(100), I)
            block.values.append(name)
        self._fill(block, size, 2)
        if not block.nodes:
            self._call(block, "affine")
        made = [value for value in block.values if value not in ("x", "y", "z")]
        self.fetches = [_endpoint(self.random.choice(made)) for _ in range(self.random.randint(0, 4))]
        # In most programs nothing is pruned.
        some = self.random.randint(0 if self.fetches else 1, 3)
        count = len(block.nodes) if self.random.random() < 0.7 else min(some, len(block.nodes))
        self.targets = self.random.sample(block.nodes, count)

    def _name(self, kind: str) -> str:
        self.counter += 1
        return f"{kind}{self.counter}"

    def _fill(self, block: Block, size: int, depth: int) -> None:
        kinds = ["affine", "tally", "tally", "pair", "in", "done", "noop", "const", "source", "pack", "wrap"]
        kinds += ["loop"] * 4 + ["cond"] * 4 if depth else ["trigger"]
        kinds += ["failing"] if self.failing else []
        kinds += ["slow"] * 8 if self.slow else []
        for _ in range(self.random.randint(1, size)):
            kind = self.random.choice(kinds)
            if kind == "loop":
                self._loop(block, depth - 1)
            elif kind == "cond":
                self._conditional(block, depth - 1)
            else:
                self._call(block, kind)

    def _call(self, block: Block, kind: str) -> None:
        g, pick = self.g, self.random
        name = self._name(kind)
        inputs = [pick.choice(block.values) for _ in range(2)]
        waits_for = pick.sample(block.nodes, min(len(block.nodes), pick.choice([0, 0, 0, 1, 2])))
        controls = [f"^{node}" for node in waits_for]
        outputs = [name]
        if kind == "affine":
            g(name, "TestAffine", *inputs, *controls, a=pick.randrange(9), b=pick.randrange(9), c=self.counter)
        elif kind in ("tally", "slow"):
            inputs = inputs[:1]
            g(name, "TestTallySlow" if kind == "slow" else "TestTally", *inputs, *controls, c=self.counter)
        elif kind == "pair":
            g(name, "TestTallyPair", *inputs, *controls)
            outputs = [f"{name}:0", f"{name}:1"]
        elif kind == "in":
            inputs = inputs[:1]
            g(name, "TestTallyIn", *inputs, *controls)
        elif kind == "done":
            inputs, outputs = inputs[:1], []
            g(name, "TestTallyDone", *inputs, *controls)
        elif kind == "failing":
            inputs = inputs[:1]
            g(name, "TestFailing", *inputs, *controls, at=pick.randrange(11))
            self.failing = False
        elif kind == "source":
            if not controls:
                return
            inputs = []
            g(name, "TestTallySource", *controls)
        elif kind == "noop":
            if not controls:
                return
            inputs, outputs = [], []
            g(name, "NoOp", *controls)
        elif kind == "trigger":
            if not controls or block.live:
                return  # in a loop it would run after the loop's end
            inputs, outputs = [], []
            g(name, "ControlTrigger", *controls)
        elif kind == "const":
            if not controls:
                return
            inputs = []
            g.const(name, pick.randrange(100), I, *controls)
        elif kind == "pack":
            g(name, "IdentityN", *inputs, *controls, T=[I, I])
            outputs = [f"{name}:0", f"{name}:1"]
        else:  # beyond 32 bits
            g(name, "Mul", *inputs, *controls, T=I)
            g(f"{name}/more", "Mul", name, name, T=I)
            outputs = [name, f"{name}/more"]
        if block.live.intersection(inputs) or block.live.intersection(waits_for):
            block.live.update(outputs, [name])
        block.values += outputs
        block.nodes.append(name)

    def _conditional(self, around: Block, depth: int) -> None:
        """Add two branches, the values that come out of either, and sometimes a value that stays in a branch."""
        g, pick = self.g, self.random
        # The predicate depends on what makes the block live, so that everything in the branches does too.
        predicate = pick.choice([value for value in around.values if value in around.live] or around.values)
        test = g(self._name("test"), "TestPositive", predicate)
        if pick.random() < 0.5:
            test = g(self._name("same"), "Identity", test, T=BOOL)
        switched = [pick.choice(around.values) for _ in range(pick.randint(1, 3))]
        switches = [g(self._name("branch"), "Switch", value, test, T=I) for value in switched]
        around.nodes += switches[:1]
        if around.live:
            around.live.update(switches)
        branches = []
        for output in (0, 1):
            inside = [f"{switch}:{output}" for switch in switches]
            pivot = g(self._name("pivot"), "Identity", inside[0], T=I)
            branch = Block([*inside, *around.values], [pivot, *around.nodes], {*inside, pivot, *around.live})
            own = {*inside, pivot}
            if pick.random() < 0.8:
                self._fill(branch, 4, depth)
                own = self._dependent(branch, own)
            branches.append((branch, [value for value in branch.values if value in own], own))
        for _ in range(pick.randint(1, 3)):
            both = [pick.choice(values) for _, values, _ in branches]
            merge = g(self._name("join"), "Merge", *pick.sample(both, 2), T=I, N=2)
            results = [f"{merge}:0", *([f"{merge}:1"] if pick.random() < 0.5 else [])]
            around.values += results
            around.nodes.append(merge)
            if around.live:
                around.live.update([merge, *results])
        if pick.random() < 0.1 and not around.live:
            branch, values, own = pick.choice(branches)
            around.values.append(pick.choice(values))
            around.nodes += [node for node in branch.nodes if node in own][:1]

    def _dependent(self, branch: Block, own: set[str]) -> set[str]:
        """Return the values and nodes of a branch that are dead if `own` are."""
        found = set(own)
        for node in self.g.graph_def.node:
            inputs = {name.removeprefix("^").removesuffix(":0") for name in node.input}
            goes_round = {name for name in inputs if name.startswith("next")}
            dead = inputs <= found | goes_round if node.op == "Merge" else not inputs.isdisjoint(found)
            if dead and node.op != "ControlTrigger":
                found.add(node.name)
                found.update(value.removesuffix(":0") for value in branch.values if value.split(":")[0] == node.name)
            if node.name in found:
                found.update(value for value in branch.values if value.split(":")[0] == node.name)
        return found

    def _loop(self, around: Block, depth: int) -> None:
        """Add a loop of a few turns, entered with values from around it; its exits become values there."""
        g, pick = self.g, self.random
        frame = {"frame_name": self._name("frame").encode(), "parallel_iterations": pick.randint(1, 3), "T": I}
        bound = pick.randint(1, 4)
        first = pick.choice(around.values)
        start = [g(self._name("start"), "TestAffine", first, first, a=1, b=0, c=0, m=bound)]
        start += [pick.choice(around.values) for _ in range(pick.randint(0, 3))]
        constants = [
            g(self._name("constant"), "Enter", pick.choice(around.values), is_constant=True, **frame)
            for _ in range(pick.randint(0, 2))
        ]
        nexts = [self._name("next") for _ in start]
        enters = [g(self._name("enter"), "Enter", value, **frame) for value in start]
        merges = [g(self._name("merge"), "Merge", *pair, T=I, N=2) for pair in zip(enters, nexts, strict=True)]
        cond = Block([*merges, *constants], list(merges))
        for _ in range(pick.randint(0, 2)):
            self._call(cond, pick.choice(["tally", "done", "in", "pair"]))
        if depth and pick.random() < 0.2:
            self._loop(cond, 0)
        test = g(self._name("cond"), "LoopCond", g(self._name("positive"), "TestPositive", merges[0]))
        switched = [*merges, *(constant for constant in constants if pick.random() < 0.3)]
        switches = [g(self._name("switch"), "Switch", value, test, T=I) for value in switched]
        cond.nodes += [*switches, test]
        for _ in range(pick.randint(0, 2)):
            self._call(cond, pick.choice(["tally", "done", "in", "source", "source"]))
        pivot = g(self._name("pivot"), "Identity", f"{switches[0]}:1", T=I)
        inside = [f"{switch}:1" for switch in switches]
        body = Block([*inside, *constants], [pivot, *cond.nodes], {*inside, pivot})
        if pick.random() < 0.9:
            self._fill(body, 5, depth)
        live = [value for value in body.values if value in body.live]
        # keeps them from being pruned
        controls = [f"^{node}" for node in body.nodes if node not in merges and pick.random() < 0.7]
        less = g(self._name("less"), "TestAffine", pivot, pivot, *controls, a=1, b=0, c=-1)
        g(nexts[0], "NextIteration", less, T=I)
        for name in nexts[1:]:
            g(name, "NextIteration", pick.choice(live if pick.random() < 0.6 else inside), T=I)
        exits = [g(self._name("exit"), "Exit", f"{switch}:0", T=I) for switch in switches if pick.random() < 0.8] or [
            g(self._name("exit"), "Exit", f"{switches[0]}:0", T=I)
        ]
        if around.live.issuperset([first, *start[1:]]):
            around.live.update(exits)
        around.values += exits
        around.nodes += exits


def _endpoint(value: str) -> str:
    return value if ":" in value else f"{value}:0"
