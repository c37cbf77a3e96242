"""What is the first that a person meets: opening a session of whatever is in hand, and calling it by name."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import aexec
from aexec import errors, proto
from aexec.graph.meta_graph import MetaGraph
from aexec.graph.signature import Signature
from tests.support.stand_ins.foreign_messages import foreign
from tests.test_sources import doubling, write_model


class TestOpening:
    async def test_every_holder_of_a_graph_opens(self, tmp_path: Path) -> None:
        graph = doubling()
        (tmp_path / "g.pb").write_bytes(graph.to_bytes())
        (tmp_path / "g.pbtxt").write_text(graph.to_text())
        message = graph.to_graph_def()
        sources = (
            str(tmp_path / "g.pb"),
            tmp_path / "g.pbtxt",
            graph.to_bytes(),
            message,
            foreign(message),
            MetaGraph(graph),
            MetaGraph(graph).to_proto(),
            graph,
        )
        for source in sources:
            async with aexec.Session(source) as session:
                assert isinstance(session, aexec.Session)
                assert (await session.run("y:0", {"x:0": [1.0, 2.0]})).tolist() == [2, 4]

    async def test_opening_can_be_awaited(self, tmp_path: Path) -> None:
        (tmp_path / "g.pb").write_bytes(doubling().to_bytes())
        for source in (doubling(), tmp_path / "g.pb"):
            session = await aexec.Session(source)
            assert (await session.run("y:0", {"x:0": [1.0]})).tolist() == [2]
            await session.close()

    async def test_settings_are_taken(self) -> None:
        config = foreign(proto.ConfigProto(operation_timeout_in_ms=1500))
        for source in (doubling(), doubling().to_bytes()):
            async with aexec.Session(source, config=config) as session:
                assert session.config.operation_timeout == 1.5
                options = foreign(proto.RunOptions(timeout_in_ms=60_000, trace_level=proto.RunOptions.FULL_TRACE))
                metadata = aexec.RunMetadata()
                assert await session.run("y:0", {"x:0": [1.0]}, options=options, metadata=metadata) == [2]
                assert metadata.step_stats is not None
                assert await session.start("y:0", {"x:0": [1.0]}, options=options) == [2]
        with pytest.raises(errors.InvalidArgumentError, match="ConfigProto"):
            aexec.Session(doubling(), config=3)  # type: ignore[call-overload, arg-type]

    async def test_extensions_are_taken(self) -> None:
        async with aexec.Session(doubling()) as session:
            with aexec.Graph() as more:
                aexec.constant(np.float32(1), name="one")
            await session.extend(foreign(more.to_graph_def()))
            assert await session.run("one:0") == 1

    async def test_what_is_wrong_is_said_on_entering(self, tmp_path: Path) -> None:
        (tmp_path / "m.onnx").write_bytes(b"")
        with pytest.raises(errors.InvalidArgumentError, match="an ONNX model"):
            async with aexec.Session(tmp_path / "m.onnx"):
                pass
        with pytest.raises(errors.NotFoundError, match="No such file"):
            await aexec.Session("no/such/file.pb")
        with pytest.raises(errors.InvalidArgumentError, match="got int"):
            await aexec.Session(3)  # type: ignore[arg-type]

    async def test_unopened_session_is_a_session_that_refuses_to_run(self, tmp_path: Path) -> None:
        opening = aexec.Session(tmp_path / "g.pb")
        assert isinstance(opening, aexec.Session) and not opening.closed
        uses = (
            lambda: opening.graph,
            lambda: opening.inputs,
            lambda: opening.tensors,
            lambda: opening.config,
            opening.devices,
            opening.statistics,
            lambda: opening.queue("q"),
            lambda: opening.start("y:0"),
            lambda: opening.make_callable("y:0"),
            lambda: opening.run_threadsafe("y:0"),
        )
        for use in uses:
            with pytest.raises(errors.FailedPreconditionError, match=r"g.pb' is not open yet: use `async with"):
                use()
        for awaited in (opening.run("y:0"), opening.call(x=[1.0]), opening.extend(b""), opening.reset()):
            with pytest.raises(errors.FailedPreconditionError, match="is not open yet"):
                await awaited
        with pytest.raises(AttributeError):
            opening.no_such_name  # type: ignore[attr-defined]
        assert "g.pb" in repr(opening)

    async def test_session_of_a_file_opens_itself(self, tmp_path: Path) -> None:
        (tmp_path / "g.pb").write_bytes(doubling().to_bytes())
        for source in (tmp_path / "g.pb", write_model(tmp_path / "model")):
            session = aexec.Session(source)
            assert await session.__aenter__() is session
            assert type(session) is type(await session), "entered again it is the same"
            assert await session.run("y:0", {"x:0": [1.0]}) == [2]
            assert "is not open" not in repr(session) and aexec.Session.live().count(session) == 1
            await session.close()
            with pytest.raises(errors.CancelledError, match="has been closed"):
                await session.run("y:0", {"x:0": [1.0]})

    async def test_two_tasks_that_enter_open_one_session(self, tmp_path: Path) -> None:
        (tmp_path / "g.pb").write_bytes(doubling().to_bytes())
        session = aexec.Session(tmp_path / "g.pb")
        entered = await asyncio.gather(session.__aenter__(), session.__aenter__())
        assert entered == [session, session]
        await session.close()

    async def test_session_closed_before_it_is_opened_stays_closed(self, tmp_path: Path) -> None:
        (tmp_path / "g.pb").write_bytes(doubling().to_bytes())
        session = aexec.Session(tmp_path / "g.pb")
        await session.close()
        await session.close()
        assert session.closed and "closed" in repr(session)
        for use in (session.__aenter__(), session.run("y:0")):
            with pytest.raises(errors.CancelledError, match="has been closed"):
                await use

    async def test_session_closed_while_it_is_read_is_not_opened(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        loop, reading, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
        whole = aexec.Graph.from_bytes

        def from_bytes(data: bytes) -> aexec.Graph:
            loop.call_soon_threadsafe(reading.set)
            go_on.wait(60)
            return whole(data)

        (tmp_path / "g.pb").write_bytes(doubling().to_bytes())
        monkeypatch.setattr(aexec.Graph, "from_bytes", from_bytes)
        session = aexec.Session(tmp_path / "g.pb")
        entering = asyncio.create_task(session.__aenter__())
        await reading.wait()
        closing = asyncio.create_task(session.close())
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(errors.CancelledError, match="has been closed"):
            await entering
        await closing
        assert session.closed

    async def test_session_that_could_not_be_opened_can_be_tried_again(self, tmp_path: Path) -> None:
        session = aexec.Session(tmp_path / "g.pb", config=aexec.SessionConfig(executor_type="none"))
        with pytest.raises(errors.NotFoundError, match="No such file"):
            await session
        (tmp_path / "g.pb").write_bytes(doubling().to_bytes())
        with pytest.raises(errors.NotFoundError, match="none"):
            await session
        assert "g.pb" in repr(session) and not session.closed
        with pytest.raises(errors.FailedPreconditionError, match="is not open yet"):
            await session.run("y:0")

    async def test_reading_takes_a_thread(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The loop turns while a file is read and imported."""
        loop, turned = asyncio.get_running_loop(), asyncio.Event()
        whole = aexec.Graph.from_bytes

        def from_bytes(data: bytes) -> aexec.Graph:
            asyncio.run_coroutine_threadsafe(turn(), loop).result(timeout=60)
            return whole(data)

        async def turn() -> None:
            turned.set()

        (tmp_path / "g.pb").write_bytes(doubling().to_bytes())
        monkeypatch.setattr(aexec.Graph, "from_bytes", from_bytes)
        async with aexec.Session(tmp_path / "g.pb"):
            assert turned.is_set()

    async def test_graph_being_built_is_the_default(self) -> None:
        with aexec.Graph() as graph:
            y = aexec.constant(2.0) * 3.0
            session = aexec.Session()
        assert session.graph is graph
        async with session:
            assert await session.run(y) == 6
        assert len(aexec.Session().graph) == 0
        with aexec.Graph() as empty:
            assert aexec.Session().graph is empty

    def test_plain_with_says_what_to_use(self, tmp_path: Path) -> None:
        for source in (doubling(), tmp_path / "g.pb"):
            with pytest.raises(TypeError, match="use `async with"), aexec.Session(source):  # type: ignore[attr-defined]
                pass


