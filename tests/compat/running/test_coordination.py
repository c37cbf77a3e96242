"""Coordinators, queue runners and queues, from threads and awaited."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import aexec.compat.v1 as tf
from aexec import errors


def test_pipeline_ends_with_its_epochs() -> None:
    rows = np.arange(10, dtype=np.float32)
    (row,) = tf.train.slice_input_producer([rows], num_epochs=2, shuffle=False)
    batch = tf.train.batch([row], batch_size=4, allow_smaller_final_batch=True)
    found = []
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(coord=coord)
        try:
            while not coord.should_stop():
                found += sess.run(batch).tolist()
        except tf.errors.OutOfRangeError as error:
            coord.request_stop(error)
        coord.join(threads)
        assert coord.joined
    assert found == [*range(10), *range(10)]


def numbers(count: int = 3) -> tf.Tensor:
    """A batch of numbers from an input pipeline with one runner."""
    (number,) = tf.train.slice_input_producer([np.arange(count)], shuffle=False)
    return tf.train.batch([number], batch_size=count)


def test_programs_start_the_runners_of_the_collection_themselves() -> None:
    batch = numbers()
    runners = tf.get_collection(tf.GraphKeys.QUEUE_RUNNERS)
    names = [runner.name for runner in runners]
    assert names == ["input_producer/input_producer/input_producer/fifo_queue", "batch/fifo_queue"]
    with tf.Session() as sess:
        coord = tf.train.Coordinator()
        threads = []
        for runner in runners:
            threads += runner.create_threads(sess, coord=coord, daemon=True, start=True)
        assert sess.run(batch).tolist() == [0, 1, 2]
        coord.request_stop()
        coord.join(threads)


@pytest.mark.parametrize("all_at_once", [True, False])
def test_threads_that_are_not_started_wait_for_it(all_at_once: bool) -> None:
    batch = numbers()
    with tf.Session() as sess:
        coord = tf.train.Coordinator()
        if all_at_once:
            threads = tf.train.start_queue_runners(sess, coord, start=False)
        else:
            runners = tf.get_collection(tf.GraphKeys.QUEUE_RUNNERS)
            threads = [thread for runner in runners for thread in runner.create_threads(sess, coord)]
        assert not any(thread.is_alive() for thread in threads)
        for thread in threads:
            thread.start()
        assert all(thread.is_alive() for thread in threads)
        assert sess.run(batch).tolist() == [0, 1, 2]
        coord.request_stop()
        coord.join(threads)
        assert not any(thread.is_alive() for thread in threads)


def test_runners_of_another_collection_start_when_it_is_named() -> None:
    queue = tf.FIFOQueue(10, tf.int32, shapes=[[]])
    tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(7)]), collection="later")
    taken = queue.dequeue()
    with tf.Session() as sess:
        coord = tf.train.Coordinator()
        assert tf.train.start_queue_runners(sess, coord) == []
        threads = tf.train.start_queue_runners(sess, coord, collection="later")
        assert sess.run(taken) == 7
        coord.request_stop()
        coord.join(threads)
    tf.add_to_collection("later", "no runner")
    with pytest.raises(errors.InvalidArgumentError, match="'later': 'no runner' is not a QueueRunner"):
        tf.train.start_queue_runners(sess, collection="later")


def test_runners_come_back_from_a_meta_graph(tmp_path: Path) -> None:
    batch = numbers()
    tf.train.export_meta_graph(str(tmp_path / "input.meta"))
    tf.reset_default_graph()
    tf.train.import_meta_graph(str(tmp_path / "input.meta"), import_scope="again")
    with tf.Session() as sess:
        coord = tf.train.Coordinator()
        runners = tf.get_collection(tf.GraphKeys.QUEUE_RUNNERS)
        threads = [task for runner in runners for task in runner.create_threads(sess, coord, start=True)]
        assert sess.run(f"again/{batch.name}").tolist() == [0, 1, 2]
        coord.request_stop()
        coord.join(threads)


def test_runner_is_made_of_its_message() -> None:
    queue = tf.FIFOQueue(10, tf.int32, shapes=[[]], name="q")
    message = tf.train.QueueRunner(queue, [queue.enqueue(7, name="put")]).to_proto()
    assert tf.train.QueueRunner(queue_runner_def=message).to_proto() == message
    assert tf.train.QueueRunner(queue_runner_def=message, import_scope="s").name == "s/q"
    with pytest.raises(ValueError, match="mutually exclusive"):
        tf.train.QueueRunner(queue, [], queue_runner_def=message)


def test_threads_are_stopped_by_an_error_of_one() -> None:
    queue = tf.FIFOQueue(2, tf.int32, shapes=())
    put = queue.enqueue(1)
    with tf.Session() as sess:
        coord = tf.train.Coordinator()

        def fill() -> None:
            with coord.stop_on_exception():
                while not coord.should_stop():
                    sess.run(put)

        def fail() -> None:
            with coord.stop_on_exception():
                assert sess.run(queue.dequeue()) == 1
                raise ValueError("enough")

        threads = [threading.Thread(target=fill), threading.Thread(target=fail)]
        coord.register_thread(threads[0])
        for thread in threads:
            thread.start()
        assert coord.wait_for_stop(60)
        sess.run(queue.close(cancel_pending_enqueues=True))
        with pytest.raises(ValueError, match="enough"):
            coord.join([threads[1]])
        with pytest.raises(ValueError, match="enough"):
            coord.raise_requested_exception()
        coord.clear_stop()
        assert not coord.should_stop() and not coord.wait_for_stop(0)


def test_error_of_a_runner_is_raised_by_join() -> None:
    queue = tf.FIFOQueue(2, [tf.int32], shapes=[[]])
    bad = queue.enqueue([tf.constant([1, 2])[tf.placeholder(tf.int32, [])]])
    runner = tf.train.QueueRunner(queue, [bad])
    tf.train.add_queue_runner(runner)
    with tf.Session() as sess:
        coord = tf.train.Coordinator()
        threads = runner.create_threads(sess, coord=coord, start=True)
        with pytest.raises(errors.InvalidArgumentError, match="must feed"):
            coord.join(threads)


def test_thread_that_does_not_end_is_named() -> None:
    coord = tf.train.Coordinator()
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="idle")
    thread.start()
    try:
        coord.request_stop((ValueError, errors.OutOfRangeError("end"), None))
        with pytest.raises(RuntimeError, match="still running: idle"):
            coord.join([thread], stop_grace_period_secs=0)
        coord.join([thread], stop_grace_period_secs=0, ignore_live_threads=True)
    finally:
        end.set()
        thread.join()


async def test_awaited() -> None:
    queue = tf.RandomShuffleQueue(10, 0, dtypes=[tf.int32], shapes=[[]], seed=1)
    tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue_many([[1, 2, 3]])]))
    three = queue.dequeue_many(3)
    async with tf.AsyncSession() as sess:
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coord)
        assert (await sess.run(three)).shape == (3,)
        coord.request_stop()
        await coord.join(threads)


def test_queues() -> None:
    padded = tf.PaddingFIFOQueue(10, tf.int32, shapes=[[None]])
    ordered = tf.queue.PriorityQueue(10, [tf.string], shapes=[[]])
    puts = [padded.enqueue([[1]]), padded.enqueue([[1, 2]]), ordered.enqueue([5, "b"]), ordered.enqueue([3, "a"])]
    with tf.Session() as sess:
        for put in puts:
            sess.run(put)
        assert sess.run(padded.dequeue_many(2)).tolist() == [[1, 0], [1, 2]]
        assert sess.run(ordered.dequeue()) == [3, b"a"]
    with pytest.raises(errors.UnimplementedError, match="names"):
        tf.FIFOQueue(3, tf.int32, names=["x"])


def test_readers(tmp_path: Path) -> None:
    lines = tmp_path / "lines.csv"
    lines.write_text("a,b\n1,2\n3,4\n")
    with tf.python_io.TFRecordWriter(str(tmp_path / "data.tfrecord")) as writer:
        writer.write(b"first")
        writer.write(b"second")
    names = tf.train.string_input_producer([str(lines)], shuffle=False, num_epochs=1)
    key, line = tf.TextLineReader(skip_header_lines=1).read(names)
    columns = tf.decode_csv(line, [[0], [0]])
    reader = tf.TFRecordReader()
    records = tf.train.string_input_producer([str(tmp_path / "data.tfrecord")], shuffle=False)
    record = reader.read(records)[1]
    whole = tf.WholeFileReader().read_up_to(records, 1)[1]
    fixed = tf.FixedLengthRecordReader(record_bytes=2)
    assert fixed.reset().type == "ReaderResetV2"
    with tf.Session() as sess:
        sess.run(tf.local_variables_initializer())
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess=sess, coord=coord)
        assert sess.run([key, *columns]) == [f"{lines}:2".encode(), 1, 2]
        assert sess.run(columns) == [3, 4]
        with pytest.raises(tf.errors.OutOfRangeError):
            sess.run(columns)
        assert [sess.run(record), sess.run(record)] == [b"first", b"second"]
        assert sess.run(reader.num_records_produced()) == 2
        assert b"first" in sess.run(whole)[0]
        coord.request_stop()
        coord.join(threads)


def test_state_of_a_reader_is_saved_and_restored() -> None:
    """TensorFlow's answers; an IdentityReader returns names of files as they are."""
    reader = tf.IdentityReader()
    record = reader.read(tf.train.string_input_producer(["a", "b"], shuffle=False))
    counts = [reader.num_records_produced(), reader.num_work_units_completed()]
    saved, state = reader.serialize_state(), tf.placeholder(tf.string, [])
    restored = reader.restore_state(state)
    coord = tf.train.Coordinator()
    with tf.Session() as sess:
        threads = tf.train.start_queue_runners(sess, coord)
        assert sess.run(list(record)) == [b"a", b"a"] and sess.run(counts) == [1, 1]
        before = sess.run(saved)
        assert before == b'\x08\x01\x10\x01\x18\x01"\x01a' and reader.supports_serialize
        sess.run(list(record))
        assert sess.run(counts[0]) == 2
        sess.run(restored, {state: before})
        assert sess.run(counts[0]) == 1
        coord.request_stop()
        coord.join(threads)
