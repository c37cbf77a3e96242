"""Seeds of random ops: of the graph, of one op, or neither, by TensorFlow's rules (SEMANTICS 15.4).

With neither, an op returns other numbers in each session.  With a seed for the graph only, the ops without a seed are
counted: a program that builds the same graph gets the same numbers.
"""

from __future__ import annotations

from aexec.graph.op_functions import require_graph

__all__ = ["get_seed", "set_random_seed"]

# The graph's seed in TensorFlow if an op has a seed and the graph has none.
_DEFAULT_GRAPH_SEED = 87654321

_LIMIT = 2**31 - 1


def set_random_seed(seed: int | None) -> None:
    """Set the seed of the graph, for random ops that are built from now on; None removes it."""
    require_graph().build_state.seed = seed


def get_seed(op_seed: int | None) -> tuple[int, int]:
    """The attrs `seed` and `seed2` of a random op with this seed, or None, that is built now; (0, 0) means random."""
    state = require_graph().build_state
    if state.seed is None and op_seed is None:
        return 0, 0
    if state.seed is None:
        graph_seed = _DEFAULT_GRAPH_SEED
    else:
        graph_seed = state.seed
        if op_seed is None:
            op_seed = state.seedless
            state.seedless += 1
    seeds = graph_seed % _LIMIT, (op_seed or 0) % _LIMIT
    return seeds if seeds != (0, 0) else (0, _LIMIT)
