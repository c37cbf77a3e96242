"""Programs with datasets, written once for TensorFlow and for `aexec.compat.v1`, and a recorder of what they give.

In an environment with TensorFlow 2.21, from the root of the repository, `python -m tests.data.programs` writes the
answers of TensorFlow into `programs.json`.
"""

from __future__ import annotations

import base64
import json
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["PROGRAMS", "RECORDED", "answer"]

RECORDED = Path(__file__).parent / "programs.json"

Point = namedtuple("Point", "x y")


def as_data(value: Any) -> Any:
    """What a run gave, or what a program asked of a dataset, as JSON has it."""
    if isinstance(value, dict):
        return {str(key): as_data(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        kind = [type(value).__name__] if hasattr(value, "_fields") else []
        return kind + [as_data(part) for part in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    array = np.asarray(value)
    if array.dtype.kind in "OS":
        texts = [base64.b64encode(text).decode() for text in array.astype(object).ravel().tolist()]
        return ["string", list(array.shape), texts]
    return [array.dtype.name, list(array.shape), array.ravel().tolist()]


def answer(tf: Any, program: Callable[[Any, Any], Any]) -> Any:
    """What a program gives in a graph and a session of its own, or the class of Python's error."""
    with tf.Graph().as_default(), tf.Session() as sess:
        try:
            return as_data(program(tf, sess))
        except (TypeError, ValueError) as error:
            return "TypeError" if isinstance(error, TypeError) else "ValueError"
        except tf.errors.OpError as error:
            return type(error).__name__


def all_of(tf: Any, sess: Any, fetches: Any, most: int = 40) -> list[Any]:
    """The values of fetches until the end, and the class of an error that is not the end."""
    found: list[Any] = []
    while len(found) < most:
        try:
            found.append(sess.run(fetches))
        except tf.errors.OutOfRangeError:
            return found
        except tf.errors.OpError as error:
            found.append(type(error).__name__)
    return found


def elements(tf: Any, sess: Any, dataset: Any) -> list[Any]:
    """The elements of a one-shot iterator."""
    return all_of(tf, sess, tf.data.make_one_shot_iterator(dataset).get_next())


def described(tf: Any, dataset: Any) -> list[Any]:
    """Types, shapes and classes."""
    return [
        [dtype.name for dtype in tf.nest.flatten(tf.data.get_output_types(dataset))],
        [shape.as_list() for shape in tf.nest.flatten(tf.data.get_output_shapes(dataset))],
        getattr(tf.data.get_output_classes(dataset), "__name__", "a structure"),
    ]


# Structures


def dict_of_tuples(tf: Any, sess: Any) -> Any:
    slices = tf.data.Dataset.from_tensor_slices({"b": [1, 2, 3], "a": (np.zeros([3, 2], np.float32), ["x", "y", "z"])})
    return [slices.output_types["b"].name, elements(tf, sess, slices.batch(2))]


def named_tuples(tf: Any, sess: Any) -> Any:
    dataset = tf.data.Dataset.from_tensor_slices(Point([1, 2], [3.0, 4.0])).map(lambda p: Point(p.y, p.x))
    return elements(tf, sess, dataset)


def tuple_of_one(tf: Any, sess: Any) -> Any:
    return elements(tf, sess, tf.data.Dataset.from_tensor_slices(([1, 2],)).map(lambda x: (x + 1,)))


def list_is_a_tensor(tf: Any, sess: Any) -> Any:
    return elements(tf, sess, tf.data.Dataset.from_tensors([[1, 2], [3, 4]]))


def list_of_results(tf: Any, sess: Any) -> Any:
    return elements(tf, sess, tf.data.Dataset.range(2).map(lambda x: [x, tf.cast(x, tf.float32)]))


def element_is_a_dataset(tf: Any, sess: Any) -> Any:
    nested = tf.data.Dataset.range(3).map(lambda x: (x, tf.data.Dataset.range(x)))
    return elements(tf, sess, nested.flat_map(lambda x, inner: inner.map(lambda y: (x, y))))


def zipped_windows(tf: Any, sess: Any) -> Any:
    pairs = tf.data.Dataset.zip((tf.data.Dataset.range(6), tf.data.Dataset.range(10, 16)))
    windows = pairs.window(3, shift=2, drop_remainder=True)
    return elements(tf, sess, windows.flat_map(lambda a, b: tf.data.Dataset.zip((a.batch(3), b.batch(3)))))


def shapes_of_batches(tf: Any, sess: Any) -> Any:
    source = tf.data.Dataset.from_tensor_slices(np.zeros([7, 3], np.float32))
    return [
        described(tf, source),
        described(tf, source.batch(2)),
        described(tf, source.batch(2, drop_remainder=True)),
        described(tf, source.repeat().shuffle(3).map(lambda x: tf.reshape(x, [3, 1]))),
        described(tf, source.padded_batch(2, [5])),
        described(tf, source.padded_batch(2, [None], drop_remainder=True)),
        described(tf, tf.data.Dataset.range(3).enumerate()),
        described(tf, source.concatenate(tf.data.Dataset.from_tensor_slices(np.zeros([7, 4], np.float32)))),
    ]


def sparse_batches(tf: Any, sess: Any) -> Any:
    def sparse(x: Any) -> Any:
        return tf.SparseTensor(tf.reshape(x, [1, 1]), [x * 10], [4])

    dataset = tf.data.Dataset.range(4).map(lambda x: (sparse(x), x))
    return [elements(tf, sess, dataset.batch(3)), elements(tf, sess, dataset.batch(2).unbatch())]


def sparse_slices_again(tf: Any, sess: Any) -> Any:
    value = tf.SparseTensorValue([[0, 1], [0, 2], [1, 0]], [1, 2, 3], [3, 4])
    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.from_tensor_slices(value))
    sess.run(iterator.initializer)
    return all_of(tf, sess, iterator.get_next())


# Iterators


def initialised_by_feeds(tf: Any, sess: Any) -> Any:
    limit = tf.placeholder(tf.int64, [])
    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(limit))
    found = iterator.get_next()
    passes = []
    for number in (2, 3):
        sess.run(iterator.initializer, {limit: number})
        passes.append(all_of(tf, sess, found))
    return passes


def without_initialiser(tf: Any, sess: Any) -> Any:
    return tf.data.make_one_shot_iterator(tf.data.Dataset.range(2)).initializer


def not_initialised(tf: Any, sess: Any) -> Any:
    return sess.run(tf.data.make_initializable_iterator(tf.data.Dataset.range(2)).get_next())


def one_shot_with_placeholder(tf: Any, sess: Any) -> Any:
    return elements(tf, sess, tf.data.Dataset.range(tf.placeholder(tf.int64, [])))


def one_shot_with_variable(tf: Any, sess: Any) -> Any:
    v = tf.get_variable("v", [], tf.int64, tf.zeros_initializer(), use_resource=True)
    return elements(tf, sess, tf.data.Dataset.range(3).map(lambda x: x + v))


def variable_in_function(tf: Any, sess: Any) -> Any:
    v = tf.get_variable("v", initializer=tf.constant(5, tf.int64), use_resource=True)
    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(3).map(lambda x: x + v))
    found = iterator.get_next()
    sess.run(v.initializer)
    sess.run(iterator.initializer)
    first = sess.run(found)
    sess.run(v.assign_add(10))
    sess.run(iterator.initializer)
    return [first, *all_of(tf, sess, found)]


