"""Datasets made in Python: where their nodes go, what is refused, and what programs ask of them.

They use "data.dataset", "data.element_structure", "data.options" and "data.readers".
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

import aexec
import aexec.compat.v1 as tf
from aexec import errors
from aexec.control_flow.function import TensorSpec
from aexec.data import (
    CsvDataset,
    Dataset,
    FixedLengthRecordDataset,
    Iterator,
    Options,
    SparseTensorSpec,
    TextLineDataset,
    TFRecordDataset,
)
from aexec.data.element_structure import flattened, leaves_up_to, repacked
from aexec.graph.graph import set_default_graph


async def elements(dataset: Any, graph: aexec.Graph) -> list[Any]:
    """Those of a one-shot iterator."""
    with graph:
        following = dataset.make_one_shot_iterator().get_next()
    found = []
    async with aexec.Session(graph) as session:
        try:
            while True:
                found.append(await session.run(following))
        except errors.OutOfRangeError:
            return found


# Structures


def test_structure_is_flattened_in_the_order_of_keys_and_packed_again() -> None:
    structure = OrderedDict(b=(1, [2, 3]), a={"x": 4})
    assert flattened(structure) == [4, 1, [2, 3]]
    again = repacked(structure, [7, 8, 9])
    assert type(again) is OrderedDict and list(again) == ["b", "a"] and again["b"] == (8, 9)


def test_sparse_tensor_is_a_leaf() -> None:
    sparse = aexec.SparseTensor([[0]], [1], [3])
    assert flattened((sparse, 1)) == [sparse, 1]


@pytest.mark.parametrize("other", [(1,), {"a": 1}, 3])
def test_structures_of_other_forms_are_refused(other: Any) -> None:
    with pytest.raises(ValueError, match="shapes must have 2 parts"):
        leaves_up_to((1, 2), other, "shapes")


# Graphs


@pytest.fixture
def no_default_graph() -> Iterable[None]:
    """TensorFlow's names have set one for the process."""
    set_default_graph(None)
    yield
    tf.reset_default_graph()


@pytest.mark.usefixtures("no_default_graph")
async def test_dataset_outside_of_graphs_has_a_graph_of_its_own() -> None:
    dataset = Dataset.range(3).map(lambda x: x + 1).batch(2)
    other = Dataset.range(3)
    assert dataset.graph is not other.graph
    found = await elements(dataset, dataset.graph)
    assert [list(one) for one in found] == [[1, 2], [3]]


def test_dataset_of_another_graph_is_refused() -> None:
    with aexec.Graph():
        dataset = Dataset.range(3)
    with aexec.Graph(), pytest.raises(ValueError, match="RangeDataset"):
        dataset.batch(2)


def test_transformation_leaves_the_dataset_as_it_is() -> None:
    with aexec.Graph():
        dataset = Dataset.range(3)
        batches = dataset.batch(2, drop_remainder=True)
        assert dataset.element_spec == TensorSpec(dataset.output_shapes, aexec.int64)
        assert list(batches.output_shapes) == [2] and list(dataset.output_shapes) == []
        assert repr(batches) == "<Dataset 'BatchDatasetV2' of int64[2]>"


def test_function_is_called_once_with_the_parts_of_a_tuple() -> None:
    calls = []

    def function(*parts: Any) -> Any:
        calls.append(parts)
        return parts[0]

    with aexec.Graph():
        Dataset.zip((Dataset.range(3), Dataset.range(3))).map(function).repeat().batch(3)
    assert [len(parts) for parts in calls] == [2]


