"""Savers, training sessions, hooks, optimisers and averages with TensorFlow's arguments."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf
from aexec import errors


def model() -> tuple[Any, Any, Any]:
    """A model whose variable moves halfway to 8 with each step; return the variable, the loss and the train op."""
    v = tf.get_variable("v", [], initializer=tf.zeros_initializer())
    loss = tf.square(v - 8.0)
    step = tf.train.GradientDescentOptimizer(0.25).minimize(loss, tf.train.get_or_create_global_step())
    return v, loss, step


def test_saver(tmp_path: Path) -> None:
    v, _, step = model()
    tf.Variable(0, trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES])  # is not saved
    saver = tf.train.Saver(max_to_keep=2)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(3):
            sess.run(step)
            path = saver.save(sess, str(tmp_path / "model"), global_step=tf.train.get_global_step())
        assert path == str(tmp_path / "model-3") == tf.train.latest_checkpoint(str(tmp_path))
        assert tf.train.global_step(sess, tf.train.get_global_step()) == 3 and v.eval() == 7
    state = tf.train.get_checkpoint_state(str(tmp_path))
    assert state is not None and state.model_checkpoint_path == path
    assert list(state.all_model_checkpoint_paths) == saver.last_checkpoints == [str(tmp_path / "model-2"), path]
    assert tf.train.checkpoint_exists(path) and not tf.train.checkpoint_exists(str(tmp_path / "model-1"))

    with tf.Session() as sess:
        saver.restore(sess, path)
        assert v.eval() == 7
    tf.reset_default_graph()
    again = tf.train.import_meta_graph(path + ".meta")
    with tf.Session() as sess:
        again.restore(sess, path)
        assert sess.run("v:0") == 7 and [w.name for w in tf.trainable_variables()] == ["v:0"]
    only = tf.train.Saver({"v": tf.trainable_variables()[0]})
    assert only.as_saver_def().restore_op_name


async def test_saver_awaited(tmp_path: Path) -> None:
    v, _, step = model()
    saver = tf.train.Saver([v])
    async with tf.AsyncSession() as sess:
        await sess.run(tf.global_variables_initializer())
        await sess.run(step)
        path = await saver.save(sess, str(tmp_path / "model"))
        await sess.run(step)
        await saver.restore(sess, path)
        assert await sess.run(v) == 4
        assert await tf.train.global_step(sess, tf.train.get_global_step()) == 2


class Counting(tf.train.SessionRunHook):
    """Records its calls, and runs a step in each."""

    def __init__(self, loss: Any) -> None:
        self.loss = loss
        self.calls: list[str] = []
        self.losses: list[float] = []
        self.values: list[float] = []

    def begin(self) -> None:
        self.calls.append("begin")
        self.doubled = self.loss * 2.0

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.calls.append("created")

    def before_run(self, run_context: Any) -> Any:
        return tf.train.SessionRunArgs(self.loss)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.losses.append(float(run_values.results))
        self.values.append(float(run_context.session.run(self.doubled)))
        if len(self.losses) == 3:
            run_context.request_stop()

    def end(self, session: Any) -> None:
        self.calls.append("end")


def test_monitored_session_calls_hooks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    v, loss, step = model()
    hook = Counting(loss)
    hooks = [hook, tf.train.LoggingTensorHook({"loss": loss}, every_n_iter=1), tf.train.NanTensorHook(loss)]
    caplog.set_level(logging.INFO)
    with tf.train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=hooks, save_checkpoint_steps=2) as sess:
        while not sess.should_stop():
            value = sess.run(v, feed_dict={})
            sess.run(step)
    assert value == 4 and hook.calls == ["begin", "created", "end"]
    assert len(hook.losses) == 4 and hook.values[-1] == 8.0
    assert {record.name for record in caplog.records if "loss = " in record.message} == {"tensorflow"}
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-2")
    tf.reset_default_graph()
    v, _, step = model()
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path), hooks=[tf.train.StopAtStepHook(last_step=3)], log_step_count_steps=1
    ) as sess:
        assert sess.run(v) == 6 and not sess.should_stop()
        sess.run(step)
        assert sess.should_stop()
    with pytest.raises(errors.UnimplementedError, match="master"):
        tf.train.MonitoredTrainingSession(master="grpc://x")


def events_of(folder: Path) -> list[tuple[int, str]]:
    """The sorted (step, tag) pairs of all summaries in a folder."""
    found = []
    for path in folder.glob("events*"):
        for record in tf.python_io.tf_record_iterator(str(path)):
            event = tf.Event.FromString(record)
            found += [(event.step, value.tag) for value in event.summary.value]
    return sorted(found)


def test_monitored_session_writes_summaries_and_rates(tmp_path: Path) -> None:
    _, loss, step = model()
    tf.summary.scalar("loss", loss)
    folders = {"checkpoint_dir": str(tmp_path / "saved"), "summary_dir": str(tmp_path / "events")}
    with tf.train.MonitoredTrainingSession(
        **folders,
        save_summaries_steps=2,
        log_step_count_steps=3,
        save_checkpoint_secs=None,
        save_checkpoint_steps=None,
    ) as sess:
        for _ in range(6):
            sess.run(step)
    events = events_of(tmp_path / "events")
    assert [at for at, tag in events if tag == "loss"] == [1, 3, 5]
    assert [at for at, tag in events if tag == "global_step/sec"] == [3, 6]
    assert not list((tmp_path / "saved").glob("*")), "nothing is saved if neither steps nor seconds are given"


def test_hooks_get_a_session_without_hooks_when_it_is_created() -> None:
    """Runs in `after_create_session` are not training steps."""
    v, loss, step = model()
    hook = Counting(loss)

    class Reading(tf.train.SessionRunHook):  # type: ignore[misc, name-defined]
        def after_create_session(self, session: Any, coord: Any) -> None:
            assert session.run(v) == 0

    with tf.train.MonitoredSession(hooks=[hook, Reading()]) as sess:
        sess.run(step)
    assert hook.losses == [64.0]


def test_singular_session_restores_and_runs_functions(tmp_path: Path) -> None:
    v, _, step = model()
    with tf.train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path)) as sess:
        sess.run(step)
    with tf.train.SingularMonitoredSession(checkpoint_dir=str(tmp_path)) as sess:
        assert (
            sess.raw_session().run(v) == 4 and sess.run_step_fn(lambda step_context: step_context.session.run(v)) == 4
        )
        with pytest.raises(ValueError, match="step_context"):
            sess.run_step_fn(lambda context: None)

        def stopping(step_context: Any) -> Any:
            step_context.request_stop()

        sess.run_step_fn(stopping)
    assert sess.should_stop()
    with pytest.raises(errors.UnimplementedError, match="session_creator"):
        tf.train.MonitoredSession(session_creator="other")


def test_scaffold(tmp_path: Path) -> None:
    """The session uses the scaffold's initialisers and saver."""
    v, _, step = model()
    given = tf.placeholder(tf.float32, [])
    init = tf.group(v.assign(given), tf.train.get_global_step().initializer)
    saver = tf.train.Saver([v, tf.train.get_global_step()], max_to_keep=1)
    scaffold = tf.train.Scaffold(init_op=init, init_feed_dict={given: 4.0}, saver=saver)
    with tf.train.MonitoredTrainingSession(
        scaffold=tf.train.Scaffold(copy_from_scaffold=scaffold), checkpoint_dir=str(tmp_path), save_checkpoint_steps=1
    ) as sess:
        assert sess.run(v) == 4
        sess.run(step)
        sess.run(step)
        assert sess.run(v) == 7
    assert len(list(tmp_path.glob("*.index"))) == 1
    with pytest.raises(errors.UnimplementedError, match="ready_for_local_init_op"):
        tf.train.Scaffold(ready_for_local_init_op=init)