def reinitialisable(tf: Any, sess: Any) -> Any:
    training, validation = tf.data.Dataset.range(3), tf.data.Dataset.range(10, 12)
    iterator = tf.data.Iterator.from_structure(training.output_types, training.output_shapes)
    found = iterator.get_next()
    starts = [iterator.make_initializer(training), iterator.make_initializer(validation)]
    passes = []
    for start in (*starts, starts[0]):
        sess.run(start)
        passes.append(all_of(tf, sess, found))
    return passes


def wrong_type_for_structure(tf: Any, sess: Any) -> Any:
    iterator = tf.data.Iterator.from_structure(tf.int32)
    return iterator.make_initializer(tf.data.Dataset.range(3)).name


def wrong_shape_for_structure(tf: Any, sess: Any) -> Any:
    iterator = tf.data.Iterator.from_structure(tf.int64, [2])
    return iterator.make_initializer(tf.data.Dataset.range(3)).name


def feedable(tf: Any, sess: Any) -> Any:
    handle = tf.placeholder(tf.string, [])
    training = tf.data.Dataset.range(100).repeat()
    iterator = tf.data.Iterator.from_string_handle(handle, training.output_types, training.output_shapes)
    found = iterator.get_next()
    first = tf.data.make_one_shot_iterator(training)
    second = tf.data.make_initializable_iterator(tf.data.Dataset.range(7, 9))
    handles = sess.run([first.string_handle(), second.string_handle()])
    values = [sess.run(found, {handle: handles[0]}) for _ in range(3)]
    sess.run(second.initializer)
    values += [sess.run(found, {handle: handles[1]}) for _ in range(2)]
    return [*values, sess.run(found, {handle: handles[0]})]


