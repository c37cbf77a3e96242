"""TensorFlow's graph mode under its own names: `import aexec.compat.v1 as tf`.

A program that was written for `tensorflow.compat.v1` runs with this import instead, with `tf.Session`, whose methods
block; or with `tf.AsyncSession`, whose `run` is awaited.  All its names are aexec's functions: the modules are tables
of names, and adapters if TensorFlow's arguments differ.  A missing name raises an error that says what to use instead.

Importing it makes a default graph, which is current outside of all `with graph.as_default():` blocks, and gives tensors
TensorFlow's other methods (`tensors.py`).  docs/from-tensorflow.md lists names.  Next to read: `namespace.py`.
"""

from __future__ import annotations

import sys
from typing import Any

from aexec.compat.v1.functions.math import NAMES as _MATH
from aexec.compat.v1.modules import MissingModules, ModulesOfRooms
from aexec.compat.v1.namespace import namespace
from aexec.compat.v1.values.tensors import get_default_graph as _get_default_graph

__all__ = ["NAMES", "disable_eager_execution", "disable_v2_behavior", "newaxis"]

_get_default_graph()


def disable_eager_execution(*ignored: Any) -> None:
    """Does nothing, since there is only graph mode."""


disable_v2_behavior = disable_control_flow_v2 = disable_tensor_equality = disable_eager_execution

newaxis = None

_TYPES = """bfloat16 complex128 complex64 double float16 float32 float64 half int16 int32 int64 int8 qint16 qint32 qint8
quint16 quint8 resource string uint16 uint32 uint64 uint8 variant""".split()

# Ops whose name and arguments equal TensorFlow's.
_SAME = """batch_to_space_nd bitcast broadcast_to check_numerics cholesky diag diag_part dynamic_partition
dynamic_stitch extract_volume_patches fft fft2d fft3d fftnd guarantee_const identity_n ifft ifft2d
ifft3d ifftnd irfftnd matching_files matrix_band_part matrix_determinant matrix_inverse matrix_square_root parse_tensor
read_file regex_replace reshape rfftnd roll serialize_tensor space_to_batch_nd stop_gradient string_strip
tensor_scatter_add tensor_scatter_max tensor_scatter_min tensor_scatter_sub tile timestamp unravel_index
write_file""".split()

_OURS = """fixed_size_partitioner min_max_variable_partitioner variable_axis_size_partitioner
add_to_collection clip_by_average_norm clip_by_global_norm clip_by_norm clip_by_value get_variable_scope
global_norm global_variables global_variables_initializer is_variable_initialized local_variables
local_variables_initializer model_variables moving_average_variables placeholder random_gamma random_normal
random_shuffle random_uniform set_random_seed trainable_variables truncated_normal tuple AUTO_REUSE
GraphKeys IndexedSlices VariableScope errors""".split()

_ARRAY = """boolean_mask broadcast_static_shape cast concat convert_to_tensor expand_dims eye gather meshgrid one_hot
ones_like pad placeholder_with_default range repeat reverse reverse_sequence sequence_mask shape shape_n
size slice split squeeze stack to_bfloat16 to_double to_float to_int32 to_int64 transpose unique
unique_with_counts unstack where zeros_like rank""".split()

_FLOW = """Assert Print TensorArray assert_equal assert_greater assert_greater_equal assert_less assert_less_equal
assert_non_negative assert_positive assert_rank case cond foldl foldr gradients hessians map_fn no_op scan
tables_initializer while_loop""".split()

_CHECKS = """assert_integer assert_near assert_negative assert_non_positive assert_none_equal assert_proper_iterable
assert_rank_at_least assert_rank_in assert_same_float_dtype assert_scalar assert_type is_non_decreasing
is_numeric_tensor is_strictly_increasing""".split()

