"""Writes calls of kernels in compiled plans: the checks before a call, the call, and the checks of its result.

    if v0.size > SMALL: heavy(n1, v0)
    o = c1(x, v0)  # y (Op)
    if isinstance(o, awaitable): waits(o)
    v1 = first(n1, o)

Next to read: `line_costs.py` for the checks of cost; `line_writer.py`, which writes the text around the calls.
"""

from __future__ import annotations

import itertools
from typing import Any

from aexec.runtime.compiled.line_costs import LineCosts
from aexec.runtime.compiled.line_forwarding import Forwarding
from aexec.runtime.compiled.line_layout import LineLayout
from aexec.runtime.compiled.line_text import FunctionText, comment_of_node
from aexec.runtime.plans.inferred_shapes import is_built_in
from aexec.runtime.plans.plan import Kind, PlanNode

__all__ = ["KernelCalls"]


class KernelCalls:
    """Writes the calls of kernels.

    Args:
        namespace: the line's global variables; kernels and nodes are added to it.

    Attributes:
        may_be_away: True if a thread may be running the line at the next statement.
    """

    def __init__(self, layout: LineLayout, costs: LineCosts, forwarding: Forwarding, namespace: dict[str, Any]) -> None:
        self.may_be_away = False
        self._layout = layout
        self._costs = costs
        self._forwarding = forwarding
        self._namespace = namespace

    def write_read(self, function: FunctionText, enter: PlanNode) -> None:
        """Write the read of a variable whose value enters a loop."""
        (cell,) = self._layout.inputs(enter)
        name, kernel = self._layout.name((enter, 0)), f"c{self._layout.ids[enter]}"
        self._namespace[kernel] = enter.dereference
        function.add(f"({name},) = {kernel}([{cell}])  # {comment_of_node(enter)}", enter)

    def write(self, function: FunctionText, node: PlanNode, context: str) -> None:
        """Write a call; `context` is the name of the variable that holds the step's context there."""
        number = self._layout.ids[node]
        inputs = ", ".join(self._layout.arguments(node))
        arguments = inputs
        if node.takes_list:
            arguments = f"{context}, [{inputs}]"
        elif node.wants_context:
            arguments = f"{context}, {inputs}"
        self._namespace[f"c{number}"] = node.compute
        arguments += self._forwarding.out(node)
        is_measured = self._write_questions(function, node, inputs)
        call = f"measured(n{number}, c{number}, {arguments})" if is_measured else f"c{number}({arguments})"
        if self._costs.may_need_thread(node):
            self._write_attempt(function, node, call, inputs)
            call = "o"
        self._write_result(function, node, call)

    def _write_attempt(self, function: FunctionText, node: PlanNode, call: str, inputs: str) -> None:
        """Write a call as `o`, which a thread makes if the kernel finds on the loop that it is heavy."""
        number, around = self._layout.ids[node], function.inside
        self._namespace[f"n{number}"] = node
        function.inside = (*around, "try:")
        function.add(f"o = {call}", node)
        function.inside = (*around, "except needs_thread:")
        function.add("o = needs_thread")
        function.inside = (*around, "if o is needs_thread:")
        function.add(f"yield n{number}, inf, [{inputs}]", node)
        function.add(f"o = {call}", node)
        function.inside = around
        self.may_be_away = True

    def _write_questions(self, function: FunctionText, node: PlanNode, inputs: str) -> bool:
        """Write the checks and announcements before a call; return whether the line must measure the call."""
        # A call without inputs only finds its variable.
        changes = self.may_be_away and node.touches_state and bool(inputs)
        is_measured = False
        test, number = self._costs.test(node), self._layout.ids[node]
        if test is not None:
            self._namespace[f"n{number}"] = node
            if self._costs.yields_at(node):
                self.may_be_away = True
                ask = f"heavy_ns(n{number}, {inputs})"
                if shapes := self._costs.shapes_asked(node, test):
                    self._namespace[f"s{number}"] = set()
                    test, ask = f"{shapes} not in s{number}", f"weigh(s{number}, {shapes}, n{number}, {inputs})"
                test = f"({test}) and " if test else ""
                function.add(f"if {test}(ns := {ask}): yield n{number}, ns, [{inputs}]", node)
                if changes:
                    function.add("else: yield changes", node)
                    changes = False
            elif self._costs.is_measured(node, test):
                is_measured = True
            elif shapes := self._costs.shapes_asked(node, test):
                self._namespace[f"s{number}"] = set()
                call = f"light(s{number}, {shapes}, n{number}, {inputs})"
                function.add(f"if {shapes} not in s{number}: {call}", node)
            else:
                function.add(f"{f'if {test}: ' if test else ''}heavy(n{number}, {inputs})", node)
        if changes:
            function.add("yield changes", node)
        return is_measured

    def _write_result(self, function: FunctionText, node: PlanNode, call: str) -> None:
        """Write a call, the checks of its result, and the assignment of its outputs."""
        number, targets = self._layout.ids[node], self._layout.outputs(node)
        left = f"{', '.join(targets)} = " if targets else ""
        comment = f"  # {comment_of_node(node)}"
        trusted = node.trusted or node.kind == Kind.RETVAL
        tuples = bool(targets) and (len(targets) > 1 or node.gives_tuple)
        may_wait = node.wants_context and not node.in_any_thread
        if may_wait or (trusted and tuples):
            function.add(f"o = {call}{comment}", node)
            call, comment = "o", ""
        if may_wait:
            function.add("if isinstance(o, awaitable): waits(o)", node)
        if not trusted:
            self._namespace[f"n{number}"] = node
            call = f"first(n{number}, {call})"
        elif tuples:
            self._namespace[f"n{number}"] = node
            given = "o[0]" if len(targets) == 1 else "o"
            call = f"{given} if type(o) is tuple and len(o) == {len(targets)} else first(n{number}, o)"
        if left or call != "o":
            function.add(f"{left}{call}{comment}", node)
        if node.kind != Kind.RETVAL and not is_built_in(node.op):
            for target in targets:  # raises if it is no array, as the calls that take it may not check
                function.add(f"{target}.size", node, done=True)
        for target in targets:
            self.write_into_lists(function, target)

    def write_into_lists(self, function: FunctionText, name: str) -> None:
        """Write that a variable is put into the lists of arguments that it belongs to."""
        for wide, places in itertools.groupby(self._layout.listed.get(name, ()), lambda place: place[0]):
            indices = [index for _, index in places]
            if len(indices) == 1:
                function.add(f"{wide}[{indices[0]}] = {name}")
            else:
                self._namespace[f"{wide}_{name}"] = indices
                function.add(f"for i in {wide}_{name}: {wide}[i] = {name}")