class TestCalling:
    async def test_graph_by_its_own_names(self) -> None:
        async with aexec.Session(doubling()) as session:
            assert {k: str(info) for k, info in session.inputs.items()} == {"x": "x:0  float[?]"}
            assert {k: str(info) for k, info in session.outputs.items()} == {"y": "y:0  float[?]"}
            assert session.signatures == {}
            outputs = await session.call(x=[1.0])
            assert list(outputs) == ["y"] and outputs["y"].tolist() == [2]
            with pytest.raises(errors.NotFoundError, match="no signature 'other'; there are none"):
                await session.call("other", x=[1.0])
            with aexec.Graph() as more:
                aexec.constant(1.0, name="c")
                aexec.ops.neg(1.0, name="z")
            await session.extend(more)
            assert list(session.outputs) == ["y", "z"]

    async def test_model_by_its_signatures(self, tmp_path: Path) -> None:
        async with aexec.Session(write_model(tmp_path / "model")) as session:
            assert list(session.signatures) == ["serving_default"]
            assert list(session.inputs) == ["value"] and list(session.outputs) == ["twice"]
            info = session.inputs["value"]
            assert (info.name, info.dtype, str(info.shape)) == ("x:0", aexec.float32, "[?]")
            for outputs in (
                await session.call(value=[1.0]),
                await session.call("serving_default", value=[1.0]),
                await session.call("serving_default", {"value": [1.0]}),
                await session.call(None, {"value": [1.0]}),
            ):
                assert list(outputs) == ["twice"] and outputs["twice"].tolist() == [2]

    async def test_what_is_wrong_is_named(self, tmp_path: Path) -> None:
        async with aexec.Session(write_model(tmp_path / "model")) as session:
            with pytest.raises(errors.NotFoundError, match="no signature 'other'; there are serving_default"):
                await session.call("other", value=[1.0])
            with pytest.raises(errors.NotFoundError, match="no signature '__saved_model_train_op'"):
                await session.call("__saved_model_train_op")
            with pytest.raises(errors.InvalidArgumentError, match="no input 'x'; there are value"):
                await session.call(x=[1.0])
            with pytest.raises(errors.InvalidArgumentError, match="input 'value' is not given"):
                await session.call()
            with pytest.raises(errors.InvalidArgumentError, match="Expects"):
                await session.call(value=["a"])

    async def test_several_signatures(self) -> None:
        graph = doubling()
        x, y = graph.tensor("x:0"), graph.tensor("y:0")
        both = {"first": Signature.of({"a": x}, {"b": y}), "second": Signature.of({"options": x}, {"d": y})}
        async with aexec.Session(MetaGraph(graph, signatures=both)) as session:
            with pytest.raises(errors.NotFoundError, match="say which signature; there are first, second"):
                await session.call(a=[1.0])
            with pytest.raises(errors.NotFoundError, match="say which signature"):
                session.inputs
            assert await session.call("first", a=[1.0]) == {"b": [2]}
            # An input may have the name of a setting.
            settings = aexec.RunOptions(timeout=60)
            assert await session.call("second", {"options": [1.0]}, options=settings) == {"d": [2]}
        default = {**both, "serving_default": both["first"]}
        async with aexec.Session(MetaGraph(graph, signatures=default)) as session:
            assert await session.call(a=[1.0]) == {"b": [2]}


class TestUnclosed:
    def test_session_that_ran_warns(self) -> None:
        async def forget() -> int:
            session = aexec.Session(doubling())
            await session.run("y:0", {"x:0": [1.0]})
            await session._pools.first.close()  # what the warning is about, and must not outlive this test
            return session.id

        with pytest.warns(ResourceWarning, match=r"Unclosed session \d+: leave its `async with` block"):  # noqa: PT031
            asyncio.run(forget())
            gc.collect()

    def test_one_that_was_closed_or_never_used_does_not(self) -> None:
        async def use() -> None:
            aexec.Session(doubling())
            aexec.Session("g.pb")
            async with aexec.Session(doubling()) as session:
                await session.run("y:0", {"x:0": [1.0]})
            with pytest.raises(errors.NotFoundError):
                aexec.Session(doubling(), config=aexec.SessionConfig(executor_type="none"))

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            asyncio.run(use())
            gc.collect()
