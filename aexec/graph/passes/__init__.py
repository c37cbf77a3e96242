"""Graph passes: rewrites of what a request needs, before it is laid out as a plan.

Each takes a `WorkingGraph` and makes it smaller or cheaper; what is fetched, which errors come and
which stateful operations run is the same as without it.  They are on by default and chosen by
`SessionConfig(graph_passes=...)`, by the names in `PASSES`, whose order is that in which they run.
Those in `EXACT` change no bit of any result; the name "exact" stands for all of them.  The others change the order
of roundings, and no more, and say how much that is.
After TensorFlow's core/common_runtime/graph_optimizer.cc, and the remapper of its grappler.
Next to read: `working_graph.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from aexec.framework import errors
from aexec.graph.passes.arithmetic import simplify_arithmetic
from aexec.graph.passes.batch_norm_folding import fold_batch_norms
from aexec.graph.passes.common_subexpressions import merge_common_subexpressions
from aexec.graph.passes.constant_folding import Evaluator, fold_constants
from aexec.graph.passes.fusion import fuse
from aexec.graph.passes.inlining import CalleeOf, inline_functions
from aexec.graph.passes.log_softmax import join_log_and_softmax
from aexec.graph.passes.padding import pad_in_convolutions
from aexec.graph.passes.pass_through import remove_pass_through
from aexec.graph.passes.product_layout import lay_out_factors
from aexec.graph.passes.pruning import prune
from aexec.graph.passes.winograd import mark_for_winograd
from aexec.graph.passes.working_graph import MAX_INLINED_NODES, WorkingGraph

__all__ = [
    "EXACT",
    "MAX_INLINED_NODES",
    "PASSES",
    "CalleeOf",
    "Evaluator",
    "WorkingGraph",
    "optimize",
    "pass_names",
    "register_pass",
]

Pass = Callable[[WorkingGraph, Evaluator, CalleeOf], None]

PASSES: dict[str, Pass] = {
    "function_inlining": lambda working, _, callee_of: inline_functions(working, callee_of),
    "constant_folding": lambda working, evaluate, _: fold_constants(working, evaluate),
    "arithmetic": lambda working, *_: simplify_arithmetic(working),
    "pass_through": lambda working, *_: remove_pass_through(working),
    "common_subexpressions": lambda working, *_: merge_common_subexpressions(working),
    "log_softmax": lambda working, *_: join_log_and_softmax(working),
    "batch_norm_folding": lambda working, *_: fold_batch_norms(working),
    "product_layout": lambda working, *_: lay_out_factors(working),
    "padding": lambda working, *_: pad_in_convolutions(working),
    "fusion": lambda working, *_: fuse(working),
    "winograd": lambda working, *_: mark_for_winograd(working),
    "pruning": lambda working, *_: prune(working),
}
EXACT = frozenset(PASSES) - {"log_softmax", "batch_norm_folding", "product_layout", "winograd"}


def pass_names(chosen: Collection[str]) -> frozenset[str]:
    """The passes that `SessionConfig.graph_passes` names; "exact", alone or among them, names all those.

    Raises:
        InvalidArgumentError: there is no pass of a name.
    """
    names = {chosen} if isinstance(chosen, str) else set(chosen)
    if "exact" in names:
        names = (names - {"exact"}) | EXACT
    unknown = sorted(names - set(PASSES))
    if unknown:
        raise errors.InvalidArgumentError(f"no graph pass '{unknown[0]}'; there are {', '.join(PASSES)}, and exact")
    return frozenset(names)


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
        names: as `pass_names` takes them.
        evaluate: runs a node for constant folding.
        callee_of: the function that a node calls, if it may be inlined.
    """
    wanted = pass_names(names)
    for name, run in PASSES.items():
        if name in wanted:
            run(working, evaluate, callee_of)
