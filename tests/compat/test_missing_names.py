"""The names of TensorFlow's `compat.v1` that aexec's lacks, each with a reason.

`public_names.txt` lists those of TensorFlow 2.21, without Keras, estimators, TPUs, TensorFlow Lite and the experimental
ones.  `python -m tests.compat.test_missing_names` prints what is missing.
"""

from __future__ import annotations

from tests.compat.recorded.names import FILE, resolve
from tests.support.reasons import Reasons

# The first pattern that a name matches says why it is not there.
REASONS = {
    "eager execution, and functions that trace Python": """GradientTape enable_eager_execution enable_v2_behavior
    enable_tensor_equality enable_control_flow_v2 function wrap_function nondifferentiable_batch_function
    data.NumpyIterator test.with_eager_op_as_function""",
    "specifications of TensorFlow 2": "*Spec type_spec_from_value Module",
    "how TensorFlow itself was built, and its C++ libraries": """CXX* MONOLITHIC_BUILD sysconfig.* user_ops.*
    load_file_system_library check_pinned""",
    "parts of absl's flags that programs do not name: its parsers and classes": "flags.*",
    "linear operators that programs seldom use": "linalg.LinearOperator*",
    "queues by their base class, and readers and locks that programs seldom use": """*QueueBase LMDBReader
    CriticalSection""",
    "tensors that stay in a session between runs": "*_session_tensor get_session_handle",
    "checkpoints of objects": "train.Checkpoint train.CheckpointManager train.CheckpointOptions",
    "sessions of other processes: docs/distributed.md": """train.WorkerSessionCreator
    train.ServerDef test.create_local_cluster""",
    "SDCA, and quantisation by rewriting a graph": "train.sdca_* train.do_quantize_training_on_graphdef",
    "messages that programs do not make": "LogMessage logging.* summary.Summary*",
    "summaries of TensorFlow 2": "summary.*",
    "random generators with a state of their own": """random.Algorithm random.*Generator random.*global_generator
    random.create_rng_state random.fold_in random.split random.stateless_gamma
    random.stateless_parameterized_truncated_normal""",
    "no kernel, or only for accelerators": "*approx_* *decode_jxl *decode_webp",
    "gradients of convolutions and of others, as functions": """conv conv2d_backprop_* ragged_fill_empty_rows*
    nn.with_space_to_batch""",
    "ragged tensors that are joined or crossed": "ragged.*",
    "eigenvalues of matrices with three diagonals: tf.linalg.eigh has those of any": "linalg.eigh_tridiagonal",
    "parsing of ragged and sparse features at once": "*SparseFeature io.*",
    "boxes of a network's own": "image.generate_bounding_box_proposals",
    "SavedModels of TensorFlow 2": "saved_model.*",
    "checks that are switched on for a whole program": "debugging.*",
    "rewriting a graph's message": "graph_util.*",
    "tests of TensorFlow itself": "test.*",
    "a hook into each variable that is made: tf.variable_scope has a custom_getter": "variable_creator_scope",
}
WHY = Reasons(REASONS)


def missing() -> list[str]:
    names = (FILE.parent / "public_names.txt").read_text(encoding="utf-8").split()
    return [name for name in names if not is_there(name)]


def is_there(name: str) -> bool:
    try:
        resolve(name)
    except AttributeError:
        return False
    return True


def test_each_missing_name_has_a_reason() -> None:
    assert not WHY.unexplained(missing())


def test_each_reason_is_that_of_a_missing_name() -> None:
    assert not WHY.unused(missing())


def main() -> None:
    """Print what is missing, by its reason."""
    without = missing()
    WHY.show(without)


if __name__ == "__main__":
    main()
