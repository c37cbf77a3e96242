"""Replicas that train in rounds: the steps of one with all batches; late gradients are dropped; what stops, stops."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import layers, nn, ops, training
from aexec.autodiff.aggregation import as_dense
from aexec.framework import errors
from aexec.io.tensor_bundle import BundleReader

SIZES = (5, 7, 2)


def batches(rounds: int, replicas: int) -> tuple[Any, Any]:
    """Examples, [rounds, replicas, 8, …]."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((rounds, replicas, 8, SIZES[0])).astype(np.float32)
    return x, x @ rng.standard_normal((SIZES[0], SIZES[2])).astype(np.float32)


def loss_of(x: Any, y: Any, ids: Any = None) -> Any:
    """Of a small network, whose weights all replicas share; with `ids`, rows of a table are added to its inputs."""
    with aexec.variable_scope("model", reuse=aexec.AUTO_REUSE):
        if ids is not None:
            table = aexec.get_variable("table", [20, SIZES[0]])
            x = x + nn.embedding_lookup(table, ids)
        hidden = layers.dense(x, SIZES[1], activation=ops.tanh, name="one")
        made = layers.dense(hidden, SIZES[2], name="two")
    return ops.mean(ops.square(made - y), [0, 1])


def inputs(name: str) -> tuple[Any, Any, Any]:
    """Placeholders."""
    return (
        aexec.placeholder("float32", [None, SIZES[0]], name=f"x{name}"),
        aexec.placeholder("float32", [None, SIZES[2]], name=f"y{name}"),
        aexec.placeholder("int32", [None], name=f"ids{name}"),
    )


def made(optimizer: str) -> training.Optimizer:
    return training.AdamOptimizer(0.05) if optimizer == "adam" else training.MomentumOptimizer(0.1, 0.9)


async def together(optimizer: str, rounds: int, replicas: int, rows: bool) -> list[float]:
    """Losses of the whole of each round, before it, by one replica with all batches."""
    xs, ys = batches(rounds, replicas)
    with aexec.Graph() as graph:
        aexec.set_random_seed(1)
        x, y, ids = inputs("")
        loss = loss_of(x, y, ids if rows else None)
        step = made(optimizer).minimize(loss)
        init = aexec.global_variables_initializer()
    async with aexec.Session(graph) as session:
        await session.run(init)
        whole = xs.reshape(rounds, -1, SIZES[0]), ys.reshape(rounds, -1, SIZES[2])
        feeds = [{x: whole[0][at], y: whole[1][at], ids: np.tile(numbers(at), replicas)} for at in range(rounds)]
        return [(await session.run([loss, step], fed))[0] for fed in feeds]


def numbers(at: int) -> Any:
    """Rows of the table, in each round the same for all replicas: the mean of a row is that of those that have it."""
    return np.random.default_rng(at).permutation(20)[:8].astype(np.int32)


@pytest.mark.parametrize("rows", [False, True], ids=["whole", "rows"])
@pytest.mark.parametrize("optimizer", ["adam", "momentum"])
async def test_losses_are_those_of_one_replica_with_all_batches(optimizer: str, rows: bool) -> None:
    rounds, replicas = 6, 3
    xs, ys = batches(rounds, replicas)
    with aexec.Graph() as graph:
        aexec.set_random_seed(1)
        count = training.get_or_create_global_step()
        sync = training.SyncReplicasOptimizer(made(optimizer), replicas)
        fed = [inputs(f"_{number}") for number in range(replicas)]
        losses = [loss_of(x, y, ids if rows else None) for x, y, ids in fed]
        steps = [sync.minimize(loss, global_step=count) for loss in losses]
        hook = sync.make_session_run_hook()
    found = np.zeros((rounds, replicas))

    async def replica(session: Any, number: int) -> None:
        turn = iter(range(rounds + 1))
        at = 0

        def feeds() -> Any:
            nonlocal at
            at = min(next(turn), rounds - 1)
            x, y, ids = fed[number]
            return {x: xs[at, number], y: ys[at, number], ids: numbers(at)}

        def after(result: Any) -> None:
            found[at, number] = result[0]

        await hook.run_replica(session, [losses[number], steps[number]], feeds, after)

    async with training.TrainingSession(graph, hooks=[training.StopAtStepHook(last_step=rounds), hook]) as session:
        await asyncio.gather(*(replica(session, number) for number in range(replicas)))
        assert await session.global_step() == rounds
    expected = await together(optimizer, rounds, replicas, rows)
    # The last round's losses are seen by those that end it first; those of the others' last steps are not given.
    np.testing.assert_allclose(found.mean(1)[:-1], expected[:-1], rtol=2e-5)


