"""`tensorflow.python.eager.context`: there is only graph mode.

Next to read: `aexec/compat/v1/values/framework_ops.py`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from aexec.compat.v1.running.device_lib import list_local_devices

__all__ = ["graph_mode", "in_eager_mode", "in_graph_mode", "num_gpus"]


def in_graph_mode() -> bool:
    """Always."""
    return True


def in_eager_mode() -> bool:
    """Never."""
    return False


def graph_mode() -> AbstractContextManager[None]:
    """A block in graph mode, as all are."""
    return nullcontext()


def num_gpus() -> int:
    """The number of this process's GPUs."""
    return sum(device.device_type == "GPU" for device in list_local_devices())
