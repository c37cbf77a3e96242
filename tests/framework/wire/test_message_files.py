"""Messages in files: both forms, and what is wrong with a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import text_format

from aexec import errors, proto
from aexec.framework.wire.message_files import read_message_file

GRAPH = proto.GraphDef(node=[proto.NodeDef(name="x", op="NoOp")])


@pytest.mark.parametrize("is_text", [False, True])
def test_message_of_a_file(tmp_path: Path, is_text: bool) -> None:
    path = tmp_path / "graph"
    path.write_bytes(text_format.MessageToString(GRAPH).encode() if is_text else GRAPH.SerializeToString())
    assert read_message_file(path, proto.GraphDef, is_text=is_text) == GRAPH
    path.write_bytes(b"\xff")
    with pytest.raises(errors.InvalidArgumentError, match="Cannot parse") as caught:
        read_message_file(str(path), proto.GraphDef, is_text=is_text)
    assert str(path) in str(caught.value)


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match="No such file"):
        read_message_file(tmp_path / "missing", proto.GraphDef, is_text=False)
    with pytest.raises(errors.InvalidArgumentError, match="Cannot read"):
        read_message_file(tmp_path, proto.GraphDef, is_text=False)