def shared_model() -> tuple[aexec.Graph, Any, Any, list[Any], list[Any]]:
    """(graph, optimizer, variable, gradients that are fed, steps of two replicas), of a variable without any loss."""
    with aexec.Graph() as graph:
        count = training.get_or_create_global_step()
        v = aexec.Variable([0.0, 0.0], name="v")
        sync = training.SyncReplicasOptimizer(training.GradientDescentOptimizer(1.0), 1, 2)
        fed = [aexec.placeholder("float32", [2], name=f"g{number}") for number in range(2)]
        steps = [sync.apply_gradients([(gradient, v)], global_step=count) for gradient in fed]
        aexec.global_variables_initializer()
    return graph, sync, v, fed, steps


async def test_late_gradient_is_dropped() -> None:
    """The round takes the first gradient that comes; the other replica's, of the round before, changes nothing."""
    graph, sync, v, fed, steps = shared_model()
    with graph:
        init, ready, locals_ = sync.get_init_tokens_op(0), sync.chief_init_op, aexec.local_variables_initializer()
    names = [variable.name for variable in graph_locals(graph)]
    assert names == ["sync_rep_local_step:0", "sync_rep_local_step_1:0"]
    async with aexec.Session(graph) as session:
        await session.run([], targets=[graph.node("init"), locals_])
        await session.run([], targets=[ready, init])
        early = asyncio.create_task(session.run(steps[0], {fed[0]: [1, 2]}))
        await session.run(sync.take_op)
        await session.run(sync.chief_op)
        await early
        # Of round 0, while the accumulator waits for those of round 1: it gets the other token, of round 1.
        await session.run(steps[1], {fed[1]: [100, 100]})
        assert (await session.run(v)).tolist() == [-1, -2]
        # Of round 1 now.
        last = asyncio.create_task(session.run(steps[1], {fed[1]: [10, 10]}))
        await session.run(sync.take_op)
        await session.run(sync.chief_op)
        await last
        assert (await session.run(v)).tolist() == [-11, -12]


def graph_locals(graph: aexec.Graph) -> list[Any]:
    with graph:
        return aexec.local_variables()


async def test_round_that_is_given_up_has_changed_nothing() -> None:
    """One variable has its gradients, the other one not, when training stops."""
    with aexec.Graph() as graph:
        count = training.get_or_create_global_step()
        a, b = aexec.Variable(0.0, name="a"), aexec.Variable(0.0, name="b")
        sync = training.SyncReplicasOptimizer(training.GradientDescentOptimizer(1.0), 2)
        fed = aexec.placeholder("float32", [])
        step = sync.apply_gradients([(fed, a), (fed + 0.0, b)], global_step=count)
        hook = sync.make_session_run_hook()
    async with training.TrainingSession(graph, hooks=[hook]) as session:
        only = asyncio.create_task(hook.run_replica(session, step, lambda: {fed: 1.0}))
        while not await session.session.run(accumulated(graph)):
            await asyncio.sleep(0)
        session.request_stop()
        await only
        assert await session.session.run([a, b, count]) == [0, 0, 0]


