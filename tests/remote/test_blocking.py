"""Sessions without an event loop of one's own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from aexec_server import ServerConfig, make_app
from aiohttp.test_utils import TestServer

import aexec
from aexec import errors


@pytest.fixture
def url() -> Iterator[str]:
    """The address of a server in a thread."""
    loop = asyncio.new_event_loop()
    server = TestServer(make_app(ServerConfig()), loop=loop)
    loop.run_until_complete(server.start_server(loop=loop))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield str(server.make_url(""))
    asyncio.run_coroutine_threadsafe(server.close(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def graph() -> aexec.Graph:
    with aexec.Graph() as graph:
        aexec.ops.square(aexec.placeholder(aexec.float32, [None], name="x"), name="y")
    return graph


@pytest.mark.parametrize("there", [False, True])
def test_methods_wait(graph: aexec.Graph, url: str, there: bool) -> None:
    with aexec.blocking(aexec.connect(url, graph) if there else aexec.Session(graph)) as session:
        assert session.run("y:0", {"x:0": [3]}).tolist() == [9]
        assert session.call(x=[2.0])["y"].tolist() == [4]
        square = session.make_callable("y:0", ["x:0"])
        assert square([4.0]).tolist() == [16]
        assert list(session.inputs) == ["x"]
        with pytest.raises(errors.NotFoundError):
            session.run("z:0")
        with pytest.raises(AttributeError):
            session.walk()
    with pytest.raises(errors.FailedPreconditionError, match="not open"):
        session.run("y:0", {"x:0": [3]})
    with pytest.raises(errors.FailedPreconditionError, match="entered once"):
        session.__enter__()


def test_a_session_that_cannot_be_opened(url: str) -> None:
    with pytest.raises(errors.NotFoundError), aexec.blocking(aexec.connect(url, session="none")):
        pass
    assert not [thread for thread in threading.enumerate() if thread.name == "aexec.blocking"]


@pytest.mark.parametrize("there", [False, True])
def test_what_a_session_keeps_waits(url: str, there: bool) -> None:
    with aexec.Graph() as graph:
        aexec.ops.fifo_queue_v2(component_types=[aexec.float32], shapes=[[]], name="q")
    with aexec.blocking(aexec.connect(url, graph) if there else aexec.Session(graph)) as session:
        queue = session.queue("q")
        queue.put_many([1, 2, 3])
        assert queue.get() == 1
        queue.close()
        assert list(queue) == [2, 3]
        handle = session.tensors.put([1.5])
        assert session.tensors.get(handle).tolist() == [1.5]