_VARIABLES = """Variable assign assign_add assign_sub batch_scatter_update count_up_to
create_partitioned_variables get_local_variable get_variable scatter_add
scatter_div scatter_max scatter_min scatter_mul scatter_nd_add scatter_nd_sub scatter_nd_update scatter_sub
scatter_update variable_scope""".split()

_INITIALIZERS = """constant_initializer glorot_normal_initializer glorot_uniform_initializer ones_initializer
orthogonal_initializer random_normal_initializer random_uniform_initializer truncated_normal_initializer
uniform_unit_scaling_initializer variance_scaling_initializer zeros_initializer""".split()

_MESSAGES = """AttrValue ConfigProto Event GPUOptions GraphDef GraphOptions HistogramProto MetaGraphDef NameAttrList
NodeDef OptimizerOptions RunMetadata RunOptions SessionLog Summary SummaryMetadata TensorInfo""".split()

# TensorFlow's name → the place of its implementation; see `namespace`.
NAMES = {
    **_MATH,
    **{name: f"aexec:{name}" for name in (*_TYPES, *_OURS)},
    **{name: f"ops:{name}" for name in _SAME},
    **{name: f"functions.array_ops:{name}" for name in _ARRAY},
    **{name: f"functions.control_flow_ops:{name}" for name in _FLOW},
    **{name: f"functions.check_ops:{name}" for name in _CHECKS},
    **{name: f"functions.variables:{name}" for name in _VARIABLES},
    **{name: f"networks.initializers:{name}" for name in _INITIALIZERS},
    **{name: f"aexec.proto:{name}" for name in _MESSAGES},
    **{
        name: f"values.old_scopes:{name}"
        for name in """UnconnectedGradients VariableAggregation VariableSynchronization control_flow_v2_enabled get_seed
        init_scope no_regularizer op_scope""".split()
    },
    **{
        name: f"functions.conversions:{name}"
        for name in """batch_to_space convert_to_tensor_or_indexed_slices convert_to_tensor_or_sparse_tensor
        fingerprint make_ndarray make_tensor_proto parallel_stack register_tensor_conversion_function
        required_space_to_batch_paddings space_to_batch string_to_hash_bucket_strong tensor_scatter_nd_update""".split()
    },
    **{
        name: f"numerics.quantization:{name}"
        for kind in ("args", "vars", "vars_per_channel")
        for name in (f"fake_quant_with_min_max_{kind}", f"fake_quant_with_min_max_{kind}_gradient")
    },
    **{name: f"numerics.quantization:{name}" for name in "dequantize quantize quantize_v2 quantized_concat".split()},
    **{name: f"numerics.matrices:{name}" for name in "cholesky_solve matrix_solve_ls".split()},
    **{name: f"numerics.special:{name}" for name in "lbeta saturate_cast unsorted_segment_sqrt_n".split()},
    **{name: f"functions.{name}" for name in "manip ragged sets".split()},
    **{name: f"numerics.{name}" for name in "audio quantization spectral".split()},
    **{name: f"functions.{name}" for name in "image io linalg math random raw_ops debugging signal strings".split()},
    **{name: f"networks.{name}" for name in "distributions initializers layers losses metrics nn".split()},
    **{name: f"platform.{name}" for name in "app compat flags gfile logging nest resource_loader test version".split()},
    **{name: f"running.{name}" for name in "graph_util profiler queue saved_model summary train".split()},
    **{name: f"values.{name}" for name in "dtypes sparse".split()},
    **{
        name: f"functions.math_ops:{name}"
        for name in "argsort bincount div einsum matmul norm searchsorted sort tensordot".split()
    },
    **{name: f"running.session:{name}" for name in "AsyncSession InteractiveSession Session".split()},
    **{name: f"values.tensors:{name}" for name in "Graph get_default_graph reset_default_graph".split()},
    **{
        name: f"values.shapes:{name}"
        for name in """Dimension TensorShape dimension_at_index dimension_value disable_v2_tensorshape
        enable_v2_tensorshape""".split()
    },
    **{
        name: f"values.sparse:{name}"
        for name in """SparseTensor SparseTensorValue sparse_placeholder sparse_tensor_dense_matmul
        sparse_tensor_to_dense sparse_to_dense""".split()
    },
    **{
        name: f"functions.sparse_ops:{name}"
        for name in """deserialize_many_sparse serialize_many_sparse serialize_sparse sparse_add sparse_concat
        sparse_fill_empty_rows sparse_mask sparse_maximum sparse_merge sparse_minimum sparse_reduce_max
        sparse_reduce_max_sparse sparse_reduce_sum sparse_reduce_sum_sparse sparse_reorder sparse_reset_shape
        sparse_reshape sparse_retain sparse_segment_mean sparse_segment_sqrt_n sparse_segment_sum sparse_slice
        sparse_softmax sparse_split sparse_to_indicator sparse_transpose""".split()
    },
    **{
        name: f"running.coordination:{name}"
        for name in "FIFOQueue PaddingFIFOQueue PriorityQueue RandomShuffleQueue".split()
    },
    **{
        name: f"functions.io:{name}"
        for name in """FixedLenFeature FixedLengthRecordReader IdentityReader ReaderBase TFRecordReader TextLineReader
        VarLenFeature WholeFileReader decode_csv decode_raw parse_example parse_single_example""".split()
    },
    **{
        name: f"functions.linalg:{name}"
        for name in """matrix_solve matrix_transpose matrix_triangular_solve qr self_adjoint_eig self_adjoint_eigvals
        svd trace""".split()
    },
    "DType": "aexec:DType",
    "DeviceSpec": "values.device_spec:DeviceSpec",
    **{f"matrix_{name}": f"functions.linalg:matrix_{name}" for name in "diag diag_part set_diag".split()},
    **{name: f"values.framework_ops:{name}" for name in "control_dependencies device group name_scope".split()},
    **{
        name: f"running.accumulators:{name}"
        for name in "ConditionalAccumulator ConditionalAccumulatorBase SparseConditionalAccumulator".split()
    },
    "QUANTIZED_DTYPES": "values.dtypes:QUANTIZED_DTYPES",
    "add_check_numerics_ops": "functions.check_ops:add_check_numerics_ops",
    "arg_max": "functions.math_ops:argmax | input dimension output_type name",
    "arg_min": "functions.math_ops:argmin | input dimension output_type name",
    "as_dtype": "aexec:as_dtype | type_value=value",
    "assert_variables_initialized": "aexec:assert_variables_initialized | var_list=variables",
    "colocate_with": "aexec:colocate_with | op=item ignore_existing=",
    "complex": "functions.math:complex",
    "constant": "aexec:constant | value dtype shape name verify_shape!",
    "contrib": "contrib",
    "container": "aexec:container | container_name=name",
    "grad_pass_through": "values.framework_ops:grad_pass_through",
    "custom_gradient": "aexec:custom_gradient | f=function",
    "depth_to_space": "networks.nn:depth_to_space",
    "edit_distance": "values.sparse:edit_distance",
    "estimator": "estimator",
    "feature_column": "feature_column",
    "ensure_shape": "ops:ensure_shape | x=input shape name",
    "fill": "ops:fill | dims value name layout!",
    "gather_nd": "ops:gather_nd | params indices name batch_dims! bad_indices_policy",
    "get_collection": "aexec:get_collection | key=name scope",
    "get_collection_ref": "aexec:get_collection_ref | key=name",
    "histogram_fixed_width": "functions.math_ops:histogram_fixed_width",
    "identity": "aexec:identity | input=value name",
    "import_graph_def": """aexec:import_graph_def | graph_def input_map return_elements name op_dict!
    producer_op_list!""",
    "initialize_variables": "aexec:variables_initializer | var_list=variables name",
    "lin_space": "ops:lin_space | start stop num name axis!",
    "linspace": "ops:lin_space | start stop num name axis!",
    "load_op_library": "aexec:load_library | library_filename=library",
    "ones": "aexec:ones | shape dtype name layout!",
    "report_uninitialized_variables": "aexec:report_uninitialized_variables | var_list=variables name",
    "scatter_nd": "ops:scatter_nd | indices updates shape bad_indices_policy name",
    "space_to_depth": "networks.nn:space_to_depth",
    "RaggedTensor": "values.ragged:RaggedTensor",
    "decode_compressed": "ops:decode_compressed",
    "decode_json_example": "ops:decode_json_example",
    "executing_eagerly_outside_functions": "values.framework_ops:executing_eagerly",
    "is_symbolic_tensor": "values.framework_ops:is_symbolic_tensor",
    "load_library": "aexec:load_library | library_location=library",
    "no_gradient": "values.framework_ops:no_gradient",
    "realdiv": "ops:real_div",
    "string_to_hash_bucket": "ops:string_to_hash_bucket | string_tensor num_buckets name input=string_tensor",
    "tensor_scatter_nd_add": "ops:tensor_scatter_add",
    "tensor_scatter_nd_max": "ops:tensor_scatter_max",
    "tensor_scatter_nd_min": "ops:tensor_scatter_min",
    "tensor_scatter_nd_sub": "ops:tensor_scatter_sub",
    "to_complex128": "functions.array_ops:to_complex128",
    "to_complex64": "functions.array_ops:to_complex64",
    "switch_case": "functions.control_flow_ops:switch_case",
    "vectorized_map": "functions.control_flow_ops:vectorized_map",
    "broadcast_dynamic_shape": "ops:broadcast_args | shape_x=s0 shape_y=s1",
    "histogram_fixed_width_bins": "functions.math_ops:histogram_fixed_width_bins",
    **{
        name: f"numerics.sequence_examples:{name}"
        for name in "FixedLenSequenceFeature parse_single_sequence_example".split()
    },
    "py_function": "functions.script_ops:py_function",
    "resource_variables_enabled": "functions.variables:resource_variables_enabled",
    "sparse_matmul": "ops:sparse_mat_mul",
    "strided_slice": "functions.array_ops:strided_slice",
    "random_index_shuffle": "ops:random_index_shuffle",
    "string_to_hash_bucket_fast": "ops:string_to_hash_bucket_fast | input num_buckets name",
    "tensor_scatter_update": "ops:tensor_scatter_update | tensor indices updates name",
    "variables_initializer": "aexec:variables_initializer | var_list=variables name",
    "verify_tensor_all_finite": "ops:check_numerics | t=tensor msg=message name x=tensor message",
    "zeros": "aexec:zeros | shape dtype name layout!",
    "NoGradient": "values.framework_ops:no_gradient",
    "NotDifferentiable": "values.framework_ops:no_gradient",
    "Operation": "aexec:Node",
    "RegisterGradient": "values.framework_ops:register_gradient",
    "Tensor": "aexec:Tensor",
    "TensorSpec": "aexec:TensorSpec",
    "__version__": "aexec:__version__",
    **{
        name: f"platform.version:{name}"
        for name in """COMPILER_VERSION GIT_VERSION GRAPH_DEF_VERSION GRAPH_DEF_VERSION_MIN_CONSUMER
        GRAPH_DEF_VERSION_MIN_PRODUCER VERSION""".split()
    },
    "AggregationMethod": "values.framework_ops:AggregationMethod",
    "OpError": "aexec.errors:OpError",
    "executing_eagerly": "values.framework_ops:executing_eagerly",
    "extract_image_patches": "functions.image:extract_image_patches",
    "floor_div": "ops:floor_div",
    "get_logger": "platform.logging:get_logger",
    "is_tensor": "values.framework_ops:is_tensor",
    "log_sigmoid": "functions.math:log_sigmoid",
    "make_template": "values.template:make_template",
    "print": "functions.control_flow_ops:print_",
    "setdiff1d": "functions.array_ops:setdiff1d",
    "truncatediv": "ops:truncate_div",
    "truncatemod": "ops:truncate_mod",
    "unsorted_segment_mean": "functions.math_ops:unsorted_segment_mean",
    "variable_op_scope": "functions.variables:variable_op_scope",
    "where_v2": "ops:select_v2 | condition x=t y=e name",
    "add_to_collections": "values.framework_ops:add_to_collections",
    "all_variables": "aexec:global_variables",
    "as_string": "functions.strings:as_string",
    "batch_gather": "functions.array_ops:batch_gather",
    "bitwise": "functions.bitwise",
    "data": "functions.data",
    "lookup": "functions.lookup",
    "bool": "aexec:bool_",
    "ceil": "ops:ceil",
    "decode_base64": "ops:decode_base64",
    "disable_resource_variables": "functions.variables:disable_resource_variables",
    "enable_resource_variables": "functions.variables:enable_resource_variables",
    "encode_base64": "ops:encode_base64",
    "get_static_value": "values.static_values:get_static_value",
    "get_default_session": "values.default_session:get_default_session",
    "initialize_all_variables": "aexec:global_variables_initializer",
    "initialize_all_tables": "functions.control_flow_ops:tables_initializer",
    "initialize_local_variables": "aexec:local_variables_initializer",
    "multinomial": "functions.random:multinomial",
    "python_io": "functions.io",
    "py_func": "functions.script_ops:py_func",
    "numpy_function": "functions.script_ops:py_func | func inp Tout stateful name",
    "random_crop": "functions.random:random_crop",
    "recompute_grad": "aexec:recompute_grad | f=function",
    "random_poisson": "functions.random:random_poisson",
    "random_normal_initializer": "networks.initializers:random_normal_initializer",
    "reduce_join": "functions.strings:reduce_join",
    "reverse_v2": "functions.array_ops:reverse",
    "self_adjoint_eig": "functions.linalg:self_adjoint_eig",
    "string_join": "functions.strings:join",
    "string_split": "functions.strings:string_split",
    "string_to_number": "functions.strings:to_number",
    "substr": "functions.strings:substr",
}
_LAYERS = "layers are functions here (tf.layers, aexec.nn), and variables are those of tf.get_variable"
_EAGER = "there is no eager execution: build a graph and run it in a session"

