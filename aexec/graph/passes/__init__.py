"""Graph passes: rewrites of a request's nodes before a plan is made from them.

Each pass takes a `WorkingGraph` and makes it smaller or cheaper.  It changes neither which values are fetched, nor
which errors are raised, nor which stateful operations run.  Passes are on by default, and chosen by
`SessionConfig(graph_passes=...)` with the names in `PASSES`, which run in the order of that table.
The table says when each pass runs, and whether it is exact: changes no bit of any result.  The name "exact" stands for
all exact passes.  The others only change the order of roundings, and document how much that is.
After TensorFlow's core/common_runtime/graph_optimizer.cc, and the remapper of its grappler.
Next to read: `working_graph.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from aexec.framework import errors
from aexec.graph.passes.arithmetic import simplify_arithmetic
from aexec.graph.passes.batch_norm_folding import fold_batch_norms
from aexec.graph.passes.broadcast_gradients import sum_to_shapes
from aexec.graph.passes.common_subexpressions import merge_common_subexpressions
from aexec.graph.passes.constant_folding import Evaluator, fold_constants
from aexec.graph.passes.fusion import fuse
from aexec.graph.passes.inlining import CalleeOf, inline_functions
from aexec.graph.passes.log_softmax import join_log_and_softmax
from aexec.graph.passes.padding import pad_in_convolutions
from aexec.graph.passes.pass_through import remove_pass_through
from aexec.graph.passes.product_layout import lay_out_factors
from aexec.graph.passes.pruning import prune
from aexec.graph.passes.recurrent_loops import fuse_recurrent_loops
from aexec.graph.passes.winograd import mark_for_winograd
from aexec.graph.passes.working_graph import MAX_INLINED_NODES, WorkingGraph

__all__ = [
    "MAX_INLINED_NODES",
    "PASSES",
    "CalleeOf",
    "Evaluator",
    "GraphPass",
    "WorkingGraph",
    "optimize",
    "pass_names",
    "passes_after_regions",
    "passes_before_placing",
    "passes_before_regions",
    "register_pass",
]

Run = Callable[[WorkingGraph, Evaluator, CalleeOf], None]


class GraphPass:
    """A pass, and when it runs.

    Attributes:
        run: rewrites a graph.
        exact: it changes no bit of any result.
        before_placing: it adds nodes that must be placed on devices.
        before_regions: it keeps ops in a form that delegates know, and runs before the search for regions.
        after_regions: it runs after regions were replaced by delegates' nodes.
    """

    __slots__ = ("after_regions", "before_placing", "before_regions", "exact", "run")

    def __init__(
        self,
        run: Run,
        *,
        exact: bool = True,
        before_placing: bool = False,
        before_regions: bool = False,
        after_regions: bool = True,
    ) -> None:
        self.run = run
        self.exact = exact
        self.before_placing = before_placing
        self.before_regions = before_regions
        self.after_regions = after_regions

    def __call__(self, working: WorkingGraph, evaluate: Evaluator, callee_of: CalleeOf) -> None:
        self.run(working, evaluate, callee_of)


def _before_regions(run: Run, *, before_placing: bool = False, after_regions: bool = False) -> GraphPass:
    return GraphPass(run, before_placing=before_placing, before_regions=True, after_regions=after_regions)


PASSES: dict[str, GraphPass] = {
    "function_inlining": _before_regions(
        lambda working, _, callee_of: inline_functions(working, callee_of), before_placing=True
    ),
    "constant_folding": _before_regions(lambda working, evaluate, _: fold_constants(working, evaluate)),
    "arithmetic": _before_regions(lambda working, *_: simplify_arithmetic(working)),
    "pass_through": _before_regions(lambda working, *_: remove_pass_through(working)),
    "common_subexpressions": _before_regions(lambda working, *_: merge_common_subexpressions(working)),
    "recurrent_loops": GraphPass(lambda working, *_: fuse_recurrent_loops(working), exact=False),
    "log_softmax": GraphPass(lambda working, *_: join_log_and_softmax(working), exact=False),
    "batch_norm_folding": GraphPass(lambda working, *_: fold_batch_norms(working), exact=False),
    "product_layout": GraphPass(lambda working, *_: lay_out_factors(working), exact=False),
    "broadcast_gradients": GraphPass(lambda working, *_: sum_to_shapes(working)),
    "padding": GraphPass(lambda working, *_: pad_in_convolutions(working)),
    "fusion": GraphPass(lambda working, *_: fuse(working)),
    "winograd": GraphPass(lambda working, *_: mark_for_winograd(working), exact=False),
    "pruning": _before_regions(lambda working, *_: prune(working), after_regions=True),
}


def pass_names(chosen: Collection[str]) -> frozenset[str]:
    """Return the passes that `SessionConfig.graph_passes` names; the name "exact" stands for all exact ones.

    Raises:
        InvalidArgumentError: there is no pass of a name.
    """
    names = {chosen} if isinstance(chosen, str) else set(chosen)
    if "exact" in names:
        names = (names - {"exact"}) | {name for name, each in PASSES.items() if each.exact}
    unknown = sorted(names - set(PASSES))
    if unknown:
        raise errors.InvalidArgumentError(f"no graph pass '{unknown[0]}'; there are {', '.join(PASSES)}, and exact")
    return frozenset(names)


def register_pass(name: str, run: Run, *, exact: bool = False, before_regions: bool = False) -> None:
    """Add a pass, such as one that recomputes values to save memory, after the existing ones.

    It runs in sessions whose `SessionConfig(graph_passes=...)` names it.

    Args:
        exact: it changes no bit of any result, so the name "exact" includes it.
        before_regions: it keeps ops in a form that delegates know: in a plan with regions for delegates it runs before
            the search for them.  Otherwise it runs on the rest of the graph when the regions have been replaced.

    Raises:
        AlreadyExistsError: there is a pass of that name.
    """
    if name in PASSES:
        raise errors.AlreadyExistsError(f"a graph pass '{name}' is registered already")
    PASSES[name] = GraphPass(run, exact=exact, before_regions=before_regions, after_regions=not before_regions)


def passes_before_placing() -> frozenset[str]:
    """Return the names of the passes that add nodes which must be placed."""
    return frozenset(name for name, each in PASSES.items() if each.before_placing)


def passes_before_regions() -> frozenset[str]:
    """Return the names of the passes that run before the search for delegates' regions."""
    return frozenset(name for name, each in PASSES.items() if each.before_regions)


def passes_after_regions() -> frozenset[str]:
    """Return the names of the passes that run after regions were replaced by delegates' nodes."""
    return frozenset(name for name, each in PASSES.items() if each.after_regions)


def optimize(working: WorkingGraph, names: Collection[str], evaluate: Evaluator, callee_of: CalleeOf) -> None:
    """Run the passes of these names.

    Args:
        names: as in `pass_names`.
        evaluate: runs a node for constant folding.
        callee_of: returns the function that a node calls, if it may be inlined.
    """
    wanted = pass_names(names)
    for name, run in PASSES.items():
        if name in wanted:
            run(working, evaluate, callee_of)
