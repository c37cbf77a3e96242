"""A session across tasks in memory: the same methods, where state lives, what is lost with a task and what is not."""

from __future__ import annotations

import asyncio
import copy
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

import aexec
from aexec import errors, ops, proto
from aexec.distributed.cluster_planner import RemotePlan
from aexec.distributed.cluster_session import ClusterSession
from aexec.distributed.memory_engine import CutOff, MemoryCluster, NetworkFaults
from aexec.distributed.task import ClusterTask
from aexec.framework import dtypes
from tests.distributed.clusters import chain, check_idle, cluster_session, on
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder, counting_loop
from tests.support.virtual_clock import run_virtual

F = dtypes.float32


async def test_step_over_three_tasks() -> None:
    async with cluster_session(chain().graph()) as (session, cluster):
        assert [device.name for device in session.devices()] == [
            f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(3)
        ]
        for _ in range(3):
            values = await session.run(["n2:0", "n0:0", "x:0"], {"x:0": [1.0, 2.0]})
            np.testing.assert_array_equal(values, [[-1, -2], [-1, -2], [1, 2]])
        (worker, *_) = cluster.workers.values()
        (kept,) = worker.sessions.values()
        assert kept.describe()["graphs"] == 1, "a partition is sent once"
        await check_idle(cluster)
    assert not any(worker.sessions for worker in cluster.workers.values())


async def test_graph_of_two_plans_stays_until_neither_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    registered = ClusterSession.register_graph
    plans: list[RemotePlan] = []

    async def register_for_two(session: ClusterSession, task: ClusterTask, plan: RemotePlan) -> None:
        if not task.registered:
            plans.append(copy.copy(plan))
            await registered(session, task, plans[0])
        await registered(session, task, plan)

    monkeypatch.setattr(ClusterSession, "register_graph", register_for_two)
    async with cluster_session(chain(1).graph()) as (session, cluster):
        await session.run("n0:0", {"x:0": [1.0]})
        (task,) = [task for task in session.tasks.values() if task.registered]
        (name,) = task.registered
        (kept,) = cluster.workers[task.address].sessions.values()
        gone = weakref.ref(plans.pop())
        assert gone() is None
        await asyncio.sleep(0)  # the session is told in a turn of its loop
        assert task.registered == {name}, "the other plan has it still"
        np.testing.assert_array_equal(await session.run("n0:0", {"x:0": [1.0]}), [-1])
        assert kept.describe()["graphs"] == 1


def test_short_step_is_a_message_and_its_answer_per_task_and_value() -> None:
    """What is fed goes with the step, and what is fetched with its end."""

    async def main() -> None:
        async with cluster_session(chain().graph()) as (session, cluster):
            for fetch, messages in {"n0:0": 1, "n1:0": 3, "n2:0": 5}.items():
                await session.run(fetch, {"x:0": [1.0]})
                before = cluster.network.sent
                await session.run(fetch, {"x:0": [1.0]})
                assert cluster.network.sent - before == 2 * messages, fetch

    run_virtual(main())


async def test_jobs_and_filters() -> None:
    g = GraphBuilder()
    g("v", "VariableV2", device="/job:ps/task:0", shape=(), dtype=F)
    g.const("one", np.float32(1))
    g("init", "Assign", "v", "one", T=F)
    g("add", "AssignAdd", "v", "one", T=F)
    g("twice", "AddV2", "v", "v", device="/job:worker/task:1", T=F)
    async with cluster_session(g.graph(), cluster={"ps": 1, "worker": 2}) as (session, _):
        assert len(session.devices()) == 3
        await session.run([], targets=["init"])
        await session.run([], targets=["add"])
        assert await session.run("twice:0") == 4
    filtered = cluster_session(
        chain(1).graph(), cluster={"worker": 3}, device_filters=["/job:worker/task:0"], allow_soft_placement=True
    )
    async with filtered as (session, _):
        assert [d.name for d in session.devices()] == ["/job:worker/replica:0/task:0/device:CPU:0"]
    with pytest.raises(errors.UnavailableError, match="2 workers, too few"):
        async with cluster_session(chain().graph(), 2, cluster={"ps": 1, "worker": 2}):
            pass


