"""Which ops the server takes for reaching for files."""

from __future__ import annotations

import pytest
from aexec_server.file_access import check_no_file_ops

from aexec import errors, proto
from tests.kernels.harness import ops_of

# They only make names, or use what another op of the graph has opened.
HARMLESS = {"ShardedFilename", "ShardedFilespec", "IdentityReader", "IdentityReaderV2"}


def refused(op: str, **attrs: bytes) -> bool:
    graph_def = proto.GraphDef()
    node = graph_def.node.add(name="n", op=op)
    for name, value in attrs.items():
        node.attr[name].s = value
    try:
        check_no_file_ops(graph_def)
    except errors.PermissionDeniedError as error:
        return error.op == op
    return False


@pytest.mark.parametrize("op", ops_of("io.file_ops", "io.save_restore_ops", "io.reader_ops"))
def test_every_op_of_the_file_families_is_known(op: str) -> None:
    harmless = op in HARMLESS or (op.startswith("Reader") and op != "Reader")
    assert refused(op) is not harmless


@pytest.mark.parametrize(
    ("op", "attr", "value", "expected"),
    [
        ("PrintV2", "output_stream", b"stderr", False),
        ("PrintV2", "output_stream", b"file:///x", True),
        ("FixedUnigramCandidateSampler", "vocab_file", b"", False),
        ("FixedUnigramCandidateSampler", "vocab_file", b"/etc/passwd", True),
        ("DecodeProtoV2", "descriptor_source", b"local://", False),
        ("DecodeProtoV2", "descriptor_source", b"bytes://\0", False),
        ("EncodeProto", "descriptor_source", b"/etc/passwd", True),
        ("SqlDataset", "x", b"", True),
        ("Add", "x", b"file:", False),
    ],
)
def test_attrs_that_name_files(op: str, attr: str, value: bytes, expected: bool) -> None:
    assert refused(op, **{attr: value}) is expected
