"""Graph passes: rewrites of what a request needs, before it is laid out as a plan.

Each takes a `WorkingGraph` and makes it smaller or cheaper; what is fetched, which errors come and
which stateful operations run is the same as without it.  They are on by default and chosen by
`SessionConfig(graph_passes=...)`, by the names in `PASSES`, whose order is that in which they run.
After TensorFlow's core/common_runtime/graph_optimizer.cc.
Next to read: `working_graph.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from aexec.framework import errors
from aexec.graph.passes.arithmetic import simplify_arithmetic
from aexec.graph.passes.common_subexpressions import merge_common_subexpressions
from aexec.graph.passes.constant_folding import Evaluator, fold_constants
from aexec.graph.passes.inlining import CalleeOf, inline_functions
from aexec.graph.passes.pass_through import remove_pass_through
from aexec.graph.passes.pruning import prune
from aexec.graph.passes.working_graph import WorkingGraph

__all__ = ["PASSES", "CalleeOf", "Evaluator", "WorkingGraph", "optimize", "register_pass"]

Pass = Callable[[WorkingGraph, Evaluator, CalleeOf], None]

PASSES: dict[str, Pass] = {
    "function_inlining": lambda working, _, callee_of: inline_functions(working, callee_of),
    "constant_folding": lambda working, evaluate, _: fold_constants(working, evaluate),
    "arithmetic": lambda working, *_: simplify_arithmetic(working),
    "pass_through": lambda working, *_: remove_pass_through(working),
    "common_subexpressions": lambda working, *_: merge_common_subexpressions(working),
    "pruning": lambda working, *_: prune(working),
}


def register_pass(name: str, run: Pass) -> None:
    """Add a pass, behind those that there are: one that recomputes values instead of keeping them, say.

    It runs in sessions whose `SessionConfig(graph_passes=...)` names it.

    Raises:
        AlreadyExistsError: there is one of that name.
    """
    if name in PASSES:
        raise errors.AlreadyExistsError(f"a graph pass '{name}' is registered already")
    PASSES[name] = run


def optimize(working: WorkingGraph, names: Collection[str], evaluate: Evaluator, callee_of: CalleeOf) -> None:
    """Run the passes of these names.

    Args:
        evaluate: runs a node for constant folding.
        callee_of: the function that a node calls, if it may be inlined.
    """
    for name, run in PASSES.items():
        if name in names:
            run(working, evaluate, callee_of)