# What is refused


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda d: d.range(2).flat_map(lambda x: x), "must return a dataset"),
        (lambda d: d.range(2).map(lambda x: None), "must give tensors"),
        (lambda d: d.range(2).map(3), "expected a function"),
        (lambda d: d.range(2).window(2).batch(2), "cannot be batched"),
        (lambda d: d.range(), "one to three arguments"),
        (lambda d: d.zip(), "either"),
        (lambda d: d.zip((d.range(2), 3)), "structure of datasets"),
        (lambda d: d.range(2).window(2).padded_batch(2), "only for tensors"),
        (lambda d: d.range(2).padded_batch(2, [None]), "not compatible"),
        (lambda d: d.range(2).padded_batch(2, [], padding_values=1.5), "padding_value|float|int64"),
        (lambda d: d.sample_from_datasets([]), "should not be empty"),
        (lambda d: d.sample_from_datasets([d.range(2)], [0.5, 0.5]), "same length"),
        (lambda d: d.sample_from_datasets([d.range(2)], np.array([1], np.int64)), "float32 or float64"),
        (lambda d: d.choose_from_datasets([], d.range(2)), "should not be empty"),
        (lambda d: d.choose_from_datasets([d.range(2)], d.from_tensors("a")), "int64 scalars"),
        (lambda d: d.random(rerandomize_each_iteration=True), "rerandomize_each_iteration"),
        (lambda d: d.range(2).unbatch(), "no rows"),
        (lambda d: d.range(4).scan(np.int64(0), lambda s, x: s), "pair of state and output"),
        (lambda d: d.range(4).bucket_by_sequence_length(lambda x: x, [3], [1]), r"len\(bucket_boundaries\) \+ 1"),
        (lambda d: d.from_sparse_tensor_slices([1, 2]), "expected a sparse tensor"),
        (lambda d: TFRecordDataset(d.range(2)), "string scalars"),
        (lambda d: CsvDataset("x", [0], select_cols=[0], exclude_cols=[1]), "both"),
        (lambda d: Iterator.from_structure((aexec.int64, "float32"), ([],)), "must have 2 parts"),
        (lambda d: Iterator.from_structure("no type"), "no type"),
    ],
)
def test_mistake_is_refused(make: Any, words: str) -> None:
    with aexec.Graph(), pytest.raises((errors.InvalidArgumentError, errors.UnimplementedError), match=words):
        make(Dataset)


# What is known of elements


def test_dialects_differ_in_shapes_and_classes() -> None:
    with tf.Graph().as_default():
        theirs = tf.data.Dataset.from_tensor_slices(tf.SparseTensorValue([[0, 1]], [5], [2, 3]))
        assert theirs.output_classes is tf.SparseTensor and theirs.output_shapes.as_list() == [3]
        assert isinstance(tf.data.make_initializable_iterator(theirs).get_next(), tf.SparseTensor)
    with aexec.Graph():
        ours = Dataset.from_tensor_slices(aexec.SparseTensor([[0, 1]], [5], [2, 3]))
        assert ours.output_classes is aexec.SparseTensor
        assert ours.element_spec == SparseTensorSpec(ours.output_shapes, aexec.int32)


def test_readers_have_the_elements_that_files_have() -> None:
    with aexec.Graph():
        strings = [
            TFRecordDataset(["a", "b"]),
            TFRecordDataset(Dataset.from_tensors("a"), "GZIP", num_parallel_reads=2),
            TextLineDataset("a"),
            FixedLengthRecordDataset("a", 4, header_bytes=1, compression_type="ZLIB"),
        ]
        assert {(one.output_types, len(one.output_shapes)) for one in strings} == {(aexec.string, 0)}
        table = CsvDataset("a", [aexec.int32, "no", [1.5]], select_cols=[0, 2, 3])
        assert table.output_types == (aexec.int32, aexec.string, aexec.float32)
        names = Dataset.list_files("*.txt", seed=3)
        assert names.output_types is aexec.string
    with tf.Graph().as_default():
        assert isinstance(tf.data.TextLineDataset("a"), tf.data.Dataset)
        assert type(tf.data.TextLineDataset("a").skip(1)) is tf.data.Dataset


def test_options_are_merged_and_kept() -> None:
    first, second = Options(), Options()
    first.deterministic = True
    first.threading.private_threadpool_size = 4
    second.threading.max_intra_op_parallelism = 2
    second.deterministic = False
    with aexec.Graph():
        dataset = Dataset.range(3).with_options(first).map(lambda x: x).with_options(second).batch(2)
    found = dataset.options()
    assert (found.deterministic, found.threading.private_threadpool_size) == (False, 4)
    assert found.threading.max_intra_op_parallelism == 2 and first.threading.max_intra_op_parallelism is None
    assert repr(second.threading) == "ThreadingOptions(max_intra_op_parallelism=2)" and first != second
    with pytest.raises(AttributeError, match="has no option 'deterministc'"):
        first.deterministc = True