def optionals(tf: Any, sess: Any) -> Any:
    iterator = tf.data.make_one_shot_iterator(tf.data.Dataset.range(2))
    following = iterator.get_next_as_optional()
    there = following.has_value()
    value = tf.cond(there, lambda: following.get_value(), lambda: tf.constant(-1, tf.int64))
    return [sess.run([there, value]) for _ in range(3)]


def two_sessions_apart(tf: Any, sess: Any) -> Any:
    found = tf.data.make_one_shot_iterator(tf.data.Dataset.range(3)).get_next()
    with tf.Session(graph=sess.graph) as other:
        return [sess.run(found), sess.run(found), other.run(found)]


# Seeds


def graph_seed_only(tf: Any, sess: Any) -> Any:
    tf.set_random_seed(7)
    d = tf.data.Dataset
    datasets = [d.range(8).shuffle(8), d.range(8).shuffle(8), d.range(8).shuffle(3).repeat(2)]
    return [elements(tf, sess, one) for one in datasets]


def graph_and_op_seed(tf: Any, sess: Any) -> Any:
    tf.set_random_seed(7)
    return elements(tf, sess, tf.data.Dataset.range(8).shuffle(8, seed=3, reshuffle_each_iteration=False).repeat(2))


def seeds_of_zero(tf: Any, sess: Any) -> Any:
    tf.set_random_seed(0)
    return elements(tf, sess, tf.data.Dataset.range(8).shuffle(8, seed=0))


def fed_seed(tf: Any, sess: Any) -> Any:
    seed = tf.placeholder(tf.int64, [])
    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(8).shuffle(8, seed=seed))
    found = iterator.get_next()
    passes = []
    for number in (1, 2, 1):
        sess.run(iterator.initializer, {seed: number})
        passes.append(all_of(tf, sess, found))
    return passes


def random_ops_in_map(tf: Any, sess: Any) -> Any:
    tf.set_random_seed(4)
    dataset = tf.data.Dataset.range(4).map(lambda x: (tf.random_uniform([]), tf.random_uniform([2], seed=1)))
    return elements(tf, sess, dataset)


def seeds_after_iterators(tf: Any, sess: Any) -> Any:
    """A one-shot iterator counts as a random op."""
    tf.set_random_seed(11)
    first = tf.data.make_one_shot_iterator(tf.data.Dataset.range(2)).get_next()
    return [sess.run(first), sess.run(tf.random_uniform([3]))]


def sampled_by_weights(tf: Any, sess: Any) -> Any:
    tf.set_random_seed(5)
    d, e = tf.data.Dataset, tf.data.experimental
    weights = d.from_tensors([0.25, 0.75]).repeat()
    return elements(tf, sess, e.sample_from_datasets([d.range(9), d.range(20, 29)], weights))


def random_datasets(tf: Any, sess: Any) -> Any:
    tf.set_random_seed(5)
    return elements(tf, sess, tf.data.experimental.RandomDataset().take(3))


def resampled_with_known_shares(tf: Any, sess: Any) -> Any:
    resample = tf.data.experimental.rejection_resample(
        lambda x: tf.cast(x % 3, tf.int32), [0.2, 0.3, 0.5], [1 / 3] * 3, 2
    )
    return elements(tf, sess, tf.data.Dataset.range(30).apply(resample))


# What runs again and again


def scan_of_growing_shape(tf: Any, sess: Any) -> Any:
    scan = tf.data.experimental.scan(tf.zeros([0], tf.int64), lambda s, x: (tf.concat([s, [x]], 0), tf.reduce_sum(s)))
    dataset = tf.data.Dataset.range(4).apply(scan)
    return [described(tf, dataset), elements(tf, sess, dataset)]


