"""Recurrent layers in cuDNN's parameter layout."""

from aexec.framework.op_contract.op_registry import register_op

DIRECTIONS = "{'unidirectional', 'bidirectional'}"
FLOATS = "{bfloat16, half, float, double}"
INPUT_MODES = "{'linear_input', 'skip_input', 'auto_select'}"
RNN_MODES = "{'rnn_relu', 'rnn_tanh', 'lstm', 'gru'}"

register_op(
    "CudnnRNN(input: T, input_h: T, input_c: T, params: T) -> output: T, output_h: T, output_c: T, reserve_space: T",
    f"T: {FLOATS}", f"rnn_mode: {RNN_MODES} = 'lstm'", f"input_mode: {INPUT_MODES} = 'linear_input'",
    f"direction: {DIRECTIONS} = 'unidirectional'", "dropout: float = 0.0", "seed: int = 0", "seed2: int = 0",
    "is_training: bool = true", stateful=True,
)
register_op(
    "CudnnRNNBackprop(input: T, input_h: T, input_c: T, params: T, output: T, output_h: T, output_c: T, "
    "output_backprop: T, output_h_backprop: T, output_c_backprop: T, reserve_space: T) -> input_backprop: T, "
    "input_h_backprop: T, input_c_backprop: T, params_backprop: T",
    f"T: {FLOATS}", f"rnn_mode: {RNN_MODES} = 'lstm'", f"input_mode: {INPUT_MODES} = 'linear_input'",
    f"direction: {DIRECTIONS} = 'unidirectional'", "dropout: float = 0.0", "seed: int = 0", "seed2: int = 0",
    stateful=True,
)
register_op(
    "CudnnRNNBackpropV2(input: T, input_h: T, input_c: T, params: T, output: T, output_h: T, output_c: T, "
    "output_backprop: T, output_h_backprop: T, output_c_backprop: T, reserve_space: T, host_reserved: int8) -> "
    "input_backprop: T, input_h_backprop: T, input_c_backprop: T, params_backprop: T",
    f"T: {FLOATS}", f"rnn_mode: {RNN_MODES} = 'lstm'", f"input_mode: {INPUT_MODES} = 'linear_input'",
    f"direction: {DIRECTIONS} = 'unidirectional'", "dropout: float = 0.0", "seed: int = 0", "seed2: int = 0",
    stateful=True,
)
register_op(
    "CudnnRNNBackpropV3(input: T, input_h: T, input_c: T, params: T, sequence_lengths: int32, output: T, output_h: "
    "T, output_c: T, output_backprop: T, output_h_backprop: T, output_c_backprop: T, reserve_space: T, "
    "host_reserved: int8) -> input_backprop: T, input_h_backprop: T, input_c_backprop: T, params_backprop: T",
    f"T: {FLOATS}", f"rnn_mode: {RNN_MODES} = 'lstm'", f"input_mode: {INPUT_MODES} = 'linear_input'",
    f"direction: {DIRECTIONS} = 'unidirectional'", "dropout: float = 0.0", "seed: int = 0", "seed2: int = 0",
    "num_proj: int = 0", "time_major: bool = true", stateful=True,
)
register_op(
    "CudnnRNNCanonicalToParams(num_layers: int32, num_units: int32, input_size: int32, weights: num_params * T, "
    "biases: num_params * T) -> params: T",
    f"T: {FLOATS}", "num_params: int", f"rnn_mode: {RNN_MODES} = 'lstm'", f"input_mode: {INPUT_MODES} = 'linear_input'",
    f"direction: {DIRECTIONS} = 'unidirectional'", "dropout: float = 0.0", "seed: int = 0", "seed2: int = 0",
)
register_op(
    "CudnnRNNCanonicalToParamsV2(num_layers: int32, num_units: int32, input_size: int32, weights: "
    "num_params_weights * T, biases: num_params_biases * T) -> params: T",
    f"T: {FLOATS}", "num_params_weights: int", "num_params_biases: int", f"rnn_mode: {RNN_MODES} = 'lstm'",
    f"input_mode: {INPUT_MODES} = 'linear_input'", f"direction: {DIRECTIONS} = 'unidirectional'",
    "dropout: float = 0.0", "seed: int = 0", "seed2: int = 0", "num_proj: int = 0",
)
register_op(
    "CudnnRNNParamsSize(num_layers: int32, num_units: int32, input_size: int32) -> params_size: S",
    f"T: {FLOATS}", "S: {int32, int64}", f"rnn_mode: {RNN_MODES} = 'lstm'",
    f"input_mode: {INPUT_MODES} = 'linear_input'", f"direction: {DIRECTIONS} = 'unidirectional'",
    "dropout: float = 0.0", "seed: int = 0", "seed2: int = 0", "num_proj: int = 0",
)
register_op(
    "CudnnRNNParamsToCanonical(num_layers: int32, num_units: int32, input_size: int32, params: T) -> weights: "
    "num_params * T, biases: num_params * T",
    f"T: {FLOATS}", "num_params: int", f"rnn_mode: {RNN_MODES} = 'lstm'", f"input_mode: {INPUT_MODES} = 'linear_input'",
    f"direction: {DIRECTIONS} = 'unidirectional'", "dropout: float = 0.0", "seed: int = 0", "seed2: int = 0",
)
register_op(
    "CudnnRNNParamsToCanonicalV2(num_layers: int32, num_units: int32, input_size: int32, params: T) -> weights: "
    "num_params_weights * T, biases: num_params_biases * T",
    f"T: {FLOATS}", "num_params_weights: int", "num_params_biases: int", f"rnn_mode: {RNN_MODES} = 'lstm'",
    f"input_mode: {INPUT_MODES} = 'linear_input'", f"direction: {DIRECTIONS} = 'unidirectional'",
    "dropout: float = 0.0", "seed: int = 0", "seed2: int = 0", "num_proj: int = 0",
)
register_op(
    "CudnnRNNV2(input: T, input_h: T, input_c: T, params: T) -> output: T, output_h: T, output_c: T, reserve_space: "
    "T, host_reserved: int8",
    f"T: {FLOATS}", f"rnn_mode: {RNN_MODES} = 'lstm'", f"input_mode: {INPUT_MODES} = 'linear_input'",
    f"direction: {DIRECTIONS} = 'unidirectional'", "dropout: float = 0.0", "seed: int = 0", "seed2: int = 0",
    "is_training: bool = true", stateful=True,
)
register_op(
    "CudnnRNNV3(input: T, input_h: T, input_c: T, params: T, sequence_lengths: int32) -> output: T, output_h: T, "
    "output_c: T, reserve_space: T, host_reserved: int8",
    f"T: {FLOATS}", f"rnn_mode: {RNN_MODES} = 'lstm'", f"input_mode: {INPUT_MODES} = 'linear_input'",
    f"direction: {DIRECTIONS} = 'unidirectional'", "dropout: float = 0.0", "seed: int = 0", "seed2: int = 0",
    "num_proj: int = 0", "is_training: bool = true", "time_major: bool = true", stateful=True,
)
