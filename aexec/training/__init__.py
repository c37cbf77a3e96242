"""Training: savers of checkpoints.

`saver.py` writes and restores the variables of a session; `checkpoint_state.py` keeps the
file that says which checkpoints there are.
"""

from aexec.training.checkpoint_state import (
    CheckpointState,
    checkpoint_exists,
    get_checkpoint_state,
    latest_checkpoint,
    remove_checkpoint,
    update_checkpoint_state,
)
from aexec.training.saver import Saver

__all__ = [
    "CheckpointState",
    "Saver",
    "checkpoint_exists",
    "get_checkpoint_state",
    "latest_checkpoint",
    "remove_checkpoint",
    "update_checkpoint_state",
]