async def test_loop_over_tasks() -> None:
    g = counting_loop()
    for node in g.graph_def.node:
        node.device = on({"add": 1, "less": 2}.get(node.name, 0))
    async with cluster_session(g.graph()) as (session, cluster):
        assert await session.run("result:0", {"n:0": 9}) == 9
        await check_idle(cluster)


async def test_partial_run() -> None:
    g = chain()
    g.placeholder("y")
    g("sum", "AddV2", "n2", "y", device=on(1), T=F)
    async with cluster_session(g.graph()) as (session, cluster):
        setup = await session.partial_run_setup(["n2:0", "sum:0"], ["x:0", "y:0"])
        assert await session.partial_run(setup, "n2:0", {"x:0": 3.0}) == -3
        assert await session.partial_run(setup, "sum:0", {"y:0": 1.0}) == -2
        await check_idle(cluster)


async def test_errors_name_the_task_and_the_node() -> None:
    g = chain(2)
    g("fails", "TestFail", "n1", device=on(2), T=F)
    g("after", "Neg", "fails", device=on(0), T=F)
    async with cluster_session(g.graph()) as (session, cluster):
        with pytest.raises(errors.InvalidArgumentError, match="From /job:worker/replica:0/task:2:\nfailed") as caught:
            await session.run("after:0", {"x:0": 1.0})
        assert caught.value.node == "fails"
        assert await session.run("n1:0", {"x:0": 1.0}) == 1
        await check_idle(cluster)


def _gated(key: int) -> GraphBuilder:
    g = chain(1)
    g("gated", "TestGate", "n0", device=on(1), key=key, T=F)
    g("after", "Neg", "gated", device=on(2), T=F)
    return g


async def test_cancel_deadline_and_a_gone_caller_reach_all_tasks() -> None:
    gate = gates.Gate()
    async with cluster_session(_gated(gate.key).graph()) as (session, cluster):
        step = session.start("after:0", {"x:0": 1.0})
        await gate.entered.wait()
        step.cancel("enough")
        with pytest.raises(errors.CancelledError, match="enough"):
            await step
        assert gate.cancelled == 1
        with pytest.raises(errors.DeadlineExceededError):
            await session.run("after:0", {"x:0": 1.0}, options=aexec.RunOptions(timeout=0.01))
        gate.entered.clear()
        caller = asyncio.create_task(session.run("after:0", {"x:0": 1.0}))
        await gate.entered.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await check_idle(cluster)
        step = session.start("after:0", {"x:0": 1.0})
        await step_begins(session)
        closing = asyncio.create_task(session.close())
        with pytest.raises(errors.CancelledError):
            await step
        await closing
    assert not any(worker.sessions for worker in cluster.workers.values())


async def step_begins(session: aexec.Session) -> None:
    while not session.statistics().in_flight:
        await asyncio.sleep(0)


@pytest.mark.parametrize("silent", [False, True])
def test_task_that_dies_fails_who_needs_it(silent: bool) -> None:
    async def main() -> None:
        gate = gates.Gate()
        graph = _gated(gate.key).graph()
        async with cluster_session(graph, faults=NetworkFaults(silent=silent)) as (session, cluster):
            loop = asyncio.get_running_loop()
            step = session.start("after:0", {"x:0": 1.0})
            await gate.entered.wait()
            began = loop.time()
            cluster.kill("worker-2")
            with pytest.raises(errors.UnavailableError, match="/task:2 is lost, which was to run after: "):
                await step
            assert loop.time() - began < (2.0 if silent else 0.01)
            assert await session.run("n0:0", {"x:0": 1.0}) == -1
            with pytest.raises(errors.UnavailableError, match="task:2"):
                await session.run("after:0", {"x:0": 1.0})
            await check_idle(cluster)

    run_virtual(main())


