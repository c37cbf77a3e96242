"""Op definitions: one module per family, registered in `framework.op_registry.global_registry` on import.

A definition says what an op is; how it is computed is in `aexec.kernels`, in the module of the same name.
"""

from typing import Any

from aexec.framework import op_registry
from aexec.ops import (
    activation_ops,
    array_ops,
    audio_ops,
    batch_ops,
    bitwise_ops,
    candidate_sampling_ops,
    clustering_ops,
    control_flow_ops,
    conv_ops,
    ctc_ops,
    cudnn_rnn_ops,
    cwise_ops,
    data_flow_ops,
    fft_ops,
    functional_ops,
    gather_scatter_ops,
    image_ops,
    io_ops,
    linalg_ops,
    list_ops,
    logging_ops,
    lookup_ops,
    math_ops,
    matmul_ops,
    nn_ops,
    parsing_ops,
    quantize_ops,
    ragged_ops,
    random_ops,
    reduction_ops,
    resource_variable_ops,
    rnn_ops,
    segment_ops,
    sendrecv_ops,
    session_ops,
    set_ops,
    slice_ops,
    sparse_csr_matrix_ops,
    sparse_ops,
    special_math_ops,
    staging_ops,
    state_ops,
    stateful_random_ops,
    stateless_random_ops,
    string_ops,
    summary_ops,
    training_ops,
)

__all__ = [
    "activation_ops",
    "array_ops",
    "audio_ops",
    "batch_ops",
    "bitwise_ops",
    "candidate_sampling_ops",
    "clustering_ops",
    "control_flow_ops",
    "conv_ops",
    "ctc_ops",
    "cudnn_rnn_ops",
    "cwise_ops",
    "data_flow_ops",
    "fft_ops",
    "functional_ops",
    "gather_scatter_ops",
    "image_ops",
    "io_ops",
    "linalg_ops",
    "list_ops",
    "logging_ops",
    "lookup_ops",
    "math_ops",
    "matmul_ops",
    "nn_ops",
    "parsing_ops",
    "quantize_ops",
    "ragged_ops",
    "random_ops",
    "reduction_ops",
    "resource_variable_ops",
    "rnn_ops",
    "segment_ops",
    "sendrecv_ops",
    "session_ops",
    "set_ops",
    "slice_ops",
    "sparse_csr_matrix_ops",
    "sparse_ops",
    "special_math_ops",
    "staging_ops",
    "state_ops",
    "stateful_random_ops",
    "stateless_random_ops",
    "string_ops",
    "summary_ops",
    "training_ops",
]


def __getattr__(name: str) -> Any:
    """`aexec.ops.mat_mul`: the function that adds a node of op MatMul to the current graph."""
    from aexec.graph import op_functions

    op = op_functions.function_names().get(name)
    if op is None:
        raise AttributeError(f"module 'aexec.ops' has no attribute {name!r}{op_functions.suggest(name)}")
    function = op_functions.make_function(op_registry.global_registry.lookup(op).op_def)
    globals()[name] = function
    return function


def __dir__() -> list[str]:
    from aexec.graph import op_functions

    return sorted([*__all__, *op_functions.function_names()])
