"""Which ops reach for this machine's files: clients may neither post nor run them.

Whoever may create a session may run any op in it.  Ops that only compute can waste time and
memory, which deadlines and cancellation bound; an op that reads or writes files would hand
out the server's disk.  A graph of the server's own may have them, as models do that can be
saved, but clients get at them no more: they feed the file names.
`ServerConfig.allow_file_ops` lifts this where clients are trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import aexec
from aexec import errors, proto
from aexec.hosting import NameAttrList

__all__ = ["FileOpGuard", "check_no_file_ops"]

# fmt: off
_FILE_OPS = frozenset((
    "CSVDataset", "CSVDatasetV2", "CacheDataset", "CacheDatasetV2", "CalibrationStatisticsSaver",
    "CreateSummaryDbWriter", "CreateSummaryFileWriter", "DTensorRestoreV2", "DatasetToTFRecord", "DebugIdentity",
    "DebugIdentityV2", "DebugIdentityV3", "DebugNanCount", "DebugNumericSummary", "DebugNumericSummaryV2",
    "DistributedSave", "DumpTensor", "ExperimentalCSVDataset", "ExperimentalDatasetToTFRecord",
    "ExperimentalLMDBDataset", "ExperimentalMatchingFilesDataset", "ExperimentalSqlDataset",
    "FileSystemSetConfiguration", "FixedLengthRecordDataset", "FixedLengthRecordDatasetV2",
    "FixedLengthRecordReader", "FixedLengthRecordReaderV2", "GenerateVocabRemapping", "ImmutableConst",
    "ImportEvent", "InitializeTableFromTextFile", "InitializeTableFromTextFileV2", "LMDBDataset", "LMDBReader",
    "ListSnapshotChunksDataset", "LoadAndRemapMatrix", "LoadDataset", "MatchingFiles", "MatchingFilesDataset",
    "MergeV2Checkpoints", "ReadFile", "RecordInput", "Restore", "RestoreSlice", "RestoreV2", "Save", "SaveDataset",
    "SaveDatasetV2", "SaveSlices", "SaveV2", "Skipgram", "SnapshotChunkDataset", "SnapshotDataset",
    "SnapshotDatasetReader", "SnapshotDatasetV2", "SnapshotNestedDatasetReader", "SqlDataset", "TFRecordDataset",
    "TFRecordDatasetV2", "TFRecordReader", "TFRecordReaderV2", "TextLineDataset", "TextLineReader",
    "TextLineReaderV2", "WholeFileReader", "WholeFileReaderV2", "WriteFile",
))
# fmt: on


def _is_path(value: bytes) -> bool:
    return value != b""


def _is_descriptor_file(value: bytes) -> bool:
    return value != b"" and not value.startswith((b"local://", b"bytes://"))


def _is_file_stream(value: bytes) -> bool:
    return value.startswith(b"file:")


# Ops that do so if an attr names a file: (attr, does this value name one?).
_FILE_ATTRS: dict[str, tuple[str, Callable[[bytes], bool]]] = {
    "DecodeProtoV2": ("descriptor_source", _is_descriptor_file),
    "EncodeProto": ("descriptor_source", _is_descriptor_file),
    "FixedUnigramCandidateSampler": ("vocab_file", _is_path),
    "PrintV2": ("output_stream", _is_file_stream),
}


def check_no_file_ops(graph_def: proto.GraphDef) -> None:
    """Raise PermissionDeniedError if the graph, or a function of its library, could reach for files."""
    _check(graph_def.node)
    for function in graph_def.library.function:
        _check(function.node_def)


def _check(nodes: Iterable[proto.NodeDef]) -> None:
    for node in nodes:
        if _reaches_for_files(node):
            raise _refused(node.name, node.op)


def _refused(node: str, op: str) -> errors.PermissionDeniedError:
    return errors.PermissionDeniedError(
        f"Node '{node}' ({op}) reaches for files of the server, which this server does not allow", node=node, op=op
    )


def _reaches_for_files(node: proto.NodeDef) -> bool:
    return node.op in _FILE_OPS or (node.op in _FILE_ATTRS and _names_file(node))


class FileOpGuard:
    """Refuses what would reach for files in a graph that may have nodes that do, and call functions that do."""

    def __init__(self) -> None:
        self._functions: set[str] = set()
        self._known: tuple[aexec.Graph, int] | None = None

    def check(self, graph: aexec.Graph, nodes: Iterable[aexec.Node]) -> None:
        """Raise PermissionDeniedError if one of these nodes of `graph` does."""
        if self._known != (graph, len(graph)):  # it may have grown, and its library with it
            self._functions = _functions_with_file_ops(graph.library.to_proto().function)
            self._known = (graph, len(graph))
        for node in nodes:
            if _node_reaches_for_files(node) or not self._functions.isdisjoint(_functions_of(node)):
                raise _refused(node.name, node.op)


def _node_reaches_for_files(node: aexec.Node) -> bool:
    if node.op not in _FILE_ATTRS:
        return node.op in _FILE_OPS
    attr, names_file = _FILE_ATTRS[node.op]
    return names_file(node.attrs.get(attr, b""))


def _functions_of(node: aexec.Node) -> Iterator[str]:
    """Names of the functions that a node may call: its op's, and those of its attrs."""
    yield node.op
    for value in node.attrs.values():
        for item in value if type(value) is list else (value,):
            if type(item) is NameAttrList:
                yield item.name


def _functions_with_file_ops(functions: Iterable[proto.FunctionDef]) -> set[str]:
    """Names of the functions that have such ops, or call one that does."""
    bodies = {function.signature.name: function.node_def for function in functions}
    found = {name for name, nodes in bodies.items() if any(map(_reaches_for_files, nodes))}
    calls = {name: {called for node in nodes for called in _called(node)} for name, nodes in bodies.items()}
    grew = bool(found)
    while grew:
        callers = {name for name, called in calls.items() if name not in found and not found.isdisjoint(called)}
        found |= callers
        grew = bool(callers)
    return found


def _called(node: proto.NodeDef) -> Iterator[str]:
    """Names of the functions that a node may call: its op's, and those of its attrs."""
    yield node.op
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        for function in value.list.func:
            yield function.name


def _names_file(node: proto.NodeDef) -> bool:
    name, names_file = _FILE_ATTRS[node.op]
    if name not in node.attr:
        return False
    value = node.attr[name]
    # In a function's body the value may come from the caller.
    return bool(value.placeholder) or names_file(value.s)