def test_scaffold_initialises_by_a_function_and_says_what_is_ready() -> None:
    v, _, _ = model()
    missing = tf.placeholder_with_default(tf.constant([], tf.string), [None])

    def fill(scaffold: Any, session: Any) -> None:
        assert scaffold.summary_op is None
        session.run(v.assign(5.0))

    with tf.train.MonitoredTrainingSession(scaffold=tf.train.Scaffold(init_fn=fill, ready_op=missing)) as sess:
        assert sess.run(v) == 5
    not_ready = tf.train.Scaffold(ready_op=tf.constant(["w"]))
    with pytest.raises(errors.FailedPreconditionError, match="not initialized: w"):
        tf.train.MonitoredTrainingSession(scaffold=not_ready)
    finished = tf.train.Scaffold().finalize()
    assert finished.saver is not None and finished.summary_op is None


def test_replicas_in_rounds() -> None:
    """The mean of two gradients is applied in a round."""
    v = tf.get_variable("v", [], initializer=tf.zeros_initializer())
    optimizer = tf.train.SyncReplicasOptimizer(
        tf.train.MomentumOptimizer(0.25, 0.0), replicas_to_aggregate=1, total_num_replicas=1
    )
    step = optimizer.minimize(tf.square(v - 8.0), global_step=tf.train.get_or_create_global_step())
    assert optimizer.get_slot(v, "momentum") is not None
    with tf.train.MonitoredTrainingSession(hooks=[optimizer.make_session_run_hook(is_chief=True)]) as sess:
        for _ in range(3):
            sess.run(step)
        assert sess.run([v, tf.train.get_global_step()]) == [7, 3]
    with pytest.raises(errors.UnimplementedError, match="is_chief"):
        optimizer.make_session_run_hook(is_chief=False)