def accumulated(graph: aexec.Graph) -> Any:
    """How many gradients `a` has."""
    found = [node for node in graph if node.op == "AccumulatorNumAccumulated"]
    with graph:
        handle = next(node for node in graph if node.op == "ConditionalAccumulator").output(0)
        return found[0].output(0) if found else ops.accumulator_num_accumulated(handle)


async def test_replicas_share_one_graph() -> None:
    """A step may be run by several tasks, if the gradients of all are waited for; averages move with each round."""
    with aexec.Graph() as graph:
        count = training.get_or_create_global_step()
        v = aexec.Variable(0.0, name="v")
        average = training.ExponentialMovingAverage(0.5)
        sync = training.SyncReplicasOptimizer(
            training.GradientDescentOptimizer(1.0), 3, variable_averages=average, variables_to_average=[v]
        )
        fed = aexec.placeholder("float32", [])
        step = sync.apply_gradients([(fed, v)], global_step=count)
        hook = sync.make_session_run_hook()
    made = average.average(v)
    hooks = [hook, training.StopAtStepHook(last_step=4)]
    async with training.TrainingSession(graph, hooks=hooks) as session:
        await asyncio.gather(*(hook.run_replica(session, step, lambda: {fed: -1.0}) for _ in range(3)))
        value, steps, moved = await session.session.run([v, count, made])
    assert (value, steps) == (4, 4) and moved == pytest.approx(0.5 * 4 + 0.25 * 3 + 0.125 * 2 + 0.0625)


async def test_more_gradients_than_replicas_are_waited_for() -> None:
    """Tokens at the beginning let replicas give what is lacking."""
    with aexec.Graph() as graph:
        count = training.get_or_create_global_step()
        v = aexec.Variable(0.0, name="v")
        sync = training.SyncReplicasOptimizer(training.GradientDescentOptimizer(1.0), 4, 2)
        fed = aexec.placeholder("float32", [])
        steps = [sync.apply_gradients([(fed, v)], global_step=count) for _ in range(2)]
        hook = sync.make_session_run_hook()
    async with training.TrainingSession(graph, hooks=[hook, training.StopAtStepHook(last_step=3)]) as session:
        await asyncio.gather(*(hook.run_replica(session, step, lambda: {fed: -1.0}) for step in steps))
        assert await session.session.run([v, count]) == [3, 3]


async def test_asynchronous_replicas_share_variables_and_count_all_steps() -> None:
    """Each applies its gradients by itself: no step is lost, and the loss goes down."""
    replicas, rounds = 4, 15
    xs, ys = batches(rounds, replicas)
    with aexec.Graph() as graph:
        aexec.set_random_seed(1)
        x, y, _ = inputs("")
        loss = loss_of(x, y)
        count = training.get_or_create_global_step()
        step = training.AdamOptimizer(0.02).minimize(loss, global_step=count)

    async def replica(session: Any, number: int) -> list[float]:
        feeds: Sequence[Any] = [{x: xs[at, number], y: ys[at, number]} for at in range(rounds)]
        return [(await session.run([loss, step], one))[0] for one in feeds]

    async with training.TrainingSession(graph) as session:
        losses = await asyncio.gather(*(replica(session, number) for number in range(replicas)))
        assert await session.global_step() == replicas * rounds
    assert np.mean([one[-3:] for one in losses]) < 0.5 * np.mean([one[:3] for one in losses])


async def test_training_goes_on_from_a_checkpoint(tmp_path: Any) -> None:
    """The counts of replicas and accumulators are set to that of the checkpoint: no gradient is late for ever."""
    for last in (2, 5):
        with aexec.Graph() as graph:
            count = training.get_or_create_global_step()
            v = aexec.Variable(0.0, name="v")
            sync = training.SyncReplicasOptimizer(training.GradientDescentOptimizer(1.0), 2)
            fed = aexec.placeholder("float32", [])
            steps = [sync.apply_gradients([(fed, v)], global_step=count) for _ in range(2)]
            hook = sync.make_session_run_hook()
        hooks = [hook, training.StopAtStepHook(last_step=last)]
        async with training.TrainingSession(graph, checkpoint_dir=str(tmp_path), hooks=hooks) as session:
            feeds = partial(dict, {fed: -1.0})
            await asyncio.gather(*(hook.run_replica(session, step, feeds) for step in steps))
            assert await session.session.run([v, count]) == [last, last]


