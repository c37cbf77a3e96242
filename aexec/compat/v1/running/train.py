"""`tf.train`: the namespace of optimizers, schedules, savers, training sessions, queue runners and input pipelines.

Next to read: `training.py` and `coordination.py`, which implement most of it.
"""

from __future__ import annotations

from aexec.client import input as _pipelines
from aexec.compat.v1.namespace import namespace, renamed
from aexec.compat.v1.running import coordination  # noqa: F401 - queue runners have create_threads then
from aexec.optimizers import schedules as _schedules

__all__ = [
    "batch",
    "batch_join",
    "cosine_decay",
    "cosine_decay_restarts",
    "exponential_decay",
    "input_producer",
    "inverse_time_decay",
    "linear_cosine_decay",
    "natural_exp_decay",
    "noisy_linear_cosine_decay",
    "piecewise_constant",
    "piecewise_constant_decay",
    "polynomial_decay",
    "range_input_producer",
    "shuffle_batch",
    "shuffle_batch_join",
    "slice_input_producer",
]

_DECAY = "learning_rate global_step decay_steps decay_rate staircase name"

exponential_decay = renamed(_schedules.exponential_decay, _DECAY, "exponential_decay")
natural_exp_decay = renamed(_schedules.natural_exp_decay, _DECAY, "natural_exp_decay")
inverse_time_decay = renamed(_schedules.inverse_time_decay, _DECAY, "inverse_time_decay")
polynomial_decay = renamed(
    _schedules.polynomial_decay,
    "learning_rate global_step decay_steps end_learning_rate power cycle name",
    "polynomial_decay",
)
cosine_decay = renamed(_schedules.cosine_decay, "learning_rate global_step decay_steps alpha name", "cosine_decay")
cosine_decay_restarts = renamed(
    _schedules.cosine_decay_restarts,
    "learning_rate global_step first_decay_steps t_mul m_mul alpha name",
    "cosine_decay_restarts",
)
linear_cosine_decay = renamed(
    _schedules.linear_cosine_decay,
    "learning_rate global_step decay_steps num_periods alpha beta name",
    "linear_cosine_decay",
)
noisy_linear_cosine_decay = renamed(
    _schedules.noisy_linear_cosine_decay,
    "learning_rate global_step decay_steps initial_variance variance_decay num_periods alpha beta name",
    "noisy_linear_cosine_decay",
)
piecewise_constant = renamed(_schedules.piecewise_constant, "x boundaries values name", "piecewise_constant")
piecewise_constant_decay = piecewise_constant

_PRODUCER = "num_epochs shuffle seed capacity shared_name"

input_producer = renamed(
    _pipelines.input_producer,
    f"input_tensor element_shape {_PRODUCER} summary_name= name cancel_op=",
    "input_producer",
)
range_input_producer = renamed(_pipelines.range_input_producer, f"limit {_PRODUCER} name", "range_input_producer")
slice_input_producer = renamed(_pipelines.slice_input_producer, f"tensor_list {_PRODUCER} name", "slice_input_producer")

_SHAPES = "enqueue_many shapes"
_ENDS = "allow_smaller_final_batch shared_name name"

batch = renamed(
    _pipelines.batch,
    f"tensors batch_size num_threads capacity {_SHAPES} dynamic_pad {_ENDS}",
    "batch",
)
batch_join = renamed(
    _pipelines.batch_join, f"tensors_list batch_size capacity {_SHAPES} dynamic_pad {_ENDS}", "batch_join"
)
shuffle_batch = renamed(
    _pipelines.shuffle_batch,
    f"tensors batch_size capacity min_after_dequeue num_threads seed {_SHAPES} {_ENDS}",
    "shuffle_batch",
)
shuffle_batch_join = renamed(
    _pipelines.shuffle_batch_join,
    f"tensors_list batch_size capacity min_after_dequeue seed {_SHAPES} {_ENDS}",
    "shuffle_batch_join",
)

