"""Which ops reach for this machine's files: a graph that came over HTTP may not have them.

Whoever may create a session may run any op in it.  Ops that only compute can waste time and
memory, which deadlines and cancellation bound; an op that reads or writes files would hand
out the server's disk.  `ServerConfig.allow_file_ops` lifts this where clients are trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aexec import errors, proto

__all__ = ["check_no_file_ops"]

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
        op = node.op
        if op in _FILE_OPS or (op in _FILE_ATTRS and _names_file(node)):
            raise errors.PermissionDeniedError(
                f"Node '{node.name}' ({op}) reaches for files of the server, which this server does not allow",
                node=node.name,
                op=op,
            )


def _names_file(node: proto.NodeDef) -> bool:
    name, names_file = _FILE_ATTRS[node.op]
    if name not in node.attr:
        return False
    value = node.attr[name]
    # In a function's body the value may come from the caller.
    return bool(value.placeholder) or names_file(value.s)
