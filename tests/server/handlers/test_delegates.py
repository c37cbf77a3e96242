"""Which sessions of a server have delegates: the operator's own, and others only if the operator says so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from aexec_server import ServerConfig

import aexec
from aexec import errors
from aexec.framework import dtypes
from tests.server.conftest import Start
from tests.server.handlers.test_session_calls import encoded
from tests.support.programs.graphs import GraphBuilder
from tests.support.stand_ins.numpy_delegate import NumpyDelegate, numpy_delegate

F = dtypes.float32


@pytest.fixture
def delegate() -> Iterator[NumpyDelegate]:
    with numpy_delegate() as made:
        yield made


def model() -> GraphBuilder:
    g = GraphBuilder()
    g.placeholder("x", F, [None])
    g("a", "Exp", "x", T=F)
    g("y", "Neg", "a", T=F)
    return g


RUN = {"feeds": {"x": [0.0, 0.0]}, "fetches": ["y"]}


async def test_clients_graphs_have_no_delegates_by_default(start: Start) -> None:
    api = await start(graphs={"own": model().graph()})
    handle = await api.create(model())
    assert api.hosted("own").session.config.delegates == "auto"
    assert api.hosted(handle).session.config.delegates == ()


async def test_named_delegate_is_for_all_sessions(start: Start, delegate: NumpyDelegate) -> None:
    api = await start(graphs={"own": model().graph()}, delegates=("numpy",))
    for handle in ("own", await api.create(model())):
        assert (await api.run(handle, **RUN))[1]["outputs"] == {"y": [-1.0, -1.0]}
    assert delegate.inferring.count == 2


async def test_none_is_for_all_too(start: Start) -> None:
    api = await start(graphs={"own": model().graph()}, delegates=())
    assert api.hosted("own").session.config.delegates == ()


async def test_nodes_that_clients_add_are_kept_from_delegates(
    start: Start, delegate: NumpyDelegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = await start(graphs={"own": model().graph()}, allow_model_changes=True)
    stopped = []
    monkeypatch.setattr(aexec.Session, "stop_delegating", lambda session: stopped.append(session))
    more = GraphBuilder()
    more("z", "Neg", "y", T=F)
    body = {"graph_def": encoded(more), "current_graph_version": 0}
    assert (await api.call("POST", "/v1/sessions/own:extend", body))[0] == 200
    assert stopped == [api.hosted("own").session]


async def test_unless_the_operator_says_so(
    start: Start, delegate: NumpyDelegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = await start(graphs={"own": model().graph()}, delegates=("numpy",), allow_model_changes=True)
    more = GraphBuilder()
    more("b", "Exp", "x", T=F)
    more("z", "Neg", "b", T=F)
    body = {"graph_def": encoded(more), "current_graph_version": 0}
    assert (await api.call("POST", "/v1/sessions/own:extend", body))[0] == 200
    assert (await api.run("own", feeds={"x": [0.0, 0.0]}, fetches=["z"]))[0] == 200
    assert delegate.inferring.count == 1


def test_object_that_is_no_delegate_is_refused_at_once() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="no delegate 'nobody'"):
        ServerConfig(delegates=["nobody"])