_MISSING = {
    "GradientTape": _EAGER,
    "distribute": "see docs/distributed.md, and docs/training.md for several replicas",
    "enable_eager_execution": _EAGER,
    "enable_v2_behavior": _EAGER,
    "function": "use aexec.function, or tf.while_loop and tf.cond",
    "keras": _LAYERS,
    "lite": "aexec runs graphs as they are, or OpenVINO runs regions of them: docs/delegates.md",
    "CriticalSection": "steps of one session may run at once: let one task run those that must not",
    "LMDBReader": "convert the records to TFRecord files",
    "Module": "variables are those of tf.get_variable and tf.variable_scope",
    "enable_control_flow_v2": "loops and conditionals are nodes",
    "enable_tensor_equality": "tensors are compared with tf.equal; == says whether they are the same",
    "load_file_system_library": "tf.gfile has local files",
    "variable_creator_scope": "use the custom_getter of tf.variable_scope",
    "sysconfig": "ops of one's own are Python functions: aexec.op",
    "tpu": "there are no TPUs",
    "user_ops": "use aexec.op",
    "wrap_function": "use aexec.function",
    "python": "its parts are TensorFlow's own, and not for programs: take the public name, as tf.Tensor",
}

__getattr__, __dir__ = namespace(__name__, NAMES, _MISSING)
_ROOMS = "platform values functions numerics networks running".split()
sys.meta_path += ModulesOfRooms(__name__, _ROOMS), MissingModules(__name__, _MISSING)
