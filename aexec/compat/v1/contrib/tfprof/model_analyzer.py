"""`tf.contrib.tfprof.model_analyzer`: `print_model_analysis`, which `tf.profiler.profile` replaced.

Next to read: `aexec/compat/v1/running/profiler/profiling.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aexec.compat.v1.running.profiler.options import ProfileOptionBuilder
from aexec.compat.v1.running.profiler.profiling import profile

__all__ = [
    "FLOAT_OPS_OPTIONS",
    "PRINT_ALL_TIMING_MEMORY",
    "TRAINABLE_VARS_PARAMS_STAT_OPTIONS",
    "print_model_analysis",
]

TRAINABLE_VARS_PARAMS_STAT_OPTIONS = ProfileOptionBuilder.trainable_variables_parameter()
FLOAT_OPS_OPTIONS = ProfileOptionBuilder.float_operation()
PRINT_ALL_TIMING_MEMORY = ProfileOptionBuilder.time_and_memory()


def print_model_analysis(
    graph: Any,
    run_meta: Any = None,
    op_log: Any = None,
    tfprof_cmd: str = "scope",
    tfprof_options: Mapping[str, Any] | None = None,
) -> Any:
    """As `tf.profiler.profile`; of the options `dump_to_file` names a file for the report."""
    options = dict(tfprof_options or ProfileOptionBuilder().build())
    if file := options.get("dump_to_file"):
        options["output"] = f"file:outfile={file}"
    return profile(graph, run_meta, op_log, tfprof_cmd, options)
