"""`tf.nn`: functions of neural networks with TensorFlow's arguments, over `aexec.nn`.

Next to read: `rnn_cell.py`, `layers.py`.
"""

from __future__ import annotations

from typing import Any

from aexec import nn, ops
from aexec.compat.v1.namespace import chosen, namespace, refuse
from aexec.compat.v1.values.sparse import SparseTensor
from aexec.framework import errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = [
    "ctc_beam_search_decoder",
    "ctc_greedy_decoder",
    "dropout",
    "l2_normalize",
    "softmax_cross_entropy_with_logits",
]


def dropout(
    x: Any,
    keep_prob: Any = None,
    noise_shape: Any = None,
    seed: int | None = None,
    name: str | None = None,
    rate: Any = None,
) -> Tensor:
    """`tf.nn.dropout`: by the probability to drop, or to keep."""
    if keep_prob is not None:
        if rate is not None:
            raise errors.InvalidValueError("Cannot specify both rate and keep_prob")
        rate = 1 - keep_prob
    if rate is None:
        raise errors.InvalidValueError("rate must be given")
    return nn.dropout(x, rate, noise_shape, seed, name)


def l2_normalize(x: Any, axis: Any = None, epsilon: float = 1e-12, name: str | None = None, dim: Any = None) -> Tensor:
    """`tf.nn.l2_normalize`."""
    axes = chosen(axis=axis, dim=dim)
    if axes is None:
        from aexec.compat.v1.functions.array_ops import rank_of

        axes = list(range(rank_of(convert_to_tensor(x))))
    return nn.l2_normalize(x, axes, epsilon, name)


def softmax_cross_entropy_with_logits(
    labels: Any = None, logits: Any = None, dim: int = -1, name: str | None = None, axis: int | None = None
) -> Tensor:
    """`tf.nn.softmax_cross_entropy_with_logits`: labels get no gradient."""
    axis = dim if axis is None else axis
    return nn.softmax_cross_entropy_with_logits(ops.stop_gradient(labels), logits, axis, name)


def ctc_greedy_decoder(
    inputs: Any, sequence_length: Any, merge_repeated: bool = True, blank_index: int | None = None
) -> tuple[list[SparseTensor], Tensor]:
    """`tf.nn.ctc_greedy_decoder`; the blank is the last class."""
    refuse("ctc_greedy_decoder", blank_index=blank_index)
    (labels,), scores = nn.ctc_greedy_decoder(inputs, sequence_length, merge_repeated=merge_repeated)
    return [SparseTensor(*labels)], scores


_LABELS = "labels logits name"
_CLASSES = """weights biases labels inputs num_sampled num_classes num_true sampled_values remove_accidental_hits
partition_strategy name"""
_LOOP = "sequence_length initial_state dtype parallel_iterations swap_memory= time_major scope"
_POOL = "ksize strides padding data_format name"
_TRANSPOSED = """value=input filter=filters output_shape strides padding data_format name input filters dilations"""


def ctc_beam_search_decoder(
    inputs: Any, sequence_length: Any, beam_width: int = 100, top_paths: int = 1, merge_repeated: bool = True
) -> tuple[list[SparseTensor], Tensor]:
    """`tf.nn.ctc_beam_search_decoder`."""
    paths, scores = nn.ctc_beam_search_decoder(
        inputs, sequence_length, beam_width, top_paths, merge_repeated=merge_repeated
    )
    return [SparseTensor(*path) for path in paths], scores


