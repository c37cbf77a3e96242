"""`Options` of a dataset: hints for TensorFlow's runtime, which aexec stores and does not use.

Elements and their order do not depend on options: results are in input order in any case, tasks on the event loop
prepare elements between steps, and the session's configuration sets the number of threads.
"""

from __future__ import annotations

import copy
from typing import Any

__all__ = ["AutotuneOptions", "DistributeOptions", "OptimizationOptions", "Options", "ThreadingOptions"]


class _Fields:
    """The base of options: attributes that are None until they are set."""

    _names: tuple[str, ...] = ()

    def __init__(self) -> None:
        for name in self._names:
            super().__setattr__(name, None)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._names:
            raise AttributeError(f"{type(self).__name__} has no option {name!r}; it has {', '.join(self._names)}")
        super().__setattr__(name, value)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if value is not None)
        return f"{type(self).__name__}({given})"


class AutotuneOptions(_Fields):
    """Options of prefetching and parallelism that TensorFlow tunes by itself."""

    _names = (
        "autotune_algorithm",
        "cpu_budget",
        "enabled",
        "initial_parallelism",
        "min_parallelism",
        "ram_budget",
    )


class DistributeOptions(_Fields):
    """Options of splitting a dataset among workers."""

    _names = ("auto_shard_policy", "num_devices")


class OptimizationOptions(_Fields):
    """Options of graph rewrites."""

    _names = (
        "apply_default_optimizations",
        "autotune",
        "autotune_buffers",
        "autotune_cpu_budget",
        "filter_fusion",
        "filter_parallelization",
        "inject_prefetch",
        "map_and_batch_fusion",
        "map_and_filter_fusion",
        "map_fusion",
        "map_parallelization",
        "noop_elimination",
        "parallel_batch",
        "seq_interleave_prefetch",
        "shuffle_and_repeat_fusion",
    )


class ThreadingOptions(_Fields):
    """Options of the threads that work on a dataset."""

    _names = ("max_intra_op_parallelism", "private_threadpool_size")


_GROUPS: dict[str, type[_Fields]] = {
    "autotune": AutotuneOptions,
    "experimental_distribute": DistributeOptions,
    "experimental_optimization": OptimizationOptions,
    "threading": ThreadingOptions,
}


class Options(_Fields):
    """Advice for a dataset; `Dataset.with_options` takes it."""

    _names = (
        *_GROUPS,
        "dataset_name",
        "deterministic",
        "experimental_deterministic",
        "experimental_external_state_policy",
        "experimental_service",
        "experimental_slack",
        "experimental_stats",
        "experimental_symbolic_checkpoint",
        "experimental_threading",
        "experimental_warm_start",
        "framework_type",
    )

    def __init__(self) -> None:
        super().__init__()
        groups = {name: kind() for name, kind in _GROUPS.items()}
        for name, group in {**groups, "experimental_threading": groups["threading"]}.items():
            setattr(self, name, group)

    def merge(self, options: Options) -> Options:
        """Return options that are set in either; values of `options` take precedence."""
        made = copy.deepcopy(self)
        for name, value in vars(options).items():
            mine = getattr(made, name)
            if isinstance(value, _Fields):
                for part, given in vars(value).items():
                    if given is not None:
                        setattr(mine, part, given)
            elif value is not None:
                setattr(made, name, value)
        return made
