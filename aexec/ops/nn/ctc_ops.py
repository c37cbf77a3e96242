"""Connectionist temporal classification: losses and decoders."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.ops.nn import ctc_shapes as shapes

register_op(
    "CTCBeamSearchDecoder(inputs: T, sequence_length: int32) -> decoded_indices: top_paths * int64, decoded_values: "
    "top_paths * int64, decoded_shape: top_paths * int64, log_probability: T",
    "beam_width: int >= 1", "top_paths: int", "merge_repeated: bool = true", "T: {float, double} = float",
    shape_fn=shapes.ctc_beam_search_decoder,
)
register_op(
    "CTCGreedyDecoder(inputs: T, sequence_length: int32) -> decoded_indices: int64, decoded_values: int64, "
    "decoded_shape: int64, log_probability: T",
    "merge_repeated: bool = false", "blank_index: int = -1", "T: {float, double} = float",
    shape_fn=shapes.ctc_greedy_decoder,
)
register_op(
    "CTCLoss(inputs: T, labels_indices: int64, labels_values: int32, sequence_length: int32) -> loss: T, gradient: T",
    "preprocess_collapse_repeated: bool = false", "ctc_merge_repeated: bool = true",
    "ignore_longer_outputs_than_inputs: bool = false", "T: {float, double} = float", shape_fn=shapes.ctc_loss,
)
register_op(
    "CTCLossV2(inputs: float, labels_indices: int64, labels_values: int32, sequence_length: int32) -> loss: float, "
    "gradient: float",
    "preprocess_collapse_repeated: bool = false", "ctc_merge_repeated: bool = true",
    "ignore_longer_outputs_than_inputs: bool = false", shape_fn=shapes.ctc_loss,
)
