"""Random steps of reads and updates, and their expected results by a model that runs its nodes one by one.

A program is a GraphDef, and the same as nodes of the model, each with the nodes that it waits for, the variables that
it reads and updates, and its function. A loop and a function call are one node of the model. Updates of one variable
either commute, or wait for one another.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aexec.framework import dtypes
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.op_contract.op_registry import register_op
from tests.support.programs.functions import calls, function_def
from tests.support.programs.graphs import GraphBuilder

__all__ = ["StateProgram"]

F = dtypes.float64
DEVICES = 3
ROWS = 3
DEAD = object()
_TURNED = [2, 0, 1]
PREDICATES = ("p", "q")

register_op("TestStateHeavy(x: double) -> y: double")


@kernel("TestStateHeavy", cost=lambda x: 1e12)
def _heavy(c: Any) -> Any:
    """Minus x, with a cost that makes the call heavy."""
    return lambda x: -x


Guard = frozenset[tuple[str, bool]]
State = dict[str, Any]


@dataclass(eq=False)
class ModelNode:
    """A node of the model: `run` returns its outputs from the values of variables and its inputs."""

    name: str
    inputs: list[str]
    controls: list[str]
    run: Callable[[State, list[Any]], tuple[Any, ...]]
    reads: frozenset[str] = frozenset()
    updates: frozenset[str] = frozenset()
    is_merge: bool = False
    is_call: bool = False


@dataclass
class Value:
    """An endpoint: a value, or the cell of a variable."""

    name: str
    guard: Guard
    variable: str | None = None
    is_ref: bool = False


@dataclass
class Answer:
    """The expected results of a step."""

    values: dict[str, Any]
    state: State
    contradicts_calls: bool


@dataclass
class StateProgram:
    """The program of a seed.

    Attributes:
        feeds, fetches, targets, initial: arguments of a run, and of the run before it.
        device_of: name of a node → number of the device that it may be placed on.
        home_of: call with a variable's handle → number of the variable's machine, which handles do not leave.
    """

    seed: int
    g: GraphBuilder = field(default_factory=GraphBuilder)
    nodes: list[ModelNode] = field(default_factory=list)
    fetches: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    initial: list[str] = field(default_factory=list)
    read_all: list[str] = field(default_factory=list)
    device_of: dict[str, int] = field(default_factory=dict)
    home_of: dict[str, int] = field(default_factory=dict)
    state: State = field(default_factory=dict)

    def __post_init__(self) -> None:
        _Writer(self).write()

    def feeds(self, number: int) -> dict[str, Any]:
        """Return the feeds of run `number`."""
        drawn = random.Random(self.seed * 1000 + number)
        feeds: dict[str, Any] = {f"{p}:0": np.bool_(drawn.random() < 0.5) for p in PREDICATES}
        return feeds | {"x:0": np.array([drawn.randrange(9) for _ in range(ROWS)], float)}

    def placed(self) -> GraphBuilder:
        """Return the graph with its nodes on several devices."""
        return self._on({name: f"/cpu:{number}" for name, number in self.device_of.items()})

    def over_tasks(self) -> GraphBuilder:
        """Return the graph with its nodes on several machines."""
        return self._on({name: f"/job:worker/task:{n}" for name, n in (self.device_of | self.home_of).items()})

    def _on(self, devices: dict[str, str]) -> GraphBuilder:
        made = GraphBuilder()
        made.graph_def.CopyFrom(self.g.graph_def)
        for node in made.graph_def.node:
            node.device = devices.get(node.name, "")
        return made

    def answer(self, state: State, feeds: dict[str, Any], chances: random.Random) -> Answer:
        """Return the expected results of a run; ready nodes are run in a random order."""
        return _Model(self, state, feeds).run(chances)


class _Model:
    def __init__(self, program: StateProgram, state: State, feeds: dict[str, Any]) -> None:
        self.program = program
        self.nodes = program.nodes
        self.index = {node.name: i for i, node in enumerate(self.nodes)}
        self.state = dict(state)
        self.env: dict[str, Any] = dict(feeds)
        self.before: list[set[int]] = [self._sources(node) for node in self.nodes]
        self.contradicts_calls = False

    def _sources(self, node: ModelNode) -> set[int]:
        names = [*(i.partition(":")[0] for i in node.inputs), *node.controls]
        return {self.index[name] for name in names if name in self.index}

    @staticmethod
    def _depends(before: list[set[int]], node: int, on: int) -> bool:
        seen, left = set[int](), [node]
        while left:
            i = left.pop()
            if i == on:
                return True
            if i not in seen:
                seen.add(i)
                left += before[i]
        return False

    def _put_in_order(self) -> None:
        edges = [set(sources) for sources in self.before]
        for r, reading in enumerate(self.nodes):
            for u, updating in enumerate(self.nodes):
                if r != u and reading.reads & updating.updates:
                    if not self._depends(self.before, r, u):
                        self.before[u].add(r)
                    elif not self._depends(edges, r, u):
                        self.contradicts_calls |= reading.is_call or updating.is_call

    def run(self, chances: random.Random) -> Answer:
        self._put_in_order()
        left = set(range(len(self.nodes)))
        while left:
            i = chances.choice(sorted(i for i in left if not self.before[i] & left))
            left.remove(i)
            self._run(self.nodes[i])
        values = {name: self._value(name) for name in self.program.fetches}
        return Answer(values, self.state, self.contradicts_calls)

    def _value(self, name: str) -> Any:
        value = self.env[name]
        return self.state[value] if isinstance(value, str) else value

    def _run(self, node: ModelNode) -> None:
        inputs = [self.env[name] for name in node.inputs]
        waited_for = [self.env[f"^{name}"] for name in node.controls]
        if node.is_merge:
            live = [value for value in inputs if value is not DEAD]
            outputs: tuple[Any, ...] = (live[0] if live else DEAD,)
        elif any(value is DEAD for value in (*inputs, *waited_for)):
            outputs = (DEAD,) * 3
        else:
            outputs = node.run(self.state, inputs)
        is_dead = bool(outputs) and all(value is DEAD for value in outputs)
        self.env[f"^{node.name}"] = DEAD if is_dead else None
        self.env.update({f"{node.name}:{k}": value for k, value in enumerate(outputs)})


def _read(state: State, value: Any) -> Any:
    return state[value] if isinstance(value, str) else value


class _Writer:
    def __init__(self, program: StateProgram) -> None:
        self.program = program
        self.g = program.g
        self.drawn = random.Random(program.seed)
        self.values: list[Value] = []
        self.made: list[tuple[str, Guard]] = []  # nodes that others may wait for
        self.variables: dict[str, str] = {}  # name → kind: ref or resource
        self.assigned: dict[str, str | None] = {}  # variable that is assigned → its last update
        self.used: set[str] = set()
        self.serial = 0

    def write(self) -> None:
        self._feeds()
        for number in range(self.drawn.randint(1, 4)):
            self._variable(f"{'vw'[number % 2]}{number}")
        self._functions()
        kinds = {
            self._compute: 5,
            self._read: 4,
            self._update: 5,
            self._switch: 2,
            self._merge: 2,
            self._identity: 1,
            self._no_op: 1,
            self._call: 1.5,
            self._loop: 0.7,
        }
        for _ in range(self.drawn.randint(4, 22)):
            self.drawn.choices([*kinds], [*kinds.values()])[0]()
        self._ends()

    # Parts

    def _name(self, stem: str) -> str:
        self.serial += 1
        return f"{stem}{self.serial}"

    def _node(self, name: str, op: str, *inputs: str, device: int | None = None, **attrs: Any) -> None:
        self.g(name, op, *inputs, **attrs)
        self.program.device_of[name] = self.drawn.randrange(DEVICES) if device is None else device

    def _feeds(self) -> None:
        self.g.placeholder("x", F, [ROWS])
        for predicate in PREDICATES:
            self.g.placeholder(predicate, dtypes.bool_, [])
        self.g.const("rows", np.array(_TURNED))
        self.g.const("axis", np.int32(0))
        self.values = [Value("x:0", frozenset())]
        for number in range(3):
            value = np.array([self.drawn.randrange(5) for _ in range(ROWS)], float)
            self.g.const(f"c{number}", value)
            self._model(f"c{number}", [], [], lambda state, inputs, value=value: (value,))
            self.values.append(Value(f"c{number}:0", frozenset()))

    def _model(self, name: str, inputs: Sequence[str], controls: Sequence[str], run: Any, **rest: Any) -> None:
        full = [i if ":" in i else f"{i}:0" for i in inputs]
        self.program.nodes.append(ModelNode(name, full, list(controls), run, **rest))
        self.used.update(i.partition(":")[0] for i in full)
        self.used.update(controls)

    def _variable(self, name: str) -> None:
        value = np.array([self.drawn.randrange(9) for _ in range(ROWS)], float)
        self.program.state[name] = value
        device = self.drawn.randrange(DEVICES)
        self.g.const(f"{name}/first", value)
        if self.drawn.random() < 0.6:
            self.variables[name] = "ref"
            self._node(name, "VariableV2", device=device, dtype=F, shape=[ROWS])
            self._node(f"{name}/init", "Assign", name, f"{name}/first", device=device, T=F)
            self.program.read_all.append(f"{name}:0")
            self._model(name, [], [], lambda state, inputs: (name,))
            self.values.append(Value(f"{name}:0", frozenset(), name, is_ref=True))
        else:
            self.variables[name] = "resource"
            self._node(name, "VarHandleOp", device=device, dtype=F, shape=[ROWS], shared_name=name)
            self._node(f"{name}/init", "AssignVariableOp", name, f"{name}/first", device=device, dtype=F)
            self._node(f"{name}/all", "ReadVariableOp", name, device=device, dtype=F)
            self.program.read_all.append(f"{name}/all:0")
        self.program.initial.append(f"{name}/init")
        if self.drawn.random() < 0.3:
            self.assigned[name] = None

    def _device(self, variable: str) -> int:
        return self.program.device_of[variable]

    def _pick(self, guard: Guard | None = None, *, cells: bool = True) -> Value:
        """Return a value, preferably a recent one, whose guard does not contradict the given one."""
        fitting = [v for v in self.values if cells or v.variable is None]
        if guard is not None:
            fitting = [v for v in fitting if _fit(v.guard, guard)]
        return self.drawn.choices(fitting, range(3, len(fitting) + 3))[0]

    def _controls(self, guard: Guard, chance: float = 0.25) -> tuple[list[str], Guard]:
        controls: list[str] = []
        while self.made and self.drawn.random() < chance:
            name, other = self.drawn.choice(self.made)
            if _fit(guard, other) and name not in controls:
                controls.append(name)
                guard |= other
        return controls, guard

    def _inputs(self, count: int, guard: Guard = frozenset(), *, cells: bool = True) -> tuple[list[Value], Guard]:
        picked = []
        for _ in range(count):
            picked.append(self._pick(guard, cells=cells))
            guard |= picked[-1].guard
        return picked, guard

    def _done(self, name: str, guard: Guard) -> None:
        self.made.append((name, guard))

    # Nodes

    def _compute(self) -> None:
        op = self.drawn.choice(["AddV2", "Sub", "Neg", "AddV2", "TestStateHeavy", "GatherV2"])
        inputs, guard = self._inputs(2 if op in ("AddV2", "Sub") else 1)
        controls, guard = self._controls(guard)
        name = self._name("n")
        names = [v.name for v in inputs]
        waits = [f"^{c}" for c in controls]
        if op == "GatherV2":
            attrs = {"Tparams": F, "Tindices": dtypes.int64, "Taxis": dtypes.int32}
            self._node(name, op, *names, "rows", "axis", *waits, **attrs)
        else:
            self._node(name, op, *names, *waits, **({} if op == "TestStateHeavy" else {"T": F}))

        def run(state: State, given: list[Any]) -> tuple[Any, ...]:
            a, *rest = [_read(state, value) for value in given]
            if op == "GatherV2":
                return (a[_TURNED],)
            return (a + rest[0] if op == "AddV2" else a - rest[0] if op == "Sub" else -a,)

        reads = frozenset(v.variable for v in inputs if v.variable is not None)
        self._model(name, names, controls, run, reads=reads)
        self.values.append(Value(f"{name}:0", guard))
        self._done(name, guard)

    def _of_kind(self, kind: str) -> list[str]:
        return [name for name, other in self.variables.items() if other == kind]

    def _read(self) -> None:
        resources = self._of_kind("resource")
        if not resources:
            self._compute()
            return
        variable = self.drawn.choice(resources)
        controls, guard = self._controls(frozenset(), 0.4)
        name = self._name("r")
        waits = [f"^{c}" for c in controls]
        gathers = self.drawn.random() < 0.4
        if gathers:
            attrs = {"dtype": F, "Tindices": dtypes.int64}
            self._node(name, "ResourceGather", variable, "rows", *waits, device=self._device(variable), **attrs)
        else:
            self._node(name, "ReadVariableOp", variable, *waits, device=self._device(variable), dtype=F)

        def run(state: State, given: list[Any]) -> tuple[Any, ...]:
            return (state[variable][_TURNED] if gathers else state[variable],)

        self._model(name, [], controls, run, reads=frozenset({variable}))
        self.values.append(Value(f"{name}:0", guard))
        self._done(name, guard)

    def _identity(self) -> None:
        source = self._pick()
        controls, guard = self._controls(source.guard, 0.4)
        name = self._name("i")
        device = None if source.variable is None else self._device(source.variable)
        self._node(name, "Identity", source.name, *(f"^{c}" for c in controls), device=device, T=F)
        self._model(name, [source.name], controls, lambda state, given: (given[0],))
        self.values.append(Value(f"{name}:0", guard, source.variable))
        self._done(name, guard)

    def _no_op(self) -> None:
        controls, guard = self._controls(frozenset(), 0.6)
        if controls:
            name = self._name("o")
            self._node(name, "NoOp", *(f"^{c}" for c in controls))
            self._model(name, [], controls, lambda state, given: ())
            self._done(name, guard)

    def _update(self) -> None:
        variable = self.drawn.choice([*self.variables])
        is_ref = self.variables[variable] == "ref"
        cells = [v for v in self.values if v.variable == variable and v.is_ref]
        serial = variable in self.assigned
        if serial:
            cells = [v for v in cells if not v.guard]
        cell = self.drawn.choice(cells) if is_ref else Value(f"{variable}:0", frozenset())
        if serial:
            value = self.drawn.choice([v for v in self.values if not v.guard])
            guard: Guard = frozenset()
            last = self.assigned[variable]
            controls = [] if last is None else [last]
        else:
            (value,), guard = self._inputs(1, cell.guard)
            controls, guard = self._controls(guard)
        name = self._name("u")
        kinds = ["add", "sub", "scatter"] + (["assign"] * 3 if serial else [])
        how = self.drawn.choice(kinds)
        self._write_update(name, how, cell.name, value.name, controls, variable, is_ref=is_ref)

        def run(state: State, given: list[Any]) -> tuple[Any, ...]:
            state[variable] = _updated(how, state[variable], _read(state, given[-1]))
            return (variable,) if is_ref else ()

        reads = frozenset() if value.variable is None else frozenset({value.variable})
        inputs = [cell.name, value.name] if is_ref else [value.name]
        self._model(name, inputs, controls, run, reads=reads, updates=frozenset({variable}))
        if is_ref:
            self.values.append(Value(f"{name}:0", guard, variable, is_ref=True))
        if serial:
            self.assigned[variable] = name
        self._done(name, guard)

    def _write_update(
        self, name: str, how: str, target: str, value: str, controls: list[str], variable: str, *, is_ref: bool
    ) -> None:
        device, waits = self._device(variable), [f"^{c}" for c in controls]
        ops = {
            True: {"add": "AssignAdd", "sub": "AssignSub", "scatter": "ScatterAdd", "assign": "Assign"},
            False: {
                "add": "AssignAddVariableOp",
                "sub": "AssignSubVariableOp",
                "scatter": "ResourceScatterAdd",
                "assign": "AssignVariableOp",
            },
        }[is_ref]
        if how == "scatter":
            attrs = {("T" if is_ref else "dtype"): F, "Tindices": dtypes.int64}
            self._node(name, ops[how], target, "rows", value, *waits, device=device, **attrs)
        else:
            self._node(name, ops[how], target, value, *waits, device=device, **{("T" if is_ref else "dtype"): F})

    def _switch(self) -> None:
        source = self._pick()
        predicate = self.drawn.choice(PREDICATES)
        if any(p == predicate for p, _ in source.guard):
            return
        name = self._name("s")
        if source.variable is not None and not source.is_ref:
            return
        op = "RefSwitch" if source.is_ref else "Switch"
        device = None if source.variable is None else self._device(source.variable)
        self._node(name, op, source.name, predicate, device=device, T=F)

        def run(state: State, given: list[Any]) -> tuple[Any, ...]:
            return (DEAD, given[0]) if given[1] else (given[0], DEAD)

        self._model(name, [source.name, f"{predicate}:0"], [], run)
        for taken in (False, True):
            guard = source.guard | {(predicate, taken)}
            self.values.append(Value(f"{name}:{int(taken)}", guard, source.variable, source.is_ref))

    def _merge(self) -> None:
        plain = [v for v in self.values if v.variable is None]
        pairs = [(a, b) for a in plain for b in plain if _meet(a.guard, b.guard) is not None]
        if not pairs:
            self._switch()
            return
        a, b = self.drawn.choice(pairs)
        name = self._name("m")
        self._node(name, "Merge", a.name, b.name, T=F, N=2)
        self._model(name, [a.name, b.name], [], None, is_merge=True)
        guard = _meet(a.guard, b.guard)
        assert guard is not None
        self.values.append(Value(f"{name}:0", guard))

    # Functions and loops

    def _functions(self) -> None:
        read = ("r", "ReadVariableOp", ["handle"], {"dtype": F})
        add = ("sum", "AddV2", ["r:value:0", "x"], {"T": F})
        change = ("u", "AssignAddVariableOp", ["handle", "x"], {"dtype": F})
        signature = "(handle: resource, x: double) -> y: double"
        functions = [
            function_def(f"Reads{signature}", body=[read, add], ret={"y": "sum:z:0"}, stateful=True),
            function_def(
                f"Changes{signature}",
                body=[("i", "Identity", ["x"], {"T": F}), change],
                ret={"y": "i:output:0"},
                control_ret={"u": "u"},
                stateful=True,
            ),
            # The read comes first, because it does not depend on the update.
            function_def(
                f"Both{signature}",
                body=[change, read, add],
                ret={"y": "sum:z:0"},
                control_ret={"u": "u"},
                stateful=True,
            ),
            function_def(
                "Goes(i: double, handle: resource, x: double) -> y: bool",
                body=[
                    ("n", "Const", [], {"dtype": F, "value": np.float64(2)}),
                    ("less", "Less", ["i", "n:output:0"], {"T": F}),
                ],
                ret={"y": "less:z:0"},
            ),
            function_def(
                "Turn(i: double, handle: resource, x: double) -> (j: double, h: resource, y: double)",
                body=[
                    ("one", "Const", [], {"dtype": F, "value": np.float64(1)}),
                    ("next", "AddV2", ["i", "one:output:0"], {"T": F}),
                    change,
                    read,
                    add,
                ],
                ret={"j": "next:z:0", "h": "handle", "y": "sum:z:0"},
                control_ret={"u": "u"},
                stateful=True,
            ),
        ]
        self.g.graph_def.library.function.extend(functions)
        self.g.const("none", np.float64(0))

    def _call(self) -> None:
        resources = [name for name in self._of_kind("resource") if name not in self.assigned]
        if not resources:
            self._update()
            return
        variable = self.drawn.choice(resources)
        (value,), guard = self._inputs(1)
        controls, guard = self._controls(guard)
        name = self._name("f")
        kind = self.drawn.choice(["Reads", "Changes", "Both", "If", "While"])
        waits = [f"^{c}" for c in controls]
        reads = frozenset() if value.variable is None else frozenset({value.variable})
        inputs = [value.name]
        if kind == "If":
            attrs = {"Tcond": dtypes.bool_, "Tin": [dtypes.resource, F], "Tout": [F]}
            branches = {"then_branch": calls("Reads"), "else_branch": calls("Both")}
            self._node(name, "If", "p", variable, value.name, *waits, **attrs, **branches)
            inputs.append("p:0")
        elif kind == "While":
            attrs = {"T": [F, dtypes.resource, F], "cond": calls("Goes"), "body": calls("Turn")}
            self._node(name, "While", "none", variable, value.name, *waits, **attrs)
        else:
            attrs = {"Tin": [dtypes.resource, F], "Tout": [F], "f": calls(kind)}
            self._node(name, "StatefulPartitionedCall", variable, value.name, *waits, **attrs)

        def run(state: State, given: list[Any]) -> tuple[Any, ...]:
            x = _read(state, given[0])
            before = state[variable]
            if kind == "While":
                for _ in range(2):
                    x, state[variable] = state[variable] + x, state[variable] + x
                return (0, 0, x)
            if kind in ("Changes", "Both") or (kind == "If" and not given[1]):
                state[variable] = before + x
            return (x if kind == "Changes" else before + x,)

        own = frozenset({variable})
        reads |= frozenset() if kind == "Changes" else own
        updates = frozenset() if kind == "Reads" else own
        self.program.home_of[name] = self._device(variable)
        self._model(name, inputs, controls, run, reads=reads, updates=updates, is_call=True)
        self.values.append(Value(f"{name}:{2 if kind == 'While' else 0}", guard))
        self._done(name, guard)

    def _loop(self) -> None:
        """Write a loop of two turns: its value becomes the sum of itself and the variable, which grows by the value."""
        variable = self.drawn.choice([*self.variables])
        if variable in self.assigned:
            return
        value = self.drawn.choice([v for v in self.values if v.variable is None])
        name, device = self._name("l"), self._device(variable)
        is_ref = self.variables[variable] == "ref"
        self.g.const(f"{name}/zero", np.float64(0))
        self.g.const(f"{name}/two", np.float64(2))
        self.g.const(f"{name}/one", np.float64(1))
        frame = {"frame_name": name.encode(), "parallel_iterations": self.drawn.choice([1, 4])}

        def node(part: str, op: str, *inputs: str, **attrs: Any) -> str:
            self._node(f"{name}/{part}", op, *inputs, device=device, **attrs)
            return f"{name}/{part}"

        i = node("i", "Enter", f"{name}/zero", T=F, **frame)
        x = node("x", "Enter", value.name, T=F, **frame)
        two = node("enter_two", "Enter", f"{name}/two", T=F, is_constant=True, **frame)
        one = node("enter_one", "Enter", f"{name}/one", T=F, is_constant=True, **frame)
        kind = F if is_ref else dtypes.resource
        at = node("v", "RefEnter" if is_ref else "Enter", variable, T=kind, is_constant=True, **frame)
        merge_i = node("merge_i", "Merge", i, f"{name}/next_i", T=F, N=2)
        merge_x = node("merge_x", "Merge", x, f"{name}/next_x", T=F, N=2)
        test = node("cond", "LoopCond", node("less", "Less", merge_i, two, T=F))
        switch_i = node("switch_i", "Switch", merge_i, test, T=F)
        switch_x = node("switch_x", "Switch", merge_x, test, T=F)
        body = node("body", "Identity", f"{switch_x}:1", T=F)
        if is_ref:
            update = node("update", "AssignAdd", at, body, T=F)
            total = node("sum", "AddV2", body, at, T=F)
        else:
            update = node("update", "AssignAddVariableOp", at, body, dtype=F)
            total = node("sum", "AddV2", body, node("read", "ReadVariableOp", at, f"^{body}", dtype=F), T=F)
        both = node("both", "Identity", total, f"^{update}", T=F)
        node("next_x", "NextIteration", both, T=F)
        node("next_i", "NextIteration", node("add", "AddV2", f"{switch_i}:1", one, f"^{body}", T=F), T=F)
        end = node("end", "Exit", f"{switch_x}:0", T=F)

        def run(state: State, given: list[Any]) -> tuple[Any, ...]:
            x = given[0]
            for _ in range(2):
                x, state[variable] = x + state[variable], state[variable] + x
            return (x,)

        own = frozenset({variable})
        self._model(end, [value.name], [], run, reads=own, updates=own)
        self.values.append(Value(f"{end}:0", value.guard))
        self._done(end, value.guard)

    # Ends

    def _ends(self) -> None:
        program = self.program
        certain = [v for v in self.values if not v.guard and v.name not in ("x:0",)]
        program.fetches = list(dict.fromkeys(v.name for v in self.drawn.sample(certain, min(len(certain), 5))))
        fetched = {name.partition(":")[0] for name in program.fetches}
        every = [node.name for node in program.nodes]
        program.targets = [name for name in every if name not in self.used and name not in fetched]


def _updated(how: str, old: Any, value: Any) -> Any:
    if how == "scatter":
        new = old.copy()
        np.add.at(new, _TURNED, value)
        return new
    return {"add": lambda: old + value, "sub": lambda: old - value, "assign": lambda: value}[how]()


def _fit(a: Guard, b: Guard) -> bool:
    return not any((predicate, not taken) in b for predicate, taken in a)


def _meet(a: Guard, b: Guard) -> Guard | None:
    """Return the common part of two guards, if they are the branches of one predicate."""
    differing = [predicate for predicate, taken in a if (predicate, not taken) in b]
    if len(differing) != 1:
        return None
    (predicate,) = differing
    left = a - {(predicate, True), (predicate, False)}
    return left if left == b - {(predicate, True), (predicate, False)} else None