def test_error_in_a_step_leaves_the_block() -> None:
    x = tf.placeholder(tf.float32)
    session = tf.train.MonitoredTrainingSession()
    with pytest.raises(errors.InvalidArgumentError, match="must feed"), session as sess:
        sess.run(x)
    session.close()
    with tf.Graph().as_default():
        tf.constant(1, name="one")
        session = tf.train.MonitoredTrainingSession()
        assert session.run("one:0") == 1
        session.close()


def test_summaries_are_written(tmp_path: Path) -> None:
    _, loss, step = model()
    tf.summary.scalar("loss", loss)
    merged = tf.summary.merge_all()
    with tf.summary.FileWriter(tmp_path, tf.get_default_graph()) as writer, tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for index in range(3):
            _, text = sess.run([step, merged])
            writer.add_summary(text, index)
        writer.add_event(tf.Event(wall_time=1.0))
        writer.add_graph(tf.get_default_graph(), 3)
        metadata = tf.RunMetadata()
        sess.run(loss, run_metadata=metadata)
        writer.add_run_metadata(metadata, "a step", 3)
        writer.flush()
        assert writer.get_logdir() == str(tmp_path)
    writer.close()
    (file,) = tmp_path.iterdir()
    events = [tf.Event.FromString(record) for record in tf.python_io.tf_record_iterator(str(file))]
    values = [event.summary.value[0] for event in events if event.summary.value]
    assert [value.tag for value in values] == ["loss"] * 3
    assert np.isclose([value.simple_value for value in values], [64, 16, 4]).all()
    assert sum(bool(event.graph_def) for event in events) == 2


def test_summary_hook(tmp_path: Path) -> None:
    _, loss, step = model()
    tf.summary.scalar("loss", loss)
    hooks = [
        tf.train.SummarySaverHook(save_steps=1, output_dir=str(tmp_path)),
        tf.train.StopAtStepHook(num_steps=2),
        tf.train.StepCounterHook(every_n_steps=1),
        tf.train.CheckpointSaverHook(str(tmp_path / "saved"), save_steps=1),
    ]
    with tf.train.MonitoredTrainingSession(hooks=hooks) as sess:
        while not sess.should_stop():
            sess.run(step)
    assert tf.train.latest_checkpoint(str(tmp_path / "saved")) == str(tmp_path / "saved" / "model.ckpt-2")
    with pytest.raises(ValueError, match="both saver and scaffold"):
        tf.train.CheckpointSaverHook(str(tmp_path), saver=tf.train.Saver(), scaffold=tf.train.Scaffold())
    (file,) = tmp_path.glob("events*")
    events = [tf.Event.FromString(record) for record in tf.python_io.tf_record_iterator(str(file))]
    assert [event.step for event in events if event.summary.value] == [1, 2]


