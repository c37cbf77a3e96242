"""`tf.nn.rnn_cell`: a table of recurrent cells.

Next to read: `aexec/nn/recurrent_cells.py`.
"""

from __future__ import annotations

from aexec.compat.v1.namespace import namespace

__all__: list[str] = []

# Weights are shared as the scope says, and have the type of the inputs.
__getattr__, __dir__ = namespace(
    __name__,
    {
        "BasicLSTMCell": """aexec.nn:BasicLSTMCell | num_units forget_bias state_is_tuple!True activation reuse= name
        dtype=""",
        "BasicRNNCell": "aexec.nn:BasicRNNCell | num_units activation reuse= name dtype=",
        "DropoutWrapper": """aexec.nn:DropoutWrapper | cell input_keep_prob output_keep_prob state_keep_prob
        variational_recurrent! input_size= dtype= seed dropout_state_filter_visitor!""",
        "GRUCell": """aexec.nn:GRUCell | num_units activation reuse= kernel_initializer bias_initializer name dtype=""",
        "LSTMCell": """aexec.nn:LSTMCell | num_units use_peepholes cell_clip initializer num_proj proj_clip
        num_unit_shards! num_proj_shards! forget_bias state_is_tuple!True activation reuse= name dtype=""",
        "LSTMStateTuple": "aexec.nn:LSTMStateTuple",
        "MultiRNNCell": "aexec.nn:MultiRNNCell | cells state_is_tuple!True",
        "RNNCell": "aexec.nn:RNNCell",
        "ResidualWrapper": "aexec.nn:ResidualWrapper | cell residual_fn!",
    },
    {"DeviceWrapper": "use tf.device where the network is built"},
)
