"""Names of nodes, dependencies, structures, files and the sizes of cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import aexec.compat.v1 as tf
from aexec.compat.v1.inner import (
    control_flow,
    datasets,
    file_io,
    framework_ops,
    initializers,
    modes,
    nested,
    recurrent,
    shapes,
)


def test_scopes_in_names() -> None:
    assert framework_ops.strip_name_scope("a/b/c", "a/b") == "c"
    assert framework_ops.strip_name_scope("a/b/c", "") == "a/b/c"
    assert framework_ops.strip_name_scope("loc:@a/x", "a") == "loc:@x"
    assert framework_ops.prepend_name_scope("x", "a/b/") == "a/b/x"
    assert framework_ops.prepend_name_scope("^x", "a") == "^a/x"
    assert framework_ops.prepend_name_scope("loc:@x", "a") == "loc:@a/x"
    assert framework_ops.prepend_name_scope("x", None) == "x"


def test_conversions() -> None:
    v = tf.Variable([1.0])
    assert framework_ops.internal_convert_to_tensor(v, as_ref=True) is v.reference
    assert [t.dtype for t in framework_ops.convert_n_to_tensor([1, 2.0], name="n")] == [tf.int32, tf.float32]
    assert len(framework_ops.internal_convert_n_to_tensor([1, v])) == 2
    with pytest.raises(TypeError, match="iterable"):
        framework_ops.convert_n_to_tensor(3)
    assert framework_ops.uid() < framework_ops.uid() and not framework_ops.inside_function()
    assert not isinstance(tf.constant(1), framework_ops.EagerTensor)
    with tf.Session() as sess, framework_ops.default_session(sess):
        assert tf.constant(3).eval() == 3


def test_dependencies_and_switches() -> None:
    count = tf.Variable(0)
    pred = tf.placeholder(tf.bool, [])
    after = control_flow.with_dependencies([count.assign_add(1)], tf.constant(5.0), name="after")
    no, yes = control_flow.switch(tf.constant(2.0), pred)
    merged = control_flow.merge([no * 10.0, yes])
    with tf.Session() as sess:
        sess.run(count.initializer)
        assert sess.run(after) == 5.0 and sess.run(count) == 1 and after.op.name == "after"
        assert sess.run([merged.output, merged.value_index], {pred: False}) == [20.0, 0]
        assert sess.run([merged.output, merged.value_index], {pred: True}) == [2.0, 1]


def test_structures_to_a_depth() -> None:
    assert nested.flatten_up_to([1, [2]], [[1, 2], [(3, 4)]]) == [[1, 2], (3, 4)]
    assert nested.map_structure_up_to([1, 2], lambda *pair: pair, [[1], 2], [3, [4]]) == [([1], 3), (2, [4])]
    structure = {"a": [1, {"b": 2}]}
    assert nested.flatten_with_joined_string_paths(structure) == [("a/0", 1), ("a/1/b", 2)]
    assert nested.flatten_with_tuple_paths(structure) == [(("a", 0), 1), (("a", 1, "b"), 2)]
    assert nested.map_structure_with_paths(lambda path, leaf: (path, leaf), {"a": [1]}) == {"a": [("a/0", 1)]}
    assert nested.flatten_dict_items({(4, 5): (6, 8)}) == {4: 6, 5: 8}
    assert nested.is_sequence((1,)) and not nested.is_sequence("a")


@pytest.mark.parametrize(
    ("shallow", "deep", "error", "words"),
    [
        ([1, 2], [1], ValueError, "Input structure has length 1, while shallow structure has length 2"),
        ([1, [2]], [1, 3], TypeError, "Input has type: <class 'int'>"),
        ({"a": 1}, {"b": 1}, ValueError, r"keys that are not in the input_tree: \['a'\]"),
        ([1], (1,), TypeError, "same sequence type"),
    ],
)
def test_structures_of_another_form(shallow: Any, deep: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        nested.assert_shallow_structure(shallow, deep)


def test_keys_of_another_form() -> None:
    for wrong in ({(1, 2): 3}, {(1, 1): (2, 3)}):
        with pytest.raises(ValueError, match="Could not flatten dictionary"):
            nested.flatten_dict_items(wrong)


def test_files(tmp_path: Path) -> None:
    folder, file = str(tmp_path / "a" / "b"), str(tmp_path / "a" / "b" / "c")
    file_io.recursive_create_dir(folder)
    file_io.write_string_to_file(file, "words")
    assert file_io.file_exists(file) and file_io.list_directory(folder) == ["c"]
    assert file_io.read_file_to_string(file) == "words" and file_io.read_file_to_string(file, True) == b"words"
    file_io.atomic_write_string_to_file(file, "others")
    with pytest.raises(tf.errors.AlreadyExistsError):
        file_io.atomic_write_string_to_file(file, "more", overwrite=False)
    assert file_io.read_file_to_string(file) == "others" and file_io.list_directory(folder) == ["c"]
    file_io.delete_recursively(folder)
    assert not file_io.is_directory(folder)


def test_sizes_and_zeros_of_cells() -> None:
    batch = tf.placeholder(tf.int32, [])
    x = tf.placeholder(tf.float32, [7, None, 3])
    assert recurrent._transpose_batch_time(x).shape.as_list() == [None, 7, 3]
    assert recurrent._transpose_batch_time(tf.constant([1.0])).shape == [1]
    assert recurrent._best_effort_input_batch_size([tf.zeros([7, 2])]) == 2
    assert recurrent._concat(2, tf.TensorShape([3, 4]), static=True) == [2, 3, 4]
    assert recurrent._maybe_tensor_shape_from_tensor(tf.constant([2, 3])) == [2, 3]
    assert recurrent._infer_state_dtype(None, [tf.zeros([1])]) == tf.float32
    with pytest.raises(ValueError, match="different inferred_dtypes"):
        recurrent._infer_state_dtype(None, [tf.zeros([1]), tf.constant(1)])
    state = recurrent._zero_state_tensors((3, tf.TensorShape([2, 2])), batch, tf.float32)
    assert [zeros.shape.as_list() for zeros in state] == [[None, 3], [None, 2, 2]]
    assert recurrent._zero_state_tensors(3, 4, tf.float32).shape == [4, 3]
    unknown = recurrent._transpose_batch_time(tf.placeholder_with_default([[[1.0, 2.0]]], None))
    size = recurrent._best_effort_input_batch_size([x])
    with tf.Session() as sess:
        assert [zeros.shape for zeros in sess.run(state, {batch: 5})] == [(5, 3), (5, 2, 2)]
        assert sess.run([unknown, size], {x: [[[0.0] * 3] * 6] * 7})[1] == 6


def test_products_of_cells() -> None:
    x, y = tf.ones([2, 3]), tf.ones([2, 1])
    made = recurrent._linear([x, y], 2, True, kernel_initializer=tf.ones_initializer())
    assert [v.name for v in tf.trainable_variables()] == ["kernel:0", "bias:0"]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert sess.run(made).tolist() == [[4.0, 4.0]] * 2
    for wrong, words in (
        ([], "must be specified"),
        ([tf.ones([2])], "2D"),
        ([tf.placeholder("float", [2, None])], "1"),
    ):
        with pytest.raises(ValueError, match=words):
            recurrent._linear(wrong, 2, True)


def test_what_is_a_cell() -> None:
    recurrent.assert_like_rnncell("cell", tf.nn.rnn_cell.GRUCell(2))
    assert recurrent._like_rnncell(tf.nn.rnn_cell.GRUCell(2)) and not recurrent._like_rnncell(3)
    with pytest.raises(TypeError, match="is not an RNNCell"):
        recurrent.assert_like_rnncell("cell", 3)


def test_small_things() -> None:
    assert modes.in_graph_mode() and not modes.in_eager_mode() and modes.num_gpus() >= 0
    with modes.graph_mode():
        assert shapes.scalar() == [] and shapes.vector(2) == [2] and shapes.matrix(2, 3) == [2, 3]
    assert shapes.unknown_shape().ndims is None and shapes.unknown_shape(ndims=2).as_list() == [None, None]
    assert shapes.as_shape([1]) == [1] and shapes.unknown_shape(2).ndims == 2
    with pytest.raises(TypeError, match="sizes"):
        shapes.unknown_shape(sizes=2)
    dataset = datasets.DatasetV1.range(3)
    assert datasets.get_legacy_output_types(dataset) == tf.int64


def test_initializers_of_programs() -> None:
    class Twos(initializers.Initializer):
        def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
            return tf.fill(shape, tf.constant(2.0, dtype))

    v = tf.get_variable("v", [2], initializer=Twos.from_config(Twos().get_config()))
    w = tf.get_variable("w", [2], initializer=initializers.Ones())
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert [value.tolist() for value in sess.run([v, w])] == [[2.0, 2.0], [1.0, 1.0]]
    with pytest.raises(NotImplementedError):
        initializers.Initializer()([2])