@pytest.mark.parametrize(
    ("make", "slots"),
    [
        (lambda: tf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True), ["momentum"]),
        (lambda: tf.train.AdagradOptimizer(0.1, initial_accumulator_value=0.2), ["accumulator"]),
        (lambda: tf.train.AdadeltaOptimizer(0.1), ["accum", "accum_update"]),
        (lambda: tf.train.AdamOptimizer(0.1, 0.8, 0.9, 1e-7, False, "Named"), ["m", "v"]),
        (lambda: tf.train.RMSPropOptimizer(0.1, 0.9, 0.5, centered=True), ["mg", "momentum", "rms"]),
        (lambda: tf.train.FtrlOptimizer(0.1, l2_regularization_strength=0.1), ["accum", "linear"]),
        (lambda: tf.train.ProximalGradientDescentOptimizer(0.1, l1_regularization_strength=0.01), []),
    ],
)
def test_optimizers(make: Any, slots: list[str]) -> None:
    v, loss, _ = model()
    optimizer = make()
    assert isinstance(optimizer, tf.train.Optimizer)
    pairs = optimizer.compute_gradients(loss, v, gate_gradients=optimizer.GATE_GRAPH)
    step = optimizer.apply_gradients([(tf.clip_by_value(grad, -1.0, 1.0), var) for grad, var in pairs])
    assert sorted(optimizer.get_slot_names()) == slots and optimizer.get_slot(v, "other") is None
    assert all(isinstance(optimizer.get_slot(v, name), tf.Variable) for name in slots)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        before = sess.run(loss)
        sess.run(step)
        assert sess.run(loss) < before
    assert step.name == optimizer.get_name()


def test_moving_averages() -> None:
    v = tf.Variable(1.0)
    average = tf.train.ExponentialMovingAverage(0.5)
    update = average.apply([v])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(v.assign(3.0))
        sess.run(update)
        assert sess.run(average.average(v)) == 2


def test_averages_of_tensors_are_restored_under_their_own_names() -> None:
    v, mean = tf.Variable([1.0], name="v"), tf.identity([2.0], name="mean")
    average = tf.train.ExponentialMovingAverage(0.5)
    average.apply([v, mean])
    kept = average.average(mean)
    assert kept.op.name == average.average_name(mean) == "mean/ExponentialMovingAverage"
    assert tf.moving_average_variables() == [v]
    assert average.variables_to_restore() == {"v/ExponentialMovingAverage": v, "mean/ExponentialMovingAverage": kept}


def test_saved_models(tmp_path: Path) -> None:
    x = tf.placeholder(tf.float32, [None], name="x")
    v = tf.Variable(3.0, name="v")
    y = tf.multiply(x, v, name="y")
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        tf.saved_model.simple_save(sess, str(tmp_path / "model"), {"x": x}, {"y": y})
    assert tf.saved_model.maybe_saved_model_directory(str(tmp_path / "model"))
    with tf.Session(graph=tf.Graph()) as sess:
        model = tf.saved_model.load(sess, [tf.saved_model.tag_constants.SERVING], str(tmp_path / "model"))
        key = tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY
        signature = model.signatures[key]
        found = sess.run(signature.outputs["y"].name, {signature.inputs["x"].name: [2.0]})
        assert found.tolist() == [6]
        message = model.signature_def[key]
        assert (message.inputs["x"].name, message.outputs["y"].name) == ("x:0", "y:0")
        assert message.inputs["x"].dtype == tf.float32.as_datatype_enum == 1
        assert list(model.meta_info_def.tags) == ["serve"] and "x" in [node.name for node in model.graph_def.node]
    info = tf.saved_model.build_tensor_info(v)
    assert tf.saved_model.build_signature_def({"v": info}, {}, "mine").method_name == "mine"


def test_graphs_are_written(tmp_path: Path) -> None:
    tf.constant(1, name="one")
    path = tf.train.write_graph(tf.get_default_graph(), str(tmp_path / "new"), "graph.pbtxt")
    assert 'name: "one"' in Path(path).read_text()
    path = tf.train.write_graph(tf.get_default_graph().as_graph_def(), str(tmp_path), "graph.pb", as_text=False)
    definition = tf.GraphDef.FromString(Path(path).read_bytes())
    with tf.Graph().as_default():
        (one,) = tf.import_graph_def(definition, return_elements=["one:0"])
        assert one.name == "import/one:0"


