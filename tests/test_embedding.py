"""The boundary for other languages: bytes in, a status and bytes out, and no exceptions."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import proto
from aexec.embedding import Embedding, Status
from aexec.errors import Code
from aexec.framework.wire import tensor_codec
from tests.support.gates import ThreadGate

OK = Status(0, "")


def graph_def() -> bytes:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None], name="x")
        z = aexec.placeholder("float32", [None], name="z")
        y = aexec.ops.square(x, name="y")
        aexec.ops.add(y, z, name="sum")
        aexec.ops.identity(aexec.constant([b"a", b"\xff\0"]), name="text")
    return graph.to_bytes()


def tensor(value: Any, dtype: Any = np.float32) -> bytes:
    return tensor_codec.to_proto(np.array(value, dtype)).SerializeToString()


def array(data: bytes) -> Any:
    return tensor_codec.from_proto(proto.TensorProto.FromString(data))


def opened(made: tuple[Status, int]) -> int:
    status, session = made
    assert status == OK and session
    return session


@pytest.fixture
def embedding() -> Iterator[Embedding]:
    made = Embedding()
    yield made
    for number in list(made._sessions):  # of a test that failed
        made.close(number)
    left = [thread for thread in threading.enumerate() if thread.name == "aexec.embedding"]
    assert not left, "the thread ends with the last session"


@pytest.fixture
def session(embedding: Embedding) -> Iterator[int]:
    number = opened(embedding.new_session(graph_def()))
    yield number
    assert embedding.close(number) == OK


class TestSessions:
    def test_session_without_a_graph(self, embedding: Embedding) -> None:
        session = opened(embedding.new_session())
        with aexec.Graph() as more:
            aexec.constant(3.0, name="c")
        assert embedding.extend(session, more.to_bytes()) == OK
        status = embedding.extend(session, more.to_bytes())
        assert status.code == Code.INVALID_ARGUMENT and "'c'" in status.message
        status, tensors, metadata = embedding.run(session, fetches=["c:0"])
        assert (status, array(tensors[0]), metadata) == (OK, 3, b"")
        assert embedding.close(session) == OK
        for status in (
            embedding.close(session),
            embedding.extend(session, b""),
            embedding.run(session, fetches=["c:0"])[0],
            embedding.list_devices(session)[0],
        ):
            assert status.code == Code.NOT_FOUND and f"There is no session {session}" in status.message

    def test_settings(self, embedding: Embedding) -> None:
        config = proto.ConfigProto(operation_timeout_in_ms=60_000)
        config.device_count["CPU"] = 2
        session = opened(embedding.new_session(graph_def(), config.SerializeToString()))
        status, devices = embedding.list_devices(session)
        found = [proto.DeviceAttributes.FromString(device) for device in devices]
        assert status == OK and [device.device_type for device in found] == ["CPU", "CPU"]
        assert found[1].name.endswith("/device:CPU:1")
        assert embedding.close(session) == OK
        refused = proto.ConfigProto()
        refused.gpu_options.per_process_gpu_memory_fraction = 2
        assert embedding.new_session(b"", refused.SerializeToString())[0].code == Code.UNIMPLEMENTED

    @pytest.mark.parametrize("wrong", [b"\xff\xff", "text", None, 3])
    def test_invalid_message_is_refused(self, embedding: Embedding, session: int, wrong: Any) -> None:
        """It is refused, whatever it is and wherever it comes."""
        for status in (
            embedding.new_session(wrong or b"\xff")[0],
            embedding.new_session(b"", wrong)[0],
            embedding.extend(session, wrong),
            embedding.run(session, [("x:0", wrong)], ["y:0"])[0],
            embedding.run(session, [], ["y:0"], options=wrong or 3)[0],
            embedding.make_callable(session, wrong)[0],
        ):
            assert status.code == Code.INVALID_ARGUMENT and status.message
        assert list(embedding._sessions) == [session]

    def test_forked(self, embedding: Embedding, session: int) -> None:
        if not hasattr(os, "fork"):
            pytest.skip("forks a process")
        assert embedding.run(session, [], ["text:0"])[0] == OK
        child = os.fork()
        if not child:
            os._exit(int(embedding.run(session, [], ["text:0"])[0].code))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == Code.FAILED_PRECONDITION


class TestRunning:
    def test_tensors_in_and_out(self, embedding: Embedding, session: int) -> None:
        feeds = [("x:0", tensor([1, 2])), ("z", tensor([10, 20]))]
        status, tensors, _ = embedding.run(session, feeds, ["sum:0", "text:0", "y", "y:0"], ["y"])
        assert status == OK
        assert array(tensors[0]).tolist() == [11, 24] and array(tensors[1]).tolist() == [b"a", b"\xff\0"]
        assert array(tensors[2]).tolist() == array(tensors[3]).tolist() == [1, 4]
        assert proto.TensorProto.FromString(tensors[0]).dtype == aexec.float32.enum

    def test_types_that_arrays_do_not_tell(self, embedding: Embedding) -> None:
        with aexec.Graph() as graph:
            aexec.placeholder("qint8", [1], name="q")
        session = opened(embedding.new_session(graph.to_bytes()))
        fed = proto.TensorProto(dtype=aexec.qint8.enum, int_val=[3], tensor_shape={"dim": [{"size": 1}]})
        status, tensors, _ = embedding.run(session, [("q:0", fed.SerializeToString())], ["q:0"])
        assert status == OK and proto.TensorProto.FromString(tensors[0]).dtype == aexec.qint8.enum
        assert embedding.close(session) == OK

    def test_options_and_metadata(self, embedding: Embedding, session: int) -> None:
        options = proto.RunOptions(trace_level=proto.RunOptions.FULL_TRACE, output_partition_graphs=True)
        given = options.SerializeToString()
        status, _, data = embedding.run(session, [("x:0", tensor([1]))], ["y:0"], options=given)
        metadata = proto.RunMetadata.FromString(data)
        assert status == OK and metadata.partition_graphs
        assert "y" in {node.node_name for device in metadata.step_stats.dev_stats for node in device.node_stats}

    def test_what_is_wrong(self, embedding: Embedding, session: int) -> None:
        x = tensor([1])
        for feeds, fetches, code, words in (
            ([], ["none:0"], Code.NOT_FOUND, "none"),
            ([], [], Code.INVALID_ARGUMENT, "at least one"),
            ([], ["y:0"], Code.INVALID_ARGUMENT, "x"),
            ([("x:0", x), ("x:0", x)], ["y:0"], Code.INVALID_ARGUMENT, "twice"),
            ([("x:0", tensor([[1]]))], ["y:0"], Code.INVALID_ARGUMENT, "shape (1, 1)"),
            ([("x:0", tensor([1], np.int32))], ["y:0"], Code.INVALID_ARGUMENT, "int32"),
            ([("x:0", b"\xff")], ["y:0"], Code.INVALID_ARGUMENT, "feed x:0"),
            ([(3, x)], ["y:0"], Code.INVALID_ARGUMENT, "got int"),
            (5, ["y:0"], Code.INTERNAL, "TypeError"),
        ):
            status, tensors, metadata = embedding.run(session, feeds, fetches)  # type: ignore[arg-type]
            assert status.code == code and words in status.message, status
            assert (tensors, metadata) == ([], b"")

    def test_many_threads(self, embedding: Embedding, session: int) -> None:
        def run(i: int) -> float:
            status, tensors, _ = embedding.run(session, [("x:0", tensor([i]))], ["y:0"], run_id=i)
            assert status == OK
            return float(array(tensors[0])[0])

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(run, range(50))) == [i * i for i in range(50)]

    def test_deadline(self, embedding: Embedding) -> None:
        session = opened(embedding.new_session(waiting_graph()))
        options = proto.RunOptions(timeout_in_ms=1).SerializeToString()
        assert embedding.run(session, [], ["taken:0"], options=options)[0].code == Code.DEADLINE_EXCEEDED
        assert embedding.close(session) == OK


def waiting_graph() -> bytes:
    """`taken` waits for an element of a queue that nobody puts in."""
    with aexec.Graph() as graph:
        queue = aexec.ops.fifo_queue_v2(component_types=[aexec.float32], shapes=[[]], name="q")
        aexec.ops.queue_dequeue_v2(queue, component_types=[aexec.float32], name="taken")
        gate_input = aexec.constant(1.0, name="one")
        aexec.ops.add(gate_input, gate_input, name="two")
    return graph.to_bytes()


class TestCancelling:
    def test_by_number(self, embedding: Embedding) -> None:
        gate = ThreadGate()
        with aexec.Graph() as graph:
            held = aexec.ops.test_thread_gate(aexec.constant(1.0), key=gate.key, name="held")
            aexec.ops.identity(held, name="after")
        session = opened(embedding.new_session(graph.to_bytes()))
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(embedding.run, session, [], ["after:0"], run_id=7)
            assert gate.entered.wait(60)
            assert embedding.run(session, [], ["after:0"], run_id=7)[0].code == Code.ALREADY_EXISTS
            assert embedding.cancel(session, 8).code == Code.NOT_FOUND
            assert embedding.cancel(session, 7) == OK
            status, tensors, _ = running.result(60)
            assert status == (Code.CANCELLED, "The call with run_id 7 was cancelled") and not tensors
            gate.open.set()
            assert embedding.cancel(session, 7).code == Code.NOT_FOUND
        assert embedding.close(session) == OK

    def test_closing(self, embedding: Embedding) -> None:
        gate = ThreadGate()
        with aexec.Graph() as graph:
            aexec.ops.test_thread_gate(aexec.constant(1.0), key=gate.key, name="held")
        session = opened(embedding.new_session(graph.to_bytes()))
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(embedding.run, session, [], ["held:0"])
            assert gate.entered.wait(60)
            gate_opener = threading.Timer(0, gate.open.set)
            gate_opener.start()
            assert embedding.close(session) == OK
            assert running.result(60)[0].code in (Code.OK, Code.CANCELLED)
            gate_opener.join()

    def test_session_may_close_between_the_end_of_a_run_and_its_answer(
        self, embedding: Embedding, session: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        loop, closed = embedding._sessions[session].loop, embedding._sessions[session].session
        wait = loop.wait

        def wait_and_close(work: Any) -> Any:
            result = wait(work)
            wait(closed.close())
            return result

        monkeypatch.setattr(loop, "wait", wait_and_close)
        status, tensors, _ = embedding.run(session, [("x:0", tensor([3]))], ["y:0"])
        assert status == OK and array(tensors[0]).tolist() == [9]
        assert embedding.run(session, [("x:0", tensor([3]))], ["y:0"])[0].code == Code.CANCELLED


class TestPartialRuns:
    def test_in_parts(self, embedding: Embedding, session: int) -> None:
        status, handle = embedding.partial_run_setup(session, ["x:0", "z:0"], ["y:0", "sum"])
        assert status == OK
        status, tensors = embedding.partial_run(session, handle, [("x:0", tensor([3]))], ["y:0"])
        assert status == OK and array(tensors[0]).tolist() == [9]
        status, tensors = embedding.partial_run(session, handle, [("z:0", tensor([1]))], ["sum:0"])
        assert status == OK and array(tensors[0]).tolist() == [10]
        assert embedding.partial_run(session, handle, [], ["sum:0"])[0].code == Code.INVALID_ARGUMENT
        assert embedding.cancel_partial_run(session, handle).code == Code.NOT_FOUND

    def test_cancelled(self, embedding: Embedding, session: int) -> None:
        status, handle = embedding.partial_run_setup(session, ["x:0", "z:0"], ["y:0", "sum:0"])
        assert status == OK and embedding.cancel_partial_run(session, handle) == OK
        status, _ = embedding.partial_run(session, handle, [("x:0", tensor([3]))], ["y:0"])
        assert status.code == Code.CANCELLED
        assert embedding.cancel_partial_run(session, handle).code == Code.NOT_FOUND
        assert embedding.partial_run_setup(session, ["none:0"], ["y:0"])[0].code == Code.NOT_FOUND


class TestCallables:
    def test_made_run_and_released(self, embedding: Embedding, session: int) -> None:
        options = proto.CallableOptions(feed=["x:0"], fetch=["y"])
        options.run_options.trace_level = proto.RunOptions.FULL_TRACE
        status, call = embedding.make_callable(session, options.SerializeToString())
        assert status == OK and call
        status, tensors, metadata = embedding.run_callable(session, call, [tensor([5])], run_id=1)
        assert status == OK and array(tensors[0]).tolist() == [25]
        assert proto.RunMetadata.FromString(metadata).step_stats.dev_stats
        assert embedding.run_callable(session, call)[0].code == Code.INVALID_ARGUMENT
        assert embedding.run_callable(session, call, [b"\xff"])[0].message.startswith("feed 0: ")
        assert embedding.release_callable(session, call) == OK
        assert embedding.run_callable(session, call, [tensor([5])])[0].code == Code.NOT_FOUND
        assert embedding.release_callable(session, call).code == Code.NOT_FOUND

    def test_what_names_nothing(self, embedding: Embedding, session: int) -> None:
        options = proto.CallableOptions(fetch=["none:0"]).SerializeToString()
        assert embedding.make_callable(session, options)[0].code == Code.NOT_FOUND
