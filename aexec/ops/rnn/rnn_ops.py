"""Fused LSTM and GRU cells."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.ops.rnn import rnn_shapes as shapes

register_op(
    "BlockLSTM(seq_len_max: int64, x: T, cs_prev: T, h_prev: T, w: T, wci: T, wcf: T, wco: T, b: T) -> i: T, cs: T, "
    "f: T, o: T, ci: T, co: T, h: T",
    "forget_bias: float = 1.0", "cell_clip: float = 3.0", "use_peephole: bool = false", "T: {half, float}",
    shape_fn=shapes.block_lstm,
)
register_op(
    "BlockLSTMGrad(seq_len_max: int64, x: T, cs_prev: T, h_prev: T, w: T, wci: T, wcf: T, wco: T, b: T, i: T, cs: "
    "T, f: T, o: T, ci: T, co: T, h: T, cs_grad: T, h_grad: T) -> x_grad: T, cs_prev_grad: T, h_prev_grad: T, "
    "w_grad: T, wci_grad: T, wcf_grad: T, wco_grad: T, b_grad: T",
    "use_peephole: bool", "T: {half, float}", shape_fn=shapes.block_lstm_grad,
)
register_op(
    "BlockLSTMGradV2(seq_len_max: int64, x: T, cs_prev: T, h_prev: T, w: T, wci: T, wcf: T, wco: T, b: T, i: T, cs: "
    "T, f: T, o: T, ci: T, co: T, h: T, cs_grad: T, h_grad: T) -> x_grad: T, cs_prev_grad: T, h_prev_grad: T, "
    "w_grad: T, wci_grad: T, wcf_grad: T, wco_grad: T, b_grad: T",
    "use_peephole: bool", "T: {half, float}", shape_fn=shapes.block_lstm_grad,
)
register_op(
    "BlockLSTMV2(seq_len_max: int64, x: T, cs_prev: T, h_prev: T, w: T, wci: T, wcf: T, wco: T, b: T) -> i: T, cs: "
    "T, f: T, o: T, ci: T, co: T, h: T",
    "cell_clip: float = 0.0", "use_peephole: bool = false", "T: {half, float}", shape_fn=shapes.block_lstm,
)
register_op(
    "GRUBlockCell(x: T, h_prev: T, w_ru: T, w_c: T, b_ru: T, b_c: T) -> r: T, u: T, c: T, h: T",
    "T: {float}", shape_fn=shapes.block_cell,
)
register_op(
    "GRUBlockCellGrad(x: T, h_prev: T, w_ru: T, w_c: T, b_ru: T, b_c: T, r: T, u: T, c: T, d_h: T) -> d_x: T, "
    "d_h_prev: T, d_c_bar: T, d_r_bar_u_bar: T",
    "T: {float}", shape_fn=shapes.gru_block_cell_grad,
)
register_op(
    "LSTMBlockCell(x: T, cs_prev: T, h_prev: T, w: T, wci: T, wcf: T, wco: T, b: T) -> i: T, cs: T, f: T, o: T, ci: "
    "T, co: T, h: T",
    "forget_bias: float = 1.0", "cell_clip: float = 3.0", "use_peephole: bool = false", "T: {half, float}",
    shape_fn=shapes.block_cell,
)
register_op(
    "LSTMBlockCellGrad(x: T, cs_prev: T, h_prev: T, w: T, wci: T, wcf: T, wco: T, b: T, i: T, cs: T, f: T, o: T, "
    "ci: T, co: T, cs_grad: T, h_grad: T) -> cs_prev_grad: T, dicfo: T, wci_grad: T, wcf_grad: T, wco_grad: T",
    "use_peephole: bool", "T: {half, float}", shape_fn=shapes.lstm_block_cell_grad,
)
