"""Training: optimisers, and savers of checkpoints.

The optimisers are those of `aexec/optimizers/`.  `saver.py` writes and restores the variables of a session;
`checkpoint_state.py` keeps the file that says which checkpoints there are.
"""

from aexec.optimizers.adagrad import AdadeltaOptimizer, AdagradDAOptimizer, AdagradOptimizer, ProximalAdagradOptimizer
from aexec.optimizers.adam import AdamOptimizer, AdamWOptimizer, LambOptimizer
from aexec.optimizers.gradient_descent import (
    GradientDescentOptimizer,
    MomentumOptimizer,
    ProximalGradientDescentOptimizer,
)
from aexec.optimizers.optimizer import Optimizer
from aexec.optimizers.rmsprop import FtrlOptimizer, RMSPropOptimizer
from aexec.optimizers.schedules import (
    cosine_decay,
    cosine_decay_restarts,
    exponential_decay,
    inverse_time_decay,
    linear_cosine_decay,
    natural_exp_decay,
    piecewise_constant,
    polynomial_decay,
)
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
    "AdadeltaOptimizer",
    "AdagradDAOptimizer",
    "AdagradOptimizer",
    "AdamOptimizer",
    "AdamWOptimizer",
    "CheckpointState",
    "FtrlOptimizer",
    "GradientDescentOptimizer",
    "LambOptimizer",
    "MomentumOptimizer",
    "Optimizer",
    "ProximalAdagradOptimizer",
    "ProximalGradientDescentOptimizer",
    "RMSPropOptimizer",
    "Saver",
    "checkpoint_exists",
    "cosine_decay",
    "cosine_decay_restarts",
    "exponential_decay",
    "get_checkpoint_state",
    "inverse_time_decay",
    "latest_checkpoint",
    "linear_cosine_decay",
    "natural_exp_decay",
    "piecewise_constant",
    "polynomial_decay",
    "remove_checkpoint",
    "update_checkpoint_state",
]
