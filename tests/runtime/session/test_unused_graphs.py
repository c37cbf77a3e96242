"""Graphs of closed sessions are freed at once, without the garbage collector, when nobody refers to them any more."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
import aexec.compat.v1 as tf
from aexec import errors, ops, proto
from aexec.framework.wire.attr_types import TensorAttr
from aexec.graph.meta_graph import MetaGraph
from aexec.graph.signature import Signature
from aexec.runtime.session import unused_graphs
from aexec.runtime.session.session import Session
from aexec.saved_model import SavedModel

SIZE = 1 << 20
X = {"x:0": np.ones(SIZE, np.float32)}


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Counts the live large constants of graphs that are made from now on."""
    made: list[weakref.ref[Any]] = []

    array = TensorAttr.array

    def watched(attr: TensorAttr) -> Any:
        value = array.fget(attr)  # type: ignore[attr-defined]
        if value.nbytes >= 4 * SIZE and not any(reference() is value for reference in made):
            made.append(weakref.ref(value))
        return value

    monkeypatch.setattr(TensorAttr, "array", property(watched))
    return lambda: sum(reference() is not None for reference in made)


def graph() -> aexec.Graph:
    with aexec.Graph() as built:
        x = aexec.placeholder("float32", [None], name="x")
        ops.mul(x, aexec.constant(np.arange(SIZE, dtype=np.float32)), name="y")
    return built


def imported() -> bytes:
    return graph().to_bytes()


async def use(session: Session, runs: int = 4) -> None:
    for _ in range(runs):  # until the plan is compiled
        await session.run("y:0", X)


async def of_file(path: Path) -> None:
    async with aexec.Session(path) as session:
        await use(session)


async def of_bytes(path: Path) -> None:
    async with aexec.Session(path.read_bytes()) as session:
        await use(session)


async def of_limited_memory(path: Path) -> None:
    async with aexec.Session(path, config=aexec.SessionConfig(session_bytes=1 << 30)) as session:
        await use(session)


async def of_graph(path: Path) -> None:
    async with aexec.Session(aexec.Graph.from_bytes(path.read_bytes())) as session:
        await use(session)


async def of_built_graph(path: Path) -> None:
    async with aexec.Session(graph()) as session:
        await use(session)


async def of_extended_graph(path: Path) -> None:
    async with aexec.Session(path) as session:
        await use(session)
        more = proto.GraphDef(versions=session.graph.versions)
        more.node.add(name="z", op="Neg", input=["y"]).attr["T"].type = 1
        await session.extend(more)
        await session.run("z:0", X)


async def of_saved_model(path: Path) -> None:
    (path.parent / "saved_model.pb").write_bytes(
        proto.SavedModel(meta_graphs=[MetaGraph(graph(), tags=frozenset(["serve"])).to_proto()]).SerializeToString()
    )
    async with aexec.Session(path.parent) as session:
        await use(session)


async def of_model(path: Path) -> None:
    built = graph()
    signature = Signature.of({"x": built.tensor("x:0")}, {"y": built.tensor("y:0")})
    async with aexec.Session(SavedModel(path.parent, MetaGraph(built, signatures={"s": signature}))) as session:
        await session.call(x=X["x:0"])


async def of_graph_with_variables(path: Path) -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None], name="x")
        tf.multiply(x, tf.Variable(np.arange(SIZE, dtype=np.float32)), name="y")
        begin = tf.global_variables_initializer()
        async with tf.AsyncSession() as session:
            await session.run(begin)
            await session.run("y:0", X)


@pytest.mark.parametrize(
    "use_once",
    [
        of_file,
        of_bytes,
        of_limited_memory,
        of_graph,
        of_built_graph,
        of_extended_graph,
        of_saved_model,
        of_model,
        of_graph_with_variables,
    ],
    ids=lambda case: case.__name__,
)
async def test_constants_of_closed_session_are_freed(
    large: Callable[[], int], tmp_path: Path, use_once: Callable[[Path], Awaitable[None]]
) -> None:
    path = tmp_path / "graph.pb"
    path.write_bytes(imported())
    for _ in range(3):
        await use_once(path)
    while large():  # the thread that has read a graph may refer to it a moment longer than who waited for it
        await of_nothing()


async def of_nothing() -> None:
    """Opening or closing this session frees unused graphs of earlier ones."""
    async with aexec.Session(aexec.Graph()):
        pass


async def test_graph_that_session_has_read_is_freed_when_it_closes(large: Callable[[], int]) -> None:
    session = await aexec.Session(imported())
    await use(session)
    assert large() > 0
    await session.close()
    while large():  # as above
        await of_nothing()
    assert session.statistics().nodes == 3 and "3 nodes" in repr(session)
    with pytest.raises(errors.FailedPreconditionError, match=r"take session\.graph while it is open"):
        _ = session.graph


HELD: dict[str, Callable[[Session], Any]] = {
    "graph": lambda session: session.graph,
    "node": lambda session: session.graph.node("y"),
    "tensor": lambda session: session.graph.tensor("y:0"),
    "closed session": lambda session: session,
}


@pytest.mark.parametrize("held", HELD)
async def test_graph_in_use_stays(held: str) -> None:
    session = await aexec.Session(aexec.Graph.from_bytes(imported()))
    await use(session)
    kept: Any = HELD[held](session)
    await session.close()
    del session
    await of_nothing()
    found = kept if held == "graph" else kept.node.graph if held == "tensor" else kept.graph
    assert len(found) == 3
    async with aexec.Session(found) as again:
        await use(again, 1)


@pytest.mark.parametrize("held", ["graph", "node", "tensor"])
async def test_graph_in_use_is_looked_through_once_and_freed_when_it_is_not_used(
    large: Callable[[], int], monkeypatch: pytest.MonkeyPatch, held: str
) -> None:
    """A large graph in use does not slow down sessions of other graphs."""
    await of_nothing()  # frees what earlier tests have kept
    looked: list[int] = []
    is_unused = unused_graphs._is_unused

    def counted(parts: list[Any], remembered: Any) -> bool:
        looked.append(len(parts))
        return is_unused(parts, remembered)

    monkeypatch.setattr(unused_graphs, "_is_unused", counted)
    session = await aexec.Session(imported())
    await use(session)
    kept: Any = HELD[held](session)
    await session.close()
    del session
    for _ in range(5):
        await of_nothing()
    assert len(looked) <= 1
    assert large() > 0
    del kept
    while large():  # as above
        await of_nothing()


async def test_graph_that_was_taken_from_session_stays() -> None:
    session = await aexec.Session(imported())
    kept = session.graph
    await session.close()
    del session
    await of_nothing()
    async with aexec.Session(kept) as again:
        await use(again, 1)
