"""Messages of TensorFlow's own classes, wherever one of ours is taken."""

from __future__ import annotations

from typing import Any

import pytest

import aexec
from aexec import errors, proto
from aexec.framework.wire.messages import as_message, message_name
from aexec.graph.meta_graph import MetaGraph
from tests.support.stand_ins.foreign_messages import foreign


def doubling() -> aexec.Graph:
    with aexec.Graph() as graph:
        aexec.ops.mul(aexec.placeholder("float32", name="x"), 2.0, name="y")
    return graph


class TestAsMessage:
    def test_own_message_is_returned(self) -> None:
        message = proto.GraphDef()
        assert as_message(message, proto.GraphDef) is message

    def test_foreign_message_of_the_same_name_and_bytes_are_parsed(self) -> None:
        message = doubling().to_graph_def()
        other = foreign(message)
        assert message_name(other) == "GraphDef" and not isinstance(other, proto.GraphDef)
        for given in (other, message.SerializeToString(), bytearray(message.SerializeToString())):
            assert as_message(given, proto.GraphDef) == message

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            (proto.MetaGraphDef(), "expected a GraphDef message or its bytes, got MetaGraphDef"),
            (None, "got NoneType"),
            ("model.pb", "got str"),
            (proto.GraphDef, "got"),
            (b"\xff", "Cannot parse GraphDef: 1 bytes are no such message"),
        ],
    )
    def test_anything_else_is_refused(self, value: Any, message: str) -> None:
        with pytest.raises(errors.InvalidArgumentError, match=message):
            as_message(value, proto.GraphDef)


class TestWhereTheyAreTaken:
    async def test_graphs(self) -> None:
        graph = aexec.Graph.from_graph_def(foreign(doubling().to_graph_def()))
        async with aexec.Session(graph) as session:
            assert await session.run("y:0", {"x:0": 3.0}) == 6

    def test_meta_graphs(self) -> None:
        meta_graph = MetaGraph(doubling(), tags=frozenset({"serve"}))
        read = MetaGraph.from_proto(foreign(meta_graph.to_proto()))
        assert read.tags == {"serve"} and "y" in read.graph

    def test_settings(self) -> None:
        config = proto.ConfigProto(allow_soft_placement=True, operation_timeout_in_ms=1500)
        settings = aexec.SessionConfig.from_proto(foreign(config))
        assert settings.allow_soft_placement and settings.operation_timeout == 1.5
        options = aexec.RunOptions.from_proto(foreign(proto.RunOptions(timeout_in_ms=10)))
        assert options.timeout == 0.01