async def test_one_trace_of_all_tasks_by_the_clients_clock() -> None:
    async with cluster_session(chain().graph()) as (session, cluster):
        assert isinstance(session, ClusterSession)
        task = session.tasks["/job:worker/replica:0/task:1"]
        assert abs(task.clock_offset) < 1e9, "its clock is this one"
        ahead = 3600 * 10**9
        metadata, options = aexec.RunMetadata(), aexec.RunOptions(trace=True, output_partition_graphs=True)
        began = time.time_ns()
        await session.run("n2:0", {"x:0": [1.0]}, options=options, metadata=metadata)
        ended = time.time_ns()
        assert metadata.step_stats is not None
        found = {each.device: each for each in metadata.step_stats.dev_stats}
        assert list(found) == [f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(3)]
        slack = 10**9
        for number, device in enumerate(found.values()):
            (negation,) = [node for node in device.node_stats if node.node_name == f"n{number}"]
            assert began - slack <= negation.all_start_nanos <= ended + slack
            assert any("Recv" in node.timeline_label for node in device.node_stats) == (number > 0)
        assert [{n.op for n in g.node} >= {"Neg"} for g in metadata.partition_graphs] == [True] * 3
        # One whose clock is an hour ahead is put back by as much.
        task.clock_offset, task.round_trip = ahead, 0
        await session.run("n2:0", {"x:0": [1.0]}, options=options, metadata=metadata)
        (stats,) = [each for each in metadata.step_stats.dev_stats if "task:1" in each.device]
        assert all(node.all_start_nanos < ended - ahead // 2 for node in stats.node_stats)
        await session.run("n2:0", {"x:0": [1.0]}, options=aexec.RunOptions(cost_graph=True), metadata=metadata)
        assert metadata.cost_graph is not None
        assert {node.name for node in metadata.cost_graph.node} >= {"n0", "n1", "n2"}
        await check_idle(cluster)


async def test_limits_of_memory_are_each_tasks() -> None:
    g = GraphBuilder()
    g.placeholder("dims", dtypes.int32, [None])
    for task in range(2):
        g.const(f"one{task}", np.float32(1))
        g(f"big{task}", "Fill", "dims", f"one{task}", device=on(task), T=F)
        g(f"sum{task}", "Size", f"big{task}", device=on(task), T=F)
    for limit in ("step_bytes", "session_bytes"):
        async with cluster_session(g.graph(), **{limit: 1 << 20}) as (session, cluster):
            assert await session.run(["sum0:0", "sum1:0"], {"dims:0": [200_000]}) == [200_000, 200_000]
            with pytest.raises(errors.ResourceExhaustedError, match=f"SessionConfig.{limit}") as caught:
                await session.run("sum1:0", {"dims:0": [400_000]})
            assert caught.value.node == "big1" and "From /job:worker/replica:0/task:1" in str(caught.value)
            await check_idle(cluster)


@pytest.mark.parametrize("same_address", [False, True])
def test_lost_task_is_recovered_by_another_worker(same_address: bool) -> None:
    """It gets its graphs again; what it kept is gone, what others kept is not."""
    g = chain()
    for task in (0, 2):
        g(f"v{task}", "VarHandleOp", device=on(task), shape=(), dtype=F, shared_name=f"v{task}".encode())
        g(f"set{task}", "AssignVariableOp", f"v{task}", "x", device=on(task), dtype=F)
        g(f"read{task}", "ReadVariableOp", f"v{task}", device=on(task), dtype=F)

    async def main() -> None:
        async with cluster_session(g.graph(), faults=NetworkFaults(silent=True)) as (session, cluster):
            assert isinstance(session, ClusterSession)
            assert await session.recover() == []
            await session.run([], {"x:0": 7.0}, ["set0", "set2"])
            assert await session.run("n2:0", {"x:0": 1.0}) == -1
            cluster.kill("worker-2")
            with pytest.raises(errors.UnavailableError, match="task:2"):
                await session.run("n2:0", {"x:0": 1.0})
            with pytest.raises(errors.DeadlineExceededError, match=r"no worker that could be .*/task:2 again"):
                await session.recover(timeout=3)
            cluster.add_worker("worker-2" if same_address else "")
            waiting = session.start("n2:0", {"x:0": 1.0})
            assert await session.recover() == ["/job:worker/replica:0/task:2"]
            with pytest.raises(errors.OpError):
                await waiting
            for _ in range(2):
                assert await session.run("n2:0", {"x:0": 1.0}) == -1
            assert await session.run("read0:0") == 7
            with pytest.raises(errors.FailedPreconditionError, match="v2"):
                await session.run("read2:0")
            await check_idle(cluster)
            await asyncio.sleep(20)  # leases go on
            assert await session.run("n2:0", {"x:0": 1.0}) == -1

    run_virtual(main())


async def _run_on(session: aexec.Session, fetch: str) -> None:
    while True:
        await session.run(fetch)


def test_task_that_was_only_cut_off_is_opened_anew() -> None:
    g = chain(1)
    g("v", "VarHandleOp", device=on(1), shape=(), dtype=F, shared_name=b"v")
    g("set", "AssignVariableOp", "v", "x", device=on(1), dtype=F)
    g("read", "ReadVariableOp", "v", device=on(1), dtype=F)

    async def main() -> None:
        async with cluster_session(g.graph(), 2) as (session, cluster):
            assert isinstance(session, ClusterSession)
            await session.run([], {"x:0": 7.0}, ["set"])
            sent = cluster.network.sent
            cluster.network.faults = NetworkFaults(partitions=[CutOff(sent, sent + 200, ["worker-1"])])
            with pytest.raises(errors.UnavailableError, match="task:1"):
                await _run_on(session, "read:0")
            cluster.network.faults = NetworkFaults()
            assert await session.recover() == ["/job:worker/replica:0/task:1"]
            with pytest.raises(errors.FailedPreconditionError, match="v"):
                await session.run("read:0")
            await session.run([], {"x:0": 8.0}, ["set"])
            assert await session.run("read:0") == 8
            await check_idle(cluster)

    run_virtual(main())


async def test_each_parameter_server_writes_and_reads_its_shard_of_a_checkpoint(tmp_path: Path) -> None:
    cluster_of = {"ps": 2, "worker": 1}
    values = [np.full(10_000, fill, np.float32) for fill in (3.0, 4.0)]
    with aexec.Graph() as graph, aexec.device(aexec.training.replica_device_setter(cluster=cluster_of)):
        a = aexec.get_variable("a", [10_000], initializer=aexec.initializers.Constant(3.0))
        b = aexec.get_variable("b", [10_000], use_resource=True, initializer=aexec.initializers.Constant(4.0))
        init = aexec.global_variables_initializer()
        saver = aexec.training.Saver(sharded=True)
    readers = {node.device for node in graph.nodes if node.op == "RestoreV2"}
    assert readers == {"/job:ps/task:0", "/job:ps/task:1"}
    async with cluster_session(graph, cluster=cluster_of) as (session, cluster):
        await session.run([], targets=[init])
        before = cluster.network.sent_bytes
        path = await saver.save(session, str(tmp_path / "model"))
        assert {file.name for file in tmp_path.iterdir()} >= {f"model.data-0000{part}-of-00002" for part in range(2)}
        assert cluster.network.sent_bytes - before < values[0].nbytes, "no variable travels"
        await check_idle(cluster)
    async with cluster_session(graph, cluster=cluster_of) as (session, cluster):
        before = cluster.network.sent_bytes
        await saver.restore(session, path)
        assert cluster.network.sent_bytes - before < values[0].nbytes
        np.testing.assert_array_equal(await session.run([a, b]), values)


async def test_resources_of_a_task_are_used_from_other_tasks() -> None:
    """A table, a tensor under a handle, and summaries of all tasks."""
    with aexec.Graph() as graph:
        with aexec.device(on(1)):
            x = aexec.placeholder("float32", [None], name="x")
            handle = ops.get_session_handle(ops.neg(x), name="handle")
            given = aexec.placeholder("string", [], name="given")
            kept = ops.get_session_tensor(given, dtype="float32", name="kept")
            ops.delete_session_tensor(given, name="delete")
        with aexec.device(on(2)):
            table = ops.hash_table_v2(key_dtype="string", value_dtype="int64")
            fill = ops.initialize_table_v2(table, aexec.constant([b"a", b"b"]), aexec.constant([1, 2], dtype="int64"))
            keys = aexec.constant([b"b", b"c"])
            found = ops.lookup_table_find_v2(table, keys, aexec.constant(-1, dtype="int64"))
        with aexec.device(on(0)):
            elsewhere = [ops.identity(found), ops.neg(kept)]
        for task in range(3):
            with aexec.device(on(task)):
                aexec.summary.scalar(f"task{task}", aexec.constant(float(task)))
        summaries = aexec.summary.merge_all()
    async with cluster_session(graph) as (session, cluster):
        await session.run([], targets=[fill])
        name = await session.run(handle, {x: [1.0, 2.0]})
        numbers, values = await session.run(elsewhere, {given: name})
        assert numbers.tolist() == [2, -1] and values.tolist() == [1.0, 2.0]
        await session.run([], {given: name}, ["delete"])
        with pytest.raises(errors.OpError, match="handle"):
            await session.run(elsewhere, {given: name})
        read = proto.Summary.FromString(await session.run(summaries))
        assert {value.tag: value.simple_value for value in read.value} == {f"task{task}": task for task in range(3)}
        await check_idle(cluster)


def test_training_goes_on_from_the_last_checkpoint_when_a_parameter_server_dies(tmp_path: Path) -> None:
    cluster_of = {"ps": 2, "worker": 1}
    with aexec.Graph() as graph, aexec.device(aexec.training.replica_device_setter(cluster=cluster_of)):
        x = aexec.placeholder("float32", [2], name="x")
        w = aexec.get_variable("w", [2], use_resource=True, initializer=aexec.initializers.Zeros())
        b = aexec.get_variable("b", [2], use_resource=True, initializer=aexec.initializers.Zeros())
        step = aexec.training.get_or_create_global_step()
        loss = ops.sum(ops.square(w + b - x), [0])
        train = aexec.training.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
    config = aexec.SessionConfig(cluster=cluster_of)

    async def main() -> None:
        losses = []
        async with MemoryCluster("test", 3) as cluster:
            training = aexec.training.TrainingSession(
                graph,
                checkpoint_dir=str(tmp_path),
                save_checkpoint_steps=4,
                make_session=lambda graph: aexec.Session(graph, "memory://test", config),
                handle_signals=False,
            )
            async with training:
                for number in range(10):
                    if number == 6:
                        cluster.kill("worker-1")
                        asyncio.get_running_loop().call_later(2, cluster.add_worker)
                    losses.append(float((await training.run([loss, train], {"x:0": [1.0, 2.0]}))[0]))
                last = await training.global_step()
        # The checkpoint of step 4 was the last before the death: steps 5 and 6 are done again.
        np.testing.assert_allclose(losses, [5 * 0.36**n for n in (*range(6), *range(4, 8))], rtol=1e-4)
        assert last == 8

    run_virtual(main())


def test_client_that_is_gone_is_given_up() -> None:
    async def main() -> None:
        async with MemoryCluster("test", 1) as cluster:
            session = await aexec.Session(chain(1).graph(), "memory://test")
            await session.run("n0:0", {"x:0": 1.0})
            (worker,) = cluster.workers.values()
            assert len(worker.sessions) == 1
            cluster.network.engines.pop("client-0")
            await asyncio.sleep(30)
            assert not worker.sessions
            await session.close()

    run_virtual(main())


async def test_state_is_kept_where_it_is_and_reset() -> None:
    g = GraphBuilder()
    g("v", "VariableV2", device=on(2), shape=(), dtype=F)
    g.const("one", np.float32(1))
    g("init", "Assign", "v", "one", T=F)
    g("read", "Identity", "v", device=on(0), T=F)
    async with cluster_session(g.graph()) as (session, cluster):
        await session.run([], targets=["init"])
        held = [each.describe()["resources"] for w in cluster.workers.values() for each in w.sessions.values()]
        assert await session.run("read:0") == 1
        await session.reset()
        with pytest.raises(errors.FailedPreconditionError, match="uninit"):
            await session.run("read:0")
        assert sum(held) in (0, 1)


async def test_missing_features_are_refused_by_name() -> None:
    async with cluster_session(chain().graph()) as (session, _):
        with pytest.raises(errors.UnimplementedError, match="across machines"):
            session.queue("q")
        with pytest.raises(errors.UnimplementedError, match="across machines"):
            session.queues()
    with pytest.raises(errors.UnimplementedError, match="log_memory"):
        async with cluster_session(chain().graph(), log_memory=True):
            pass
    with pytest.raises(errors.NotFoundError, match="memory://nowhere"):
        await aexec.Session(chain().graph(), "memory://nowhere")