maybe_batch = renamed(
    _pipelines.batch,
    f"tensors keep_input batch_size num_threads capacity {_SHAPES} dynamic_pad {_ENDS}",
    "maybe_batch",
)
maybe_batch_join = renamed(
    _pipelines.batch_join,
    f"tensors_list keep_input batch_size capacity {_SHAPES} dynamic_pad {_ENDS}",
    "maybe_batch_join",
)
maybe_shuffle_batch = renamed(
    _pipelines.shuffle_batch,
    f"tensors batch_size capacity min_after_dequeue keep_input num_threads seed {_SHAPES} {_ENDS}",
    "maybe_shuffle_batch",
)
maybe_shuffle_batch_join = renamed(
    _pipelines.shuffle_batch_join,
    f"tensors_list batch_size capacity min_after_dequeue keep_input seed {_SHAPES} {_ENDS}",
    "maybe_shuffle_batch_join",
)


__getattr__, __dir__ = namespace(
    __name__,
    {
        "write_graph": "running.graph_util:write_graph",
        **{
            name: f"networks.optimizers:{name}"
            for name in """AdadeltaOptimizer AdagradDAOptimizer AdagradOptimizer AdamOptimizer FtrlOptimizer
            GradientDescentOptimizer MomentumOptimizer Optimizer ProximalAdagradOptimizer
            ProximalGradientDescentOptimizer RMSPropOptimizer SyncReplicasOptimizer""".split()
        },
        **{
            name: f"running.training:{name}"
            for name in """CheckpointSaverHook CheckpointSaverListener ExponentialMovingAverage LoggingTensorHook
            NanTensorHook Saver Scaffold SessionRunArgs SessionRunContext SessionRunHook SessionRunValues
            StepCounterHook SummarySaverHook checkpoint_exists export_meta_graph get_checkpoint_state global_step
            import_meta_graph latest_checkpoint""".split()
        },
        **{
            name: f"running.monitored_session:{name}"
            for name in """ChiefSessionCreator MonitoredSession MonitoredTrainingSession SessionCreator
            SingularMonitoredSession""".split()
        },
        **{
            name: f"running.coordination:{name}"
            for name in "Coordinator QueueRunner add_queue_runner start_queue_runners".split()
        },
        **{
            name: f"running.checkpoints:{name}"
            for name in "NewCheckpointReader list_variables load_checkpoint load_variable".split()
        },
        **{name: f"aexec.training:{name}" for name in "NanLossDuringTrainingError StopAtStepHook".split()},
        **{
            name: f"aexec.proto:{name}"
            for name in """BytesList ClusterDef Example Feature FeatureList FeatureLists Features FloatList Int64List
            SaverDef SequenceExample""".split()
        },
        **{
            name: f"values.framework_ops:{name}"
            for name in "create_global_step get_global_step get_or_create_global_step".split()
        },
        **{
            name: f"running.more_hooks:{name}"
            for name in "FeedFnHook FinalOpsHook GlobalStepWaiterHook SecondOrStepTimer".split()
        },
        **{name: f"running.warm_start:{name}" for name in "VocabInfo warm_start".split()},
        **{
            name: f"running.checkpoint_files:{name}"
            for name in """checkpoints_iterator generate_checkpoint_state_proto get_checkpoint_mtimes remove_checkpoint
            update_checkpoint_state""".split()
        },
        **{name: f"running.loops:{name}" for name in "LooperThread basic_train_loop".split()},
        "ProfilerHook": "running.profiler.hook:ProfilerHook",
        "SessionManager": "running.session_manager:SessionManager",
        "JobDef": "aexec.proto:JobDef",
        "queue_runner": "running.coordination",
        "assert_global_step": "values.framework_ops:assert_global_step",
        **{name: f"running.cluster:{name}" for name in "ClusterSpec Server".split()},
        "init_from_checkpoint": "running.checkpoints:init_from_checkpoint",
        "Supervisor": "running.supervisor:Supervisor",
        "summary_iterator": "functions.io:summary_iterator",
        "replica_device_setter": "aexec.training:replica_device_setter",
        "limit_epochs": "aexec.client.input:limit_epochs",
        "match_filenames_once": "ops:matching_files",
        "string_input_producer": "functions.io:string_input_producer",
    },
    {
        "Checkpoint": "checkpoints of objects are not there; use tf.train.Saver",
        "WorkerSessionCreator": "each process initialises or restores its own session: docs/distributed.md",
    },
)
