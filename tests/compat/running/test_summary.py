"""`tf.summary`: the writers of folders."""

from __future__ import annotations

from pathlib import Path

import aexec.compat.v1 as tf


def test_cache_has_one_writer_for_each_folder(tmp_path: Path) -> None:
    tf.constant(1.0, name="one")
    cache = tf.summary.FileWriterCache
    try:
        writer = cache.get(str(tmp_path / "a"))
        assert cache.get(str(tmp_path / "a")) is writer is not cache.get(str(tmp_path / "b"))
        writer.add_session_log(tf.SessionLog(status=tf.SessionLog.START), 7)
    finally:
        cache.clear()
    (path,) = (tmp_path / "a").iterdir()
    events = list(tf.train.summary_iterator(str(path)))
    assert [event.step for event in events if event.HasField("session_log")] == [7]
    graphs = [tf.GraphDef.FromString(event.graph_def) for event in events if event.graph_def]
    assert [node.name for node in graphs[0].node] == ["one"]
    try:
        assert cache.get(str(tmp_path / "a")) is not writer
    finally:
        cache.clear()
