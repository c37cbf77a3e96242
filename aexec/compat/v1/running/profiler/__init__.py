"""`tf.profiler`: a graph's parameters, float operations, times and memory, by scope, by input or by op.

Next to read: `profiling.py`; then `float_operations.py` for what an op counts, and `trees.py` for what is shown.
"""

from __future__ import annotations

from aexec.compat.v1.namespace import namespace

__all__: list[str] = []

__getattr__, __dir__ = namespace(
    __name__,
    {
        **{name: f"running.profiler.profiling:{name}" for name in "Profiler profile".split()},
        "ProfileOptionBuilder": "running.profiler.options:ProfileOptionBuilder",
        **{name: f"aexec.proto:{name}" for name in "AdviceProto GraphNodeProto MultiGraphNodeProto OpLogProto".split()},
    },
    {
        "advise": "docs/profiling.md says how to find what is slow",
        "write_op_log": "nothing here reads such files: call tf.profiler.profile in the program itself",
    },
)