def reduce_of_structure(tf: Any, sess: Any) -> Any:
    total = tf.data.Dataset.range(5).reduce((np.int64(0), 0.0), lambda s, x: (s[0] + x, s[1] + 0.5))
    return sess.run(total)


def reducer_by_key(tf: Any, sess: Any) -> Any:
    e = tf.data.experimental
    reducer = e.Reducer(
        lambda k: (k, tf.constant(0, tf.int64)), lambda s, x: (s[0], s[1] + x), lambda k, total: [k, total]
    )
    return elements(tf, sess, tf.data.Dataset.range(10).apply(e.group_by_reducer(lambda x: x % 3, reducer)))


def buckets_to_their_bounds(tf: Any, sess: Any) -> Any:
    bucket = tf.data.experimental.bucket_by_sequence_length(
        lambda x: tf.shape(x)[0], [3, 5], [2, 2, 2], pad_to_bucket_boundary=True
    )
    return elements(tf, sess, tf.data.Dataset.range(1, 7).map(lambda x: tf.fill([x % 4 + 1], x)).apply(bucket))


def buckets_by_tuple(tf: Any, sess: Any) -> Any:
    bucket = tf.data.experimental.bucket_by_sequence_length(
        lambda x, n: tf.shape(x)[0], [3], [2, 3], padded_shapes=([None], []), padding_values=(np.int64(-1), np.int64(0))
    )
    return elements(tf, sess, tf.data.Dataset.range(1, 9).map(lambda x: (tf.fill([x % 5], x), x)).apply(bucket))


def padded_structures(tf: Any, sess: Any) -> Any:
    dataset = tf.data.Dataset.range(1, 5).map(lambda x: {"a": tf.fill([x], tf.as_string(x)), "b": tf.fill([x, 2], x)})
    return elements(tf, sess, dataset.padded_batch(2, {"a": [None], "b": [4, None]}))


def padded_to_too_little(tf: Any, sess: Any) -> Any:
    return elements(tf, sess, tf.data.Dataset.from_tensors([1, 2, 3]).padded_batch(1, [2]))


def interleaved_files_of_numbers(tf: Any, sess: Any) -> Any:
    def numbers(x: Any) -> Any:
        return tf.data.Dataset.range(x * 10, x * 10 + 3)

    e = tf.data.experimental.parallel_interleave(numbers, cycle_length=2, block_length=2)
    return [
        elements(tf, sess, tf.data.Dataset.range(1, 5).apply(e)),
        elements(tf, sess, tf.data.Dataset.range(1, 5).interleave(numbers, 3, 1, num_parallel_calls=2)),
    ]


def errors_of_elements(tf: Any, sess: Any) -> Any:
    dataset = tf.data.Dataset.range(3).map(lambda x: tf.check_numerics(1.0 / tf.cast(x, tf.float32), "zero"))
    return [elements(tf, sess, dataset), elements(tf, sess, dataset.apply(tf.data.experimental.ignore_errors()))]


def end_in_a_function(tf: Any, sess: Any) -> Any:
    """An iterator used in a function ends the dataset with its own end."""
    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(2))
    dataset = tf.data.Dataset.range(10).map(lambda x: x + iterator.get_next())
    outer = tf.data.make_initializable_iterator(dataset)
    found = outer.get_next()
    sess.run([iterator.initializer])
    sess.run([outer.initializer])
    return all_of(tf, sess, found)


def cardinalities(tf: Any, sess: Any) -> Any:
    d, of = tf.data.Dataset, tf.data.experimental.cardinality
    datasets = [
        d.range(7).batch(2),
        d.range(7).repeat(),
        d.range(7).filter(lambda x: x > 2),
        d.range(7).take(3).skip(1),
    ]
    return sess.run([of(one) for one in datasets])


