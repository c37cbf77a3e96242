"""`tf.contrib.slim`: the namespace of slim: layers under slim's names, variables, and a training loop.

Next to read: `layers.py`, `framework.py`, `slim_learning.py`.
"""

from __future__ import annotations

from aexec.compat.v1.namespace import namespace

__all__: list[str] = []

_LAYERS = """avg_pool2d batch_norm bias_add conv2d conv2d_transpose convolution convolution2d convolution2d_transpose
dropout embed_sequence flatten fully_connected instance_norm l1_l2_regularizer l1_regularizer l2_regularizer
layer_norm linear max_pool2d one_hot_encoding optimize_loss relu repeat separable_conv2d separable_convolution2d
softmax stack sum_regularizer unit_norm variance_scaling_initializer xavier_initializer xavier_initializer_conv2d
apply_regularization""".split()

_FRAMEWORK = """add_arg_scope arg_scope arg_scoped_arguments assign_from_checkpoint assign_from_checkpoint_fn
assign_from_values assign_from_values_fn create_global_step current_arg_scope filter_variables get_global_step
get_local_variables get_model_variables get_or_create_global_step get_trainable_variables get_unique_variable
get_variables get_variables_by_name get_variables_by_suffix get_variables_to_restore has_arg_scope local_variable
model_variable variable""".split()

__getattr__, __dir__ = namespace(
    __name__,
    {
        **{name: f"contrib.layers:{name}" for name in _LAYERS},
        **{name: f"contrib.framework:{name}" for name in _FRAMEWORK},
        "learning": "contrib.slim_learning",
        "losses": "contrib.slim_losses",
        "metrics": "contrib.metrics",
        "utils": "contrib.slim_utils",
    },
    {
        "dataset": "input comes from queues (tf.train.batch, docs/queues.md), or is fed",
        "evaluation": "run tf.metrics in a session, after saver.restore",
        "nets": "slim's networks are programs of their own: put their files beside yours",
        "queues": "use tf.train.start_queue_runners",
        "tfexample_decoder": "use tf.parse_single_example",
    },
)