async def test_checkpoints_are_written_between_rounds(tmp_path: Any) -> None:
    """Though some replica is in a step at any time."""
    with aexec.Graph() as graph:
        count = training.get_or_create_global_step()
        variables = [aexec.Variable(np.zeros(100, np.float32), name=name) for name in "ab"]
        sync = training.SyncReplicasOptimizer(training.GradientDescentOptimizer(1.0), 2)
        fed = aexec.placeholder("float32", [100])
        steps = [sync.apply_gradients([(fed, v) for v in variables], global_step=count) for _ in range(2)]
        hook = sync.make_session_run_hook()
    hooks = [hook, training.StopAtStepHook(last_step=6)]
    feeds = {fed: np.full(100, -1, np.float32)}
    saving: dict[str, Any] = {"checkpoint_dir": str(tmp_path), "save_checkpoint_steps": 1}
    async with training.TrainingSession(graph, hooks=hooks, **saving) as session:
        await asyncio.gather(*(hook.run_replica(session, step, lambda: feeds) for step in steps))
    state = await training.get_checkpoint_state(str(tmp_path))
    assert state is not None and len(state.paths) > 2
    for path in state.paths:
        found = await asyncio.to_thread(read, path)
        assert len({float(value) for name in "ab" for value in found[name]} | {float(found["global_step"])}) == 1


def read(path: str) -> dict[str, Any]:
    """What a checkpoint has."""
    with BundleReader(path) as reader:
        return {name: reader.read(name) for name in ("a", "b", "global_step")}


def test_synchronous_optimizer_has_the_slots_of_the_wrapped_one() -> None:
    with aexec.Graph():
        v = aexec.Variable(0.0, name="v")
        momentum = training.MomentumOptimizer(1.0, 0.5)
        sync = training.SyncReplicasOptimizer(momentum, 1)
        pairs = sync.compute_gradients(v * 2.0)
        assert pairs[0][1] is v and as_dense(pairs[0][0]).shape.rank == 0
        sync.apply_gradients(pairs, global_step=training.get_or_create_global_step())
        assert sync.slot_names == ["momentum"] and sync.slot(v, "momentum") is momentum.slot(v, "momentum")
        assert sync.variables() == momentum.variables()


def test_invalid_uses_are_refused() -> None:
    with aexec.Graph():
        v, w = aexec.Variable(0.0, name="v"), aexec.Variable(0.0, name="w")
        count = training.get_or_create_global_step()
        sync = training.SyncReplicasOptimizer(training.GradientDescentOptimizer(1.0), 3, 1)
        gradient = aexec.constant(1.0)
        with pytest.raises(errors.FailedPreconditionError, match="should be called after apply_gradients"):
            _ = sync.chief_init_op
        with pytest.raises(errors.FailedPreconditionError, match="take_op should be called after"):
            _ = sync.take_op
        with pytest.raises(errors.InvalidArgumentError, match="at least one variable"):
            sync.apply_gradients([(None, v)], global_step=count)
        with pytest.raises(errors.InvalidArgumentError, match="Global step is required to check staleness"):
            sync.apply_gradients([(gradient, v)])
        sync.apply_gradients([(gradient, v)], global_step=count)
        with pytest.raises(errors.InvalidArgumentError, match="gradients of the same variables"):
            sync.apply_gradients([(gradient, w)], global_step=count)
        with pytest.raises(errors.InvalidArgumentError, match=r"1 \(given\) vs 2 \(needed\)"):
            sync.get_init_tokens_op(1)
