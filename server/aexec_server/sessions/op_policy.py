"""Decides which ops clients may not use: those that reach for files, the network, or Python code of the server's
program.

A client that may create a session may run any op in it that only computes: deadlines and limits bound its time and
memory. An op that reads or writes files would expose the server's disk. The server's own graphs may contain such ops,
as models with a saver do, but clients may not run them there either, since they feed the file names. Ops that the
server's program has registered run its code; the server's own graphs may contain them, and clients may run them there.
`ServerConfig.allow_ops` and `trust_graphs` lift these restrictions.

`model_changes.py` decides which runs change the state of a model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from aexec import errors, proto
from aexec.hosting import find_op_def, is_built_in
from aexec_server.sessions.model_changes import what_changes_model
from aexec_server.sessions.op_rules import OpUse, Rule, uses_of_graph

__all__ = ["OpPolicy"]

# fmt: off
_FILE_OPS = frozenset((
    "CSVDataset", "CSVDatasetV2", "CalibrationStatisticsSaver",
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


# Ops that reach for files if an attr names one: op → (attr, True for a value that names a file).
_FILE_ATTRS: dict[str, tuple[str, Callable[[bytes], bool]]] = {
    "DecodeProtoV2": ("descriptor_source", _is_descriptor_file),
    "EncodeProto": ("descriptor_source", _is_descriptor_file),
    "FixedUnigramCandidateSampler": ("vocab_file", _is_path),
    "PrintV2": ("output_stream", _is_file_stream),
}


_NETWORK_OPS = frozenset(
    """DataServiceDataset DataServiceDatasetV2 DataServiceDatasetV3 DataServiceDatasetV4 RegisterDataset
    RegisterDatasetV2""".split()
)
_PYTHON_OPS = frozenset(("EagerPyFunc", "PyFunc", "PyFuncStateless"))

_FILES = "reaches for files of the server, which this server does not allow"
_NETWORK = "reaches for the network, which this server does not allow"
_PYTHON = "runs Python code of the server's program, which this server does not allow"


def _reaches_out(use: OpUse) -> str | None:
    """Rule: no client may reach files or the network, in any graph."""
    if use.op in _NETWORK_OPS:
        return _NETWORK
    return _FILES if use.op in _FILE_OPS or _names_file(use) else None


def _runs_python(use: OpUse) -> str | None:
    if use.op in _PYTHON_OPS or (not is_built_in(use.op) and find_op_def(use.op) is not None):
        return _PYTHON
    return None


def _names_file(use: OpUse) -> bool:
    if use.op not in _FILE_ATTRS:
        return False
    attr, names_file = _FILE_ATTRS[use.op]
    value = use.text(attr)
    return value is None or names_file(value)


class OpPolicy:
    """Decides which ops the graphs and runs of clients may use.

    Args:
        allowed: ops that clients may use although a rule forbids them.
        trust: clients may use any op.
    """

    def __init__(self, allowed: Collection[str] = (), trust: bool = False) -> None:
        self._allowed = frozenset(allowed)
        self._trust = trust

    def check(self, graph_def: proto.GraphDef | proto.FlatGraphDef) -> None:
        """Raise PermissionDeniedError if a client's graph, or a function of its library, has an op that clients may not
        use.
        """
        if self._trust:
            return
        for use in uses_of_graph(graph_def):
            why_not = self._reaches_out(use) or self._runs_python(use)
            if why_not is not None:
                text = f"Node '{use.node}' ({use.op}) {why_not}"
                raise errors.PermissionDeniedError(text, node=use.node, op=use.op)

    def rules_for_models(self, may_change: bool) -> list[Rule]:
        """Return the rules for runs of clients in the server's own graphs, whose state they may change if
        `may_change`.
        """
        rules: list[Rule] = [] if self._trust else [self._reaches_out]
        return rules if may_change else [*rules, self._changes_model]

    def _changes_model(self, use: OpUse) -> str | None:
        return None if use.op in self._allowed else what_changes_model(use)

    def _reaches_out(self, use: OpUse) -> str | None:
        return None if use.op in self._allowed else _reaches_out(use)

    def _runs_python(self, use: OpUse) -> str | None:
        return None if use.op in self._allowed else _runs_python(use)
