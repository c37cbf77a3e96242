"""Training: optimisers, the session that trains, its hooks, and savers of checkpoints.

The optimisers are those of `aexec/optimizers/`.  Read `training_session.py` first.  `saver.py` writes and restores the
variables of a session; `checkpoint_state.py` keeps the file that lists the checkpoints.
"""

from aexec.optimizers.adagrad import AdadeltaOptimizer, AdagradDAOptimizer, AdagradOptimizer, ProximalAdagradOptimizer
from aexec.optimizers.adam import AdamOptimizer, AdamWOptimizer, LambOptimizer
from aexec.optimizers.gradient_descent import (
    GradientDescentOptimizer,
    MomentumOptimizer,
    ProximalGradientDescentOptimizer,
)
from aexec.optimizers.loss_scale import DynamicLossScale, FixedLossScale, LossScaleOptimizer
from aexec.optimizers.optimizer import Optimizer
from aexec.optimizers.rmsprop import FtrlOptimizer, RMSPropOptimizer
from aexec.optimizers.schedules import (
    cosine_decay,
    cosine_decay_restarts,
    exponential_decay,
    inverse_time_decay,
    linear_cosine_decay,
    natural_exp_decay,
    noisy_linear_cosine_decay,
    piecewise_constant,
    polynomial_decay,
)
from aexec.training.checkpoint_listener import CheckpointSaverListener
from aexec.training.checkpoint_state import (
    CheckpointState,
    checkpoint_exists,
    get_checkpoint_state,
    latest_checkpoint,
    remove_checkpoint,
    update_checkpoint_state,
)
from aexec.training.device_setter import GreedyLoadBalancingStrategy, byte_size_load_fn, replica_device_setter
from aexec.training.hooks import (
    CheckpointSaverHook,
    EarlyStoppingHook,
    LoggingTensorHook,
    NanLossDuringTrainingError,
    NanTensorHook,
    ProgressBarHook,
    StepCounterHook,
    StopAtStepHook,
    SummarySaverHook,
)
from aexec.training.moving_averages import ExponentialMovingAverage
from aexec.training.saver import Saver
from aexec.training.session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues
from aexec.training.step_counter import create_global_step, get_global_step, get_or_create_global_step, global_step
from aexec.training.sync_replicas import SyncReplicasHook, SyncReplicasOptimizer
from aexec.training.training_session import TrainingSession

__all__ = [
    "AdadeltaOptimizer",
    "AdagradDAOptimizer",
    "AdagradOptimizer",
    "AdamOptimizer",
    "AdamWOptimizer",
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "CheckpointState",
    "DynamicLossScale",
    "EarlyStoppingHook",
    "ExponentialMovingAverage",
    "FixedLossScale",
    "FtrlOptimizer",
    "GradientDescentOptimizer",
    "GreedyLoadBalancingStrategy",
    "LambOptimizer",
    "LoggingTensorHook",
    "LossScaleOptimizer",
    "MomentumOptimizer",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "Optimizer",
    "ProgressBarHook",
    "ProximalAdagradOptimizer",
    "ProximalGradientDescentOptimizer",
    "RMSPropOptimizer",
    "Saver",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
    "SyncReplicasHook",
    "SyncReplicasOptimizer",
    "TrainingSession",
    "byte_size_load_fn",
    "checkpoint_exists",
    "cosine_decay",
    "cosine_decay_restarts",
    "create_global_step",
    "exponential_decay",
    "get_checkpoint_state",
    "get_global_step",
    "get_or_create_global_step",
    "global_step",
    "inverse_time_decay",
    "latest_checkpoint",
    "linear_cosine_decay",
    "natural_exp_decay",
    "noisy_linear_cosine_decay",
    "piecewise_constant",
    "polynomial_decay",
    "remove_checkpoint",
    "replica_device_setter",
    "update_checkpoint_state",
]
