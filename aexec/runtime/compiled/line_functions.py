"""Calls of functions in compiled plans: a function's body is a compiled plan, which the line calls.

    v3, = b3_0(x, v2)                         a body that is a line
    o, end = yield from b4_0(x, end, v3)      a body in slices

An If is an `if`, a functional While is a `while`.
Next to read: `line_writer.py`, which writes the other calls; `compiled_plan.py`, which compiles the bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aexec.framework.kernel_contract.functional_call import CallKind
from aexec.runtime.compiled.line_layout import LineLayout
from aexec.runtime.compiled.line_options import Body
from aexec.runtime.compiled.line_text import LOOK_AT_CLOCK, FunctionText, comment_of, comment_of_node
from aexec.runtime.plans.plan import PlanNode

__all__ = ["FunctionCalls"]


class FunctionCalls:
    """Writes the calls of functions.

    Args:
        bodies: node that calls functions → their compiled plans.
        unboxed: returns the name of the scalar for the name of a constant array of no dimension; other names unchanged.
        namespace: the line's global variables; bodies and kernels are added to it.
    """

    def __init__(
        self,
        layout: LineLayout,
        bodies: dict[PlanNode, list[Body]],
        unboxed: Callable[[str], str],
        namespace: dict[str, Any],
    ) -> None:
        self._layout = layout
        self._bodies = bodies
        self._unboxed = unboxed
        self._namespace = namespace

    def write(self, function: FunctionText, node: PlanNode) -> None:
        """Write the calls of a node that calls functions."""
        assert node.calls is not None
        around, inputs, kind = function.inside, self._read_inputs(function, node), node.calls.kind
        targets = self._layout.made(node)
        if kind is CallKind.CALL:
            self._write_body(function, node, 0, targets, inputs)
        elif kind is CallKind.IF:
            test = _truth(inputs[0])
            for number, header in enumerate((f"if {test}:", f"if not ({test}):")):
                function.inside = (*around, header)
                self._write_body(function, node, number, targets, inputs[1:])
        else:
            self._write_while(function, node, targets, inputs)
        function.inside = around

    def _write_while(
        self, function: FunctionText, node: PlanNode, targets: Sequence[str], inputs: Sequence[str]
    ) -> None:
        around, values = function.inside, self._layout.loop_values(node)
        if values:
            function.add(f"{', '.join(values)} = {', '.join(map(self._unboxed, inputs))}", node)
        function.inside = (*around, f"while True:  # {comment_of_node(node)}")
        test = f"p{self._layout.ids[node]}"
        self._write_body(function, node, 0, [test], values)
        function.add(f"if not ({_truth(test)}): break")
        self._write_body(function, node, 1, values, values)
        function.add(LOOK_AT_CLOCK)
        function.inside = around
        if values:
            function.add(f"{', '.join(targets)} = {', '.join(values)}")

    def _read_inputs(self, function: FunctionText, node: PlanNode) -> list[str]:
        """Load the values of inputs that are variables, if the node takes values; return its functions' arguments."""
        inputs = self._layout.inputs(node)
        if node.dereference is None:
            return inputs
        number = self._layout.ids[node]
        names = [f"d{number}_{position}" for position in range(len(inputs))]
        self._namespace[f"c{number}"] = node.dereference
        function.add(f"{', '.join(names)}, = c{number}([{', '.join(inputs)}])", node)
        return names

    def _write_body(
        self, function: FunctionText, node: PlanNode, number: int, targets: Sequence[str], arguments: Sequence[str]
    ) -> None:
        """Write the call of one of the functions that a node calls."""
        assert node.calls is not None
        body = self._bodies[node][number]
        name = f"b{self._layout.ids[node]}_{number}"
        self._namespace[name] = body.function
        comment = f"  # {comment_of(f'{node.name}: {node.calls.functions[number].name}')}"
        left = f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = " if targets else ""
        if body.is_line:
            function.add(f"{left}{name}({', '.join(['x', *arguments])}){comment}", node, function=number)
            return
        call = f"yield from {name}({', '.join(['x', 'end', *arguments])})"
        function.add(f"o, end = {call}{comment}", node, function=number)
        if left:
            function.add(f"{left}o")


def _truth(name: str) -> str:
    """Return an expression for a tensor's truth, as If and While define it: a scalar's, or that it has elements."""
    return f"{name}.size if {name}.ndim else {name}"
