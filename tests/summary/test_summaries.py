"""Summary ops have TensorFlow's names, tags and inputs."""

from __future__ import annotations

import numpy as np
import pytest

import aexec
from aexec import proto, summary
from aexec.framework import errors


async def test_names_and_tags_are_tensorflows() -> None:
    with aexec.Graph() as graph:
        assert summary.merge_all() is None
        with aexec.name_scope("s"):
            x = aexec.placeholder("float32", [], name="x")
            summary.scalar("a b", x)
            summary.scalar("a b", x, family="fam")
            summary.histogram("h", aexec.zeros([3]))
            summary.image("i", aexec.zeros([2, 4, 4, 1]))
            summary.audio("au", aexec.zeros([1, 8]), 8000)
            summary.text("t", aexec.constant("hi"))
            summary.tensor_summary("ts", aexec.zeros([2]))
        merged = summary.merge_all()
        assert merged is not None and merged.name == "Merge/MergeSummary:0"
        names = [item.name for item in aexec.get_collection(aexec.GraphKeys.SUMMARIES)]
        assert summary.scalar("/bad/..x", x, collections=["mine"]).name == "bad/..x:0"
        with pytest.raises(errors.InvalidArgumentError, match="to have dtype string"):
            summary.text("u", x)
    assert names == ["s/a_b:0", "s/fam/a_b:0", "s/h:0", "s/i:0", "s/au:0", "s/t:0", "s/ts:0"]
    assert {"s/a_b/tags", "s/au/sample_rate", "s/t/serialized_summary_metadata"} <= {node.name for node in graph}
    async with aexec.Session(graph) as session:
        got = proto.Summary.FromString(bytes(await session.run(merged, {x: np.float32(2)})))
    tags = ["s/a_b", "fam/s/fam/a_b", "s/h", "s/i/image/0", "s/i/image/1", "s/au/audio/0", "s/t", "s/ts"]
    assert [value.tag for value in got.value] == tags
    assert got.value[6].metadata.plugin_data.plugin_name == "text"