def test_exported_graph_has_no_default_attributes_if_asked() -> None:
    tf.matmul([[1.0]], [[2.0]], name="product")
    for strip in (False, True):
        message = tf.train.export_meta_graph(strip_default_attrs=strip)
        (product,) = (node for node in message.graph_def.node if node.name == "product")
        assert ("transpose_a" in product.attr) is not strip
        assert message.meta_info_def.stripped_default_attrs is strip


def test_content_of_a_checkpoint(tmp_path: Path) -> None:
    v = tf.get_variable("v", [2], initializer=tf.ones_initializer())
    with tf.Session() as sess:
        sess.run(v.initializer)
        path = tf.train.Saver().save(sess, str(tmp_path / "model"))
    reader = tf.train.NewCheckpointReader(path)
    assert reader.get_variable_to_shape_map() == {"v": [2]} and reader.has_tensor("v") and not reader.has_tensor("w")
    assert reader.get_variable_to_dtype_map() == {"v": tf.float32} and reader.get_tensor("v").tolist() == [1, 1]
    assert tf.train.list_variables(str(tmp_path)) == [("v", [2])]
    assert tf.train.load_variable(path, "v").tolist() == [1, 1]
    with pytest.raises(errors.NotFoundError):
        reader.get_tensor("w")


def test_graphs_without_variables() -> None:
    x = tf.placeholder(tf.float32, [], name="x")
    y = tf.multiply(x, tf.Variable(3.0, name="v"), name="y")
    tf.constant(1, name="other")
    definition = tf.get_default_graph().as_graph_def()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        frozen = tf.graph_util.convert_variables_to_constants(sess, definition, ["y"])
    part = tf.graph_util.extract_sub_graph(definition, [y.op.name])
    assert {node.name for node in part.node} == {"x", "v", "v/read", "y"}
    with pytest.raises(errors.NotFoundError, match="z is not in graph"):
        tf.graph_util.extract_sub_graph(definition, ["z"])
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(frozen, name="")
        with tf.Session(graph=graph) as sess:
            assert sess.run("y:0", {"x:0": 2.0}) == 6


def test_main_op_of_a_model_initialises_variables_and_restores() -> None:
    v = tf.get_variable("v", initializer=1.0)
    local = tf.get_variable("w", initializer=2.0, trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES])
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [3.0]), 0.0)
    found = [v, local, table.lookup(tf.constant("a"))]
    first = tf.saved_model.main_op.main_op()
    with tf.Session() as sess:
        sess.run(first)
        assert sess.run(found) == [1.0, 2.0, 3.0]
    second = tf.saved_model.main_op_with_restore(v.assign(5.0).op)
    with tf.Session() as sess:
        sess.run(second)
        assert sess.run(local) == 2.0


def test_relative_paths_let_a_folder_be_moved(tmp_path: Path) -> None:
    tf.get_variable("v", initializer=1.0)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        tf.train.Saver(save_relative_paths=True).save(sess, str(tmp_path / "old" / "model"), 3)
    (tmp_path / "old").rename(tmp_path / "new")
    assert tf.train.latest_checkpoint(str(tmp_path / "new")) == str(tmp_path / "new" / "model-3")


def test_session_begins_with_a_checkpoint_that_is_not_the_latest(tmp_path: Path) -> None:
    v = tf.get_variable("v", initializer=1.0)
    saver = tf.train.Saver()
    with tf.Session() as sess:
        for step in (1, 2):
            sess.run(v.assign(step))
            saver.save(sess, str(tmp_path / "model"), step)
    creator = tf.train.ChiefSessionCreator(checkpoint_filename_with_path=str(tmp_path / "model-1"))
    with tf.train.MonitoredSession(creator) as session:
        assert session.run(v) == 1
    with pytest.raises(ValueError, match="Can not provide both"):
        tf.train.ChiefSessionCreator(checkpoint_dir="a", checkpoint_filename_with_path="b")
