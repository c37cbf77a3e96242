"""The checks of cost in a compiled plan: whether a call would hold up the event loop, if that is possible.

    if v0.size > SMALL: heavy(n1, v0)                      once its arguments are large
    if f0.shape not in s2: light(s2, f0.shape, n2, f0)     once for each set of shapes
    v3 = measured(n3, c3, v2)                              a call that was slow once
    if (ns := heavy_ns(n4, v3)): yield n4, ns, [v3]        in a line that goes on in a thread
    if (v3.shape not in s5) and (ns := weigh(s5, v3.shape, n5, v3)): yield n5, ns, [v3]
                                                           the same, once for each set of shapes

The checks use estimates, which change as calls are measured; then the plan must be compiled again.
Next to read: `line_writer.py`, which writes the checks; `plans/call_estimates.py`, whose functions they call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from time import perf_counter
from typing import Any

from aexec.framework.kernel_contract.op_kernel import follows_from_shapes
from aexec.framework.kernel_contract.output_sizes import Broadcast, outgrow, rows_of
from aexec.runtime.compiled.line_calls import HeavyError
from aexec.runtime.compiled.line_layout import LineLayout, known_shape
from aexec.runtime.compiled.line_options import LineOptions
from aexec.runtime.compiled.stretch import may_leave_loop
from aexec.runtime.plans.blocks import Item, Loop
from aexec.runtime.plans.call_estimates import correct_estimate, is_light, light_elements
from aexec.runtime.plans.plan import PlanNode

__all__ = ["LineCosts", "questions"]

# A call that may take large values counts as this many calls of a chunk.
_LARGE_CALLS = 8
# The most sets of shapes that are remembered of a call.
_MAX_SHAPES = 50


class LineCosts:
    """The checks of cost in a line.

    Attributes:
        limits: call that is checked by number of elements → the limit above which it may be heavy.
        scales: call that is checked once for each set of shapes → the scale of its estimate when the line was written.
        suspects: calls that are short by their estimates but were slow once; the line measures them.
    """

    def __init__(self, layout: LineLayout, options: LineOptions) -> None:
        self.limits: dict[PlanNode, int] = {}
        self.scales: dict[PlanNode, float] = {}
        self.suspects: list[PlanNode] = []
        self._layout = layout
        self._goes_on = options.goes_on
        self._small = layout.plan.small_elements

    # After the line was written

    @property
    def outdated(self) -> bool:
        """True if calls have turned out to be heavy since the line was written."""
        most = self._small
        slow = (node for node in self._layout.ids if node.check == 2)
        # A limit leaves room for twice the estimate, so an estimate that creeps up is no reason yet.
        if any(2 * light_elements(node, most) < self.limits.get(node, most) for node in slow):
            return True
        return any(node.estimate.scale > 2 * scale for node, scale in self.scales.items())

    @property
    def in_doubt(self) -> bool:
        """True if a call is suspected to be heavy."""
        return any(node.estimate.suspicion for node in self._layout.ids)

    @property
    def relieved(self) -> bool:
        """True if all calls that were slow when the line was written have turned out to be quick."""
        return bool(self.suspects) and all(light_elements(node, self._small) > 0 for node in self.suspects)

    # While the line is written

    def may_leave(self, item: Item) -> bool:
        """Return whether a thread may go on with this item: a call of no function, or a loop of such calls."""
        if isinstance(item, Loop):
            return all(map(self.may_leave, (*item.cond.items, *item.body.items)))
        return item.calls is None and may_leave_loop(item)

    def yields_at(self, node: PlanNode) -> bool:
        """Return whether the line, where this call is heavy, yields so that a thread goes on with it."""
        return self._goes_on and self.may_leave(node)

    def may_yield(self, loop: Loop) -> bool:
        """Return whether the line may yield in a loop, so that a thread goes on with it."""
        items = (*loop.cond.items, *loop.body.items)
        return any(
            self.may_yield(item) if isinstance(item, Loop) else bool(item.check) and self.yields_at(item)
            for item in items
        )

    def may_need_thread(self, node: PlanNode) -> bool:
        """Return whether a kernel may find that its call is heavy where the arguments do not tell, in such a line."""
        return bool(node.check and node.wants_context and node.in_any_thread) and self.yields_at(node)

    def weight(self, node: PlanNode) -> int:
        """Return for how many calls a call counts: after one that may take long the clock is looked at sooner."""
        return _LARGE_CALLS if node.check and self.larger(node) else 1

    def test(self, node: PlanNode) -> str | None:
        """Return when to ask what a call costs, as an expression: "" for always, None for never."""
        if not node.check:
            return None
        limit = self._small
        if node.check == 2:
            # One that was slow on small values may only have been interrupted.
            limit = self.limits[node] = light_elements(node, limit)
        large = self._larger(node, limit)
        if "" in large or not limit or (large and node in self._layout.lists):
            self.limits[node] = 0
            return ""
        broadcasts = node.check == 2 and isinstance(node.cost, Broadcast) and node.last - node.first == 2
        if (node.check == 3 or broadcasts) and (outgrows := self._outgrows(node, limit, large)) is not None:
            return outgrows
        most = "SMALL" if limit == self._small else limit
        # A kernel that computes by rows does nothing where these are empty, however many there are.
        by_elements = node.forwards or isinstance(node.cost, Broadcast)
        sizes = [f"{name}.size > {most}" if by_elements else f"not 0 < {name}.size <= {most}" for name in large]
        return " or ".join(sizes) if sizes else None

    def _outgrows(self, node: PlanNode, limit: int, large: list[str]) -> str | None:
        """Return when inputs that broadcast may make more elements than `limit`, as an expression; None for never."""
        most = 1
        for slot in range(node.first, node.last):
            value = self._layout.of_slot.get((node.frame, slot))
            shape = node.frame.args[slot].shape if value is None else known_shape(*self._layout.origin(value))
            most *= limit + 1 if shape is None else prod(shape)
        if most <= limit and not large:
            return None
        first, second = self._layout.inputs(node)
        return f"{first}.size * {second}.size > {limit} and outgrow({first}, {second}, {limit})"

    def is_measured(self, node: PlanNode, test: str) -> bool:
        """Return whether a call is to be measured, being asked (always) only because it was slow once.

        It is then one of the suspects.
        """
        if test or callable(node.cost) or node.wants_context or node in self._layout.lists:
            return False
        if light_elements(node, self._small) != 0:
            return False
        self.suspects.append(node)
        return True

    def shapes_asked(self, node: PlanNode, test: str) -> str:
        """Return the shapes for which it is enough to ask a call once, as an expression; "" if it is not."""
        if test or node in self._layout.lists or not follows_from_shapes(node.cost):
            return ""
        names = dict.fromkeys(self._layout.inputs(node))
        shapes = [f"{name}.shape" for name in names if name not in self._layout.constants]
        if not shapes:
            return ""
        self.scales[node] = node.estimate.scale
        return shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"

    def larger(self, node: PlanNode) -> list[str]:
        """Return the arguments of a call that may be large; "" stands for constants that are."""
        return self._larger(node, self._small)

    def _larger(self, node: PlanNode, limit: int) -> list[str]:
        layout = self._layout
        found: dict[str, None] = {}
        for slot in range(node.first, node.last):
            value = layout.of_slot.get((node.frame, slot))
            if value is None:
                if rows_of(node.frame.args[slot].shape) > limit:
                    found[""] = None
                continue
            shape = known_shape(*layout.origin(value))
            if shape is None or rows_of(shape) > limit:
                found[layout.name(value)] = None
        return list(found)


def questions(heavy_ns: Callable[[PlanNode, Sequence[Any]], float]) -> dict[str, Callable[..., Any]]:
    """Return the functions by which a line's text asks about cost, and looks at the clock.

    Args:
        heavy_ns: see `LineOptions`.
    """

    def heavy(node: PlanNode, *inputs: Any) -> None:
        if heavy_ns(node, inputs):
            raise HeavyError

    def weigh(shapes: set[Any], key: Any, node: PlanNode, *inputs: Any) -> float:
        ns = heavy_ns(node, inputs)
        if not ns and is_light(node, inputs) and len(shapes) < _MAX_SHAPES:
            shapes.add(key)
        return ns

    def light(shapes: set[Any], key: Any, node: PlanNode, *inputs: Any) -> None:
        if weigh(shapes, key, node, *inputs):
            raise HeavyError

    def measured(node: PlanNode, compute: Callable[..., Any], *inputs: Any, **out: Any) -> Any:
        heavy(node, *inputs)
        began = perf_counter()
        result = compute(*inputs, **out)
        correct_estimate(node, inputs, (perf_counter() - began) * 1e9)
        return result

    return {
        "heavy": heavy,
        "heavy_ns": lambda node, *inputs: heavy_ns(node, inputs),
        "light": light,
        "measured": measured,
        "now": perf_counter,
        "outgrow": outgrow,
        "weigh": weigh,
    }
