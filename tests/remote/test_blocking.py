"""Sessions without an event loop of one's own."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas
import pytest
from aexec_server import ServerConfig

import aexec
from aexec import errors
from tests.support.serving import serving_both
from tests.support.signals import interruptible


@pytest.fixture
def urls() -> Iterator[tuple[str, str]]:
    """The addresses of a server in a thread, for HTTP and for gRPC."""
    loop = asyncio.new_event_loop()
    serving = serving_both(ServerConfig(grpc_port=0))
    _, *addresses = loop.run_until_complete(serving.__aenter__())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield addresses[0], addresses[1]
    asyncio.run_coroutine_threadsafe(serving.__aexit__(None, None, None), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def url(urls: tuple[str, str]) -> str:
    return urls[0]


@pytest.fixture(params=["here", "HTTP", "gRPC"])
def there(request: pytest.FixtureRequest, urls: tuple[str, str]) -> str | None:
    """The address of a server; None for a session of this process."""
    return {"here": None, "HTTP": urls[0], "gRPC": urls[1]}[request.param]


@pytest.fixture
def graph() -> aexec.Graph:
    with aexec.Graph() as graph:
        aexec.ops.square(aexec.placeholder(aexec.float32, [None], name="x"), name="y")
    return graph


def test_methods_wait(graph: aexec.Graph, there: str | None) -> None:
    with aexec.blocking(aexec.connect(there, graph) if there else aexec.Session(graph)) as session:
        assert session.run("y:0", {"x:0": [3]}).tolist() == [9]
        assert session.call(x=[2.0])["y"].tolist() == [4]
        square = session.make_callable("y:0", ["x:0"])
        assert square([4.0]).tolist() == [16]
        assert list(session.inputs) == ["x"]
        with pytest.raises(errors.NotFoundError):
            session.run("z:0")
        with pytest.raises(AttributeError):
            session.walk()
    with pytest.raises(errors.CancelledError, match="has been closed"):
        session.run("y:0", {"x:0": [3]})
    with pytest.raises(errors.FailedPreconditionError, match="entered once"):
        session.__enter__()


def test_session_that_cannot_be_opened(url: str) -> None:
    with pytest.raises(errors.NotFoundError), aexec.blocking(aexec.connect(url, session="none")):
        pass
    assert not [thread for thread in threading.enumerate() if thread.name == "aexec.blocking"]


def test_queues_and_tensors_of_a_blocking_session_wait(there: str | None) -> None:
    with aexec.Graph() as graph:
        aexec.ops.fifo_queue_v2(component_types=[aexec.float32], shapes=[[]], name="q")
    with aexec.blocking(aexec.connect(there, graph) if there else aexec.Session(graph)) as session:
        queue = session.queue("q")
        queue.put_many([1, 2, 3])
        assert queue.get() == 1
        queue.close()
        assert list(queue) == [2, 3]
        handle = session.tensors.put([1.5])
        assert session.tensors.get(handle).tolist() == [1.5]


class TestSyncSession:
    def test_session_is_open_until_it_is_closed(self, graph: aexec.Graph, tmp_path: Path) -> None:
        path = tmp_path / "g.pb"
        path.write_bytes(graph.to_bytes())
        session = aexec.SyncSession(path, config=aexec.SessionConfig(operation_timeout=60))
        assert session.run("y:0", {"x:0": [3]}).tolist() == [9]
        assert session.config.operation_timeout == 60
        assert repr(session).startswith("<SyncSession of <Session ") and "x:0" in session._repr_html_()
        session.close()
        session.close()
        for use in (lambda: session.run("y:0"), lambda: session.start("y:0"), lambda: session.graph):
            with pytest.raises(errors.OpError, match="has been closed"):
                use()
        with pytest.raises(errors.CancelledError, match="has been closed"), session:
            pass
        assert not of_blocking()

    def test_arrays_of_other_libraries(self, graph: aexec.Graph) -> None:
        with aexec.SyncSession(graph) as session:
            assert session.run("y:0", {"x:0": pandas.Series([3], dtype="float32")}).tolist() == [9]

    def test_graph_being_built_is_the_default(self) -> None:
        with aexec.Graph():
            y = aexec.constant(2.0) * 3.0
            with aexec.SyncSession() as session:
                assert session.run(y) == 6
        assert not of_blocking()

    def test_failed_opening_leaves_no_thread(self) -> None:
        with pytest.raises(errors.NotFoundError):
            aexec.SyncSession("no/such/file.pb")
        assert not of_blocking()

    def test_steps(self, waiting: Waiting) -> None:
        with aexec.SyncSession(waiting.graph) as session:
            step = session.start("waited:0")
            assert waiting.begun.wait(60)
            session.loop.call_soon_threadsafe(waiting.bell.set)
            assert step.result()
            waiting.begun.clear()
            waiting.bell.clear()
            step = session.start("waited:0")
            assert waiting.begun.wait(60)
            step.cancel("no more")
            with pytest.raises(errors.CancelledError, match="no more"):
                step.result()

    def test_ctrl_c_cancels_the_step(self, waiting: Waiting) -> None:
        with interruptible(), aexec.SyncSession(waiting.graph) as session:

            def interrupt() -> None:
                waiting.begun.wait(60)
                os.kill(os.getpid(), signal.SIGINT)

            thread = threading.Thread(target=interrupt)
            thread.start()
            with pytest.raises(KeyboardInterrupt):
                session.run("waited:0")
            thread.join()
            assert waiting.cancelled.wait(60)
            assert session.run("one:0") == 1

    async def test_session_works_where_a_loop_runs(self, graph: aexec.Graph) -> None:
        """As in a notebook."""
        with aexec.SyncSession(graph) as session:
            assert session.run("y:0", {"x:0": [3]}).tolist() == [9]
            assert asyncio.get_running_loop() is not session.loop

    def test_several_threads(self, graph: aexec.Graph) -> None:
        with aexec.SyncSession(graph) as session, ThreadPoolExecutor(4) as pool:
            results = pool.map(lambda i: session.run("y:0", {"x:0": [i]}).item(), range(100))
            assert list(results) == [i * i for i in range(100)]


def of_blocking() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "aexec.blocking"]


class Waiting:
    """A graph with a node that waits for a bell."""

    def __init__(self) -> None:
        self.begun, self.cancelled, self.bell = threading.Event(), threading.Event(), asyncio.Event()
        with aexec.Graph() as self.graph:
            aexec.constant(1, name="one")
            await_bell(name="waited")


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    made = Waiting()
    monkeypatch.setitem(_waiting, "now", made)
    return made


_waiting: dict[str, Waiting] = {}


@aexec.op("AwaitBellInTestOfBlocking() -> rang: bool", stateful=True)
async def await_bell() -> bool:
    waiting = _waiting["now"]
    waiting.begun.set()
    try:
        return await waiting.bell.wait()
    except asyncio.CancelledError:
        waiting.cancelled.set()
        raise


def test_functions_that_take_a_session_wait(tmp_path: Path) -> None:
    with aexec.Graph() as graph:
        v = aexec.Variable([1.0, 2.0], name="v")
        change = v.assign([3.0, 4.0])
        saver = aexec.training.Saver()
    with aexec.SyncSession(graph) as session:
        session.run(v.initializer)
        path = session.wait(saver.save, str(tmp_path / "model"), 7)
        session.run(change)
        session.wait(saver.restore, path)
        assert path.endswith("model-7") and session.run(v).tolist() == [1, 2]
        assert session.wait(lambda inner, more: (type(inner), more), more=1) == (aexec.Session, 1)
        with pytest.raises(errors.InvalidArgumentError, match="not a valid checkpoint"):
            session.wait(saver.restore, "nowhere")