def nested_control_flow(tf: Any, sess: Any) -> Any:
    def collatz(x: Any) -> Any:
        step = lambda n, i: (tf.cond(tf.equal(n % 2, 0), lambda: n // 2, lambda: 3 * n + 1), i + 1)  # noqa: E731
        return tf.while_loop(lambda n, i: n > 1, step, (x, tf.constant(0)))[1]

    return elements(tf, sess, tf.data.Dataset.range(1, 8).map(collatz))


# Generators


def generated(tf: Any, sess: Any) -> Any:
    def count() -> Any:
        for i in range(3):
            yield i, [float(i)] * i

    dataset = tf.data.Dataset.from_generator(count, (tf.int64, tf.float32), ([], [None]))
    return [described(tf, dataset), elements(tf, sess, dataset.repeat(2))]


def generated_of_arguments(tf: Any, sess: Any) -> Any:
    def count(start: Any, word: Any) -> Any:
        for i in range(start, 7):
            yield {"number": i, "word": word + b"!"}

    types = {"number": tf.int32, "word": tf.string}
    return elements(tf, sess, tf.data.Dataset.from_generator(count, types, args=(tf.constant(4), "a")))


def generated_by_signature(tf: Any, sess: Any) -> Any:
    signature = tf.TensorSpec([2], tf.float32)
    dataset = tf.data.Dataset.from_generator(lambda: [[1, 2], (3, 4), np.array([5.0, 6.0])], output_signature=signature)
    return elements(tf, sess, dataset)


def generated_in_a_function(tf: Any, sess: Any) -> Any:
    def count(x: Any) -> Any:
        yield from range(x)

    dataset = tf.data.Dataset.range(4).flat_map(lambda x: tf.data.Dataset.from_generator(count, tf.int64, args=(x,)))
    return elements(tf, sess, dataset)


def generated_of_a_wrong_shape(tf: Any, sess: Any) -> Any:
    return elements(tf, sess, tf.data.Dataset.from_generator(lambda: [[1, 2], [1, 2, 3]], tf.int64, [2]))


def generated_of_a_wrong_type(tf: Any, sess: Any) -> Any:
    return elements(tf, sess, tf.data.Dataset.from_generator(lambda: [1, "a"], tf.int64, []))


def generated_of_a_wrong_structure(tf: Any, sess: Any) -> Any:
    return elements(tf, sess, tf.data.Dataset.from_generator(lambda: [(1, 2), (1, 2, 3)], (tf.int64, tf.int64)))


def generator_that_fails(tf: Any, sess: Any) -> Any:
    def count() -> Any:
        yield 1
        raise ValueError("no more")

    return elements(tf, sess, tf.data.Dataset.from_generator(count, tf.int64))


def generator_that_is_none(tf: Any, sess: Any) -> Any:
    return elements(tf, sess, tf.data.Dataset.from_generator([1, 2], tf.int64))


# Mistakes


def function_without_result(tf: Any, sess: Any) -> Any:
    return elements(tf, sess, tf.data.Dataset.range(2).filter(lambda x: x))


def slices_of_unequal_length(tf: Any, sess: Any) -> Any:
    return elements(tf, sess, tf.data.Dataset.from_tensor_slices(([1, 2], [1, 2, 3])))


def slices_of_a_scalar(tf: Any, sess: Any) -> Any:
    return elements(tf, sess, tf.data.Dataset.from_tensor_slices(1))


def concatenated_types(tf: Any, sess: Any) -> Any:
    return elements(tf, sess, tf.data.Dataset.range(2).concatenate(tf.data.Dataset.from_tensors(1.0)))


def shard_out_of_range(tf: Any, sess: Any) -> Any:
    return elements(tf, sess, tf.data.Dataset.range(2).shard(2, 2))[:1]


def zip_of_a_list(tf: Any, sess: Any) -> Any:
    return elements(tf, sess, tf.data.Dataset.zip([tf.data.Dataset.range(2)]))


def window_sizes_both(tf: Any, sess: Any) -> Any:
    e = tf.data.experimental.group_by_window(lambda x: x, lambda k, w: w, window_size=1, window_size_func=lambda k: k)
    return elements(tf, sess, tf.data.Dataset.range(2).apply(e))


def apply_without_dataset(tf: Any, sess: Any) -> Any:
    return elements(tf, sess, tf.data.Dataset.range(2).apply(lambda dataset: 3))


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    name: program
    for name, program in list(globals().items())
    if getattr(program, "__code__", None) is not None and program.__code__.co_varnames[:2] == ("tf", "sess")
    if name not in ("all_of", "elements")
}


def _main() -> None:
    import tensorflow

    tf: Any = tensorflow.compat.v1
    tf.disable_eager_execution()
    found = {name: answer(tf, program) for name, program in PROGRAMS.items()}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in found.items())
    RECORDED.write_text("{\n" + lines + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    _main()
