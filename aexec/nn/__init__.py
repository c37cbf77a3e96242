"""Functions of neural networks, under TensorFlow's names: `aexec.nn.relu`, `aexec.nn.dropout`, `aexec.nn.moments`.

Those that are one op are the functions of `aexec.ops`; the modules have those that are several.
"""

from aexec.nn.activations import (
    bias_add,
    crelu,
    elu,
    gelu,
    leaky_relu,
    log_softmax,
    relu,
    relu6,
    selu,
    sigmoid,
    softmax,
    softplus,
    softsign,
    swish,
    tanh,
)
from aexec.nn.convolutions import avg_pool, conv2d, max_pool
from aexec.nn.cross_entropies import (
    l2_loss,
    sigmoid_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits,
    sparse_softmax_cross_entropy_with_logits,
    weighted_cross_entropy_with_logits,
)
from aexec.nn.embeddings import embedding_lookup
from aexec.nn.normalization import (
    batch_normalization,
    dropout,
    fused_batch_norm,
    l2_normalize,
    layer_norm,
    moments,
)
from aexec.nn.recurrent_cells import (
    BasicLSTMCell,
    BasicRNNCell,
    DropoutWrapper,
    GRUCell,
    LSTMCell,
    LSTMStateTuple,
    MultiRNNCell,
    ResidualWrapper,
    RNNCell,
)
from aexec.nn.recurrent_networks import bidirectional_dynamic_rnn, dynamic_rnn, static_rnn
from aexec.nn.sampled_losses import log_uniform_candidate_sampler, nce_loss, sampled_softmax_loss

__all__ = [
    "BasicLSTMCell",
    "BasicRNNCell",
    "DropoutWrapper",
    "GRUCell",
    "LSTMCell",
    "LSTMStateTuple",
    "MultiRNNCell",
    "RNNCell",
    "ResidualWrapper",
    "avg_pool",
    "batch_normalization",
    "bias_add",
    "bidirectional_dynamic_rnn",
    "conv2d",
    "crelu",
    "dropout",
    "dynamic_rnn",
    "elu",
    "embedding_lookup",
    "fused_batch_norm",
    "gelu",
    "l2_loss",
    "l2_normalize",
    "layer_norm",
    "leaky_relu",
    "log_softmax",
    "log_uniform_candidate_sampler",
    "max_pool",
    "moments",
    "nce_loss",
    "relu",
    "relu6",
    "sampled_softmax_loss",
    "selu",
    "sigmoid",
    "sigmoid_cross_entropy_with_logits",
    "softmax",
    "softmax_cross_entropy_with_logits",
    "softplus",
    "softsign",
    "sparse_softmax_cross_entropy_with_logits",
    "static_rnn",
    "swish",
    "tanh",
    "weighted_cross_entropy_with_logits",
]
