"""Whole loops of recurrent cells.  No graph has these ops: the pass `recurrent_loops` puts them in place of loops."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.ops.rnn import rnn_shapes as shapes

register_op(
    "_GRULoop(count: int32, size: int32, x: T, h: T, w_ru: T, b_ru: T, w_c: T, b_c: T) -> "
    "steps: int32, taken: int32, h_last: T, states: T",
    "keep_states: bool", "T: {float}", shape_fn=shapes.gru_loop,
)
register_op(
    "_LSTMLoop(count: int32, size: int32, x: T, c: T, h: T, w: T, u: T, b: T) -> steps: int32, "
    "taken: int32, c_last: T, h_last: T, states: T",
    "joined: bool", "keep_states: bool", "order: list(int) >= 4", "forget_bias: float = 0.0", "T: {float}",
    shape_fn=shapes.lstm_loop,
)