__getattr__, __dir__ = namespace(
    __name__,
    {
        **{
            name: f"aexec.nn:{name}"
            for name in """atrous_conv2d atrous_conv2d_transpose batch_normalization bias_add elu erosion2d gelu
            all_candidate_sampler compute_accidental_hits fixed_unigram_candidate_sampler in_top_k l2_loss leaky_relu
            learned_unigram_candidate_sampler log_uniform_candidate_sampler normalize_moments relu relu6 relu_layer
            selu sigmoid softplus softsign static_bidirectional_rnn static_rnn static_state_saving_rnn tanh
            uniform_candidate_sampler xw_plus_b zero_fraction""".split()
        },
        **{name: f"aexec.nn:{name} | input {_POOL}" for name in "avg_pool1d avg_pool3d max_pool1d max_pool3d".split()},
        "avg_pool": f"aexec.nn:avg_pool | value {_POOL} input=value",
        "avg_pool2d": f"aexec.nn:avg_pool | value {_POOL} input=value",
        "avg_pool_v2": f"aexec.nn:avg_pool | input {_POOL}",
        "max_pool_v2": f"aexec.nn:max_pool | input {_POOL}",
        **{
            f"fractional_{kind}_pool": f"""ops:fractional_{kind}_pool | value pooling_ratio pseudo_random
            overlapping deterministic seed seed2 name"""
            for kind in ("avg", "max")
        },
        **{
            f"quantized_{kind}_pool": f"""ops:quantized_{kind}_pool | input min_input max_input ksize strides padding
            name"""
            for kind in ("avg", "max")
        },
        "quantized_relu_x": "ops:quantized_relu_x | features max_value min_features max_features out_type name",
        "quantized_conv2d": """ops:quantized_conv2d | input filter min_input max_input min_filter max_filter strides
        padding out_type dilations name""",
        "conv3d_backprop_filter": "ops:conv3d_backprop_filter_v2",
        "conv3d_backprop_filter_v2": "ops:conv3d_backprop_filter_v2",
        **{
            f"depthwise_conv2d{kind}_backprop_filter": """ops:depthwise_conv2d_native_backprop_filter | input
            filter_sizes out_backprop strides padding data_format dilations name"""
            for kind in ("", "_native")
        },
        **{
            f"depthwise_conv2d{kind}_backprop_input": """ops:depthwise_conv2d_native_backprop_input | input_sizes
            filter out_backprop strides padding data_format dilations name"""
            for kind in ("", "_native")
        },
        "space_to_batch": "functions.conversions:space_to_batch",
        "batch_norm_with_global_normalization": """aexec.nn:batch_norm_with_global_normalization | t m v beta gamma
        variance_epsilon scale_after_normalization name input=t mean=m variance=v""",
        "bidirectional_dynamic_rnn": """aexec.nn:bidirectional_dynamic_rnn | cell_fw cell_bw inputs sequence_length
        initial_state_fw initial_state_bw dtype parallel_iterations swap_memory= time_major scope""",
        "conv1d": """aexec.nn:conv1d | value=input filters stride padding use_cudnn_on_gpu= data_format name input
        dilations""",
        "conv2d": """aexec.nn:conv2d | input filter strides padding use_cudnn_on_gpu= data_format dilations name
        filters=filter""",
        "conv2d_backprop_filter": """ops:conv2d_backprop_filter | input filter_sizes out_backprop strides padding
        use_cudnn_on_gpu= data_format dilations name""",
        "conv2d_backprop_input": """ops:conv2d_backprop_input | input_sizes filter out_backprop strides padding
        use_cudnn_on_gpu= data_format dilations name filters=filter""",
        "conv2d_transpose": f"aexec.nn:conv2d_transpose | {_TRANSPOSED}",
        **{
            name: f"networks.more_nn:{name}"
            for name in """collapse_repeated compute_average_loss conv1d_transpose conv_transpose ctc_unique_labels
            ctc_beam_search_decoder_v2 ctc_loss_v2 scale_regularization_loss""".split()
        },
        "conv3d": "aexec.nn:conv3d | input filter strides padding data_format dilations name filters=filter",
        "conv3d_transpose": f"aexec.nn:conv3d_transpose | {_TRANSPOSED}",
        "convolution": """aexec.nn:convolution | input filter padding strides dilation_rate=dilations name data_format
        filters=filter dilations""",
        "crelu": "aexec.nn:crelu | features name axis",
        "ctc_loss": """aexec.nn:ctc_loss | labels inputs sequence_length preprocess_collapse_repeated ctc_merge_repeated
        ignore_longer_outputs_than_inputs time_major logits=inputs""",
        "depth_to_space": "ops:depth_to_space | input block_size name data_format",
        "depthwise_conv2d": """aexec.nn:depthwise_conv2d | input filter strides padding rate=dilations name data_format
        dilations""",
        "depthwise_conv2d_native": """ops:depthwise_conv2d_native | input filter strides padding data_format dilations
        name""",
        "dilation2d": """aexec.nn:dilation2d | input filter strides rates padding name filters=filter
        dilations=rates""",
        "dynamic_rnn": f"aexec.nn:dynamic_rnn | cell inputs {_LOOP}",
        "embedding_lookup": """aexec.nn:embedding_lookup | params ids partition_strategy name validate_indices=
        max_norm""",
        "embedding_lookup_sparse": """aexec.nn:embedding_lookup_sparse | params sp_ids sp_weights partition_strategy
        name combiner max_norm allow_fast_lookup=""",
        "fused_batch_norm": """aexec.nn:fused_batch_norm | x scale offset mean variance epsilon data_format is_training
        name exponential_avg_factor!1.0""",
        "local_response_normalization": "ops:lrn",
        "log_softmax": "aexec.nn:log_softmax | logits axis name dim=axis",
        "lrn": "ops:lrn",
        "max_pool": f"aexec.nn:max_pool | value {_POOL} input=value",
        "max_pool2d": f"aexec.nn:max_pool | input=value {_POOL}",
        "log_poisson_loss": "aexec.nn:log_poisson_loss | targets log_input compute_full_loss name",
        "max_pool_with_argmax": """aexec.nn:max_pool_with_argmax | input ksize strides padding data_format!NHWC
        Targmax=output_dtype name output_dtype include_batch_in_index""",
        "moments": "aexec.nn:moments | x axes shift= name keep_dims keepdims=keep_dims",
        "nce_loss": f"aexec.nn:nce_loss | {_CLASSES}",
        "pool": """aexec.nn:pool | input window_shape pooling_type padding dilation_rate=dilations strides name
        data_format!NHWC dilations""",
        "raw_rnn": "aexec.nn:raw_rnn | cell loop_fn parallel_iterations swap_memory= scope",
        "rnn_cell": "networks.rnn_cell",
        "safe_embedding_lookup_sparse": """aexec.nn:safe_embedding_lookup_sparse | embedding_weights sparse_ids
        sparse_weights combiner default_id name partition_strategy max_norm allow_fast_lookup=""",
        "sampled_softmax_loss": f"aexec.nn:sampled_softmax_loss | {_CLASSES} seed",
        "separable_conv2d": """aexec.nn:separable_conv2d | input depthwise_filter pointwise_filter strides padding
        rate=dilations name data_format dilations""",
        "sigmoid_cross_entropy_with_logits": f"aexec.nn:sigmoid_cross_entropy_with_logits | {_LABELS}",
        "silu": "aexec.nn:swish | features beta!1.0",
        "softmax": "aexec.nn:softmax | logits axis name dim=axis",
        "softmax_cross_entropy_with_logits_v2": """aexec.nn:softmax_cross_entropy_with_logits | labels logits axis name
        dim=axis""",
        "space_to_depth": "ops:space_to_depth | input block_size name data_format",
        "sparse_softmax_cross_entropy_with_logits": f"aexec.nn:sparse_softmax_cross_entropy_with_logits | {_LABELS}",
        "sufficient_statistics": """aexec.nn:sufficient_statistics | x axes shift keep_dims name
        keepdims=keep_dims""",
        "swish": "aexec.nn:swish | features beta!1.0",
        "top_k": "functions.math_ops:top_k",
        "weighted_cross_entropy_with_logits": """aexec.nn:weighted_cross_entropy_with_logits | labels logits pos_weight
        name targets=labels""",
        "weighted_moments": """aexec.nn:weighted_moments | x axes frequency_weights name keep_dims
        keepdims=keep_dims""",
    },
)
