"""Which ops clients may not use: each op that reaches for files, the network or the program's own code is named."""

from __future__ import annotations

import ast
import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aexec_server import ServerConfig
from aexec_server.sessions.op_policy import OpPolicy

import aexec.kernels
from aexec import errors, proto
from aexec.cli import main
from aexec.framework import dtypes
from aexec.framework.kernel_contract import kernel_registry
from aexec.hosting import is_built_in
from tests.kernels.harness import ops_of
from tests.server.conftest import Start, small_graph

KERNELS = Path(aexec.kernels.__file__).parent
# They only make names, or use what another op of the graph has opened.
HARMLESS = {"ShardedFilename", "ShardedFilespec", "IdentityReader", "IdentityReaderV2"}
# What a module uses that reaches out of the process.
OUTSIDE = set("asyncio ctypes glob importlib io mmap multiprocessing os pathlib pickle runpy shutil signal".split())
OUTSIDE |= set("socket sqlite3 subprocess tempfile urllib aiohttp".split())
OURS = ("aexec.io", "aexec.sources", "aexec.saved_model")
CALLS = {"__import__", "compile", "eval", "exec", "open"}
# Every module of kernels that does: the ops because of which it does and that are refused, or why none is.
MODULES: dict[str, set[str] | str] = {
    "array/immutable_const_ops.py": {"ImmutableConst"},
    "common/array_module.py": "imports modules that are named in it",
    "control_flow/collective_exchange.py": "waits for the other members",
    "control_flow/collective_ops.py": "waits for the other members",
    "datasets/arguments.py": "knows that a call was cancelled",
    "datasets/choosing_dataset_ops.py": "waits between elements",
    "datasets/csv_dataset_ops.py": set(ops_of("datasets.csv_dataset_ops")),
    "datasets/file_cache.py": "is refused when it runs, as a filename may be fed: SessionConfig.cache_files",
    "datasets/file_dataset_ops.py": set(ops_of("datasets.file_dataset_ops")),
    "datasets/generator_dataset_ops.py": "waits for an element",
    "datasets/iterator_ops.py": "waits for the dataset of an iterator",
    "datasets/parallel_dataset_ops.py": "waits for calls",
    "datasets/prefetch_dataset_ops.py": "waits for elements",
    "datasets/saved_dataset_ops.py": set(ops_of("datasets.saved_dataset_ops")),
    "data_flow/record_input_ops.py": {"RecordInput"},
    "image/codecs.py": "encodes in memory",
    "io/file_ops.py": set(ops_of("io.file_ops")) - HARMLESS,
    "io/reader_ops.py": {op for op in ops_of("io.reader_ops") if not op.startswith("Reader")} - HARMLESS,
    "io/remapping_ops.py": {"GenerateVocabRemapping", "LoadAndRemapMatrix"},
    "io/save_restore_ops.py": set(ops_of("io.save_restore_ops")) - HARMLESS,
    "io/skipgram_ops.py": {"Skipgram"},
    "linalg/lapack.py": "calls routines of LAPACK by the pointers that SciPy has to them",
    "logging/logging_ops.py": {"PrintV2"},
    "logging/summary_writer_ops.py": {"CreateSummaryFileWriter", "ImportEvent"},
    "lookup/lookup_ops.py": {"InitializeTableFromTextFile", "InitializeTableFromTextFileV2"},
    "lookup/vocabulary.py": "reads for InitializeTableFromTextFile, in lookup_ops.py",
    "parsing/proto_descriptors.py": {"DecodeProtoV2", "EncodeProto"},
    "random/generators.py": "asks the system for a seed",
    "random/range_sampler.py": {"FixedUnigramCandidateSampler"},
    "random/stateful_ops.py": "asks the system for a seed",
    "state/mutex_ops.py": "waits for a lock",
}
# Of ops that do it only if told to: so they are told.
TOLD = {
    "PrintV2": {"output_stream": b"file:///x"},
    "FixedUnigramCandidateSampler": {"vocab_file": b"/etc/passwd"},
    "DecodeProtoV2": {"descriptor_source": b"/etc/passwd"},
    "EncodeProto": {"descriptor_source": b"/etc/passwd"},
}


def refused(op: str, policy: OpPolicy | None = None, **attrs: bytes) -> bool:
    graph_def = proto.GraphDef()
    node = graph_def.node.add(name="n", op=op)
    for name, value in attrs.items():
        node.attr[name].s = value
    try:
        (policy or OpPolicy()).check(graph_def)
    except errors.PermissionDeniedError as error:
        return error.op == op
    return False


@pytest.mark.parametrize("op", ops_of("io.file_ops", "io.save_restore_ops", "io.reader_ops"))
def test_every_op_of_the_file_families_is_known(op: str) -> None:
    harmless = op in HARMLESS or (op.startswith("Reader") and op != "Reader")
    assert refused(op) is not harmless


def reaching_out(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), names=names):
                modules = [module, *(f"{module}.{alias.name}" for alias in names)]
            case ast.Call(func=ast.Name(id=called)) if called in CALLS:
                yield f"{called}()"
                continue
            case _:
                continue
        yield from (m for m in modules if m.split(".")[0] in OUTSIDE or m.startswith(OURS))


def test_every_module_of_kernels_that_reaches_out_is_known() -> None:
    found = {
        str(path.relative_to(KERNELS))
        for path in KERNELS.rglob("*.py")
        if any(reaching_out(ast.parse(path.read_text())))
    }
    assert found == set(MODULES)


def test_every_op_with_a_kernel_is_refused_or_computes_only() -> None:
    """Whatever is refused stands in a module that reaches out, and what such a module does so for is refused."""
    kernels = kernel_registry.global_registry
    ours = [op for op in kernels.ops() if is_built_in(op)]
    assert {op for op in ours if refused(op, **TOLD.get(op, {}))} == {
        op for ops in MODULES.values() if not isinstance(ops, str) for op in ops
    }
    for op in TOLD:
        assert not refused(op)


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
        ("PyFunc", "x", b"", True),
        ("RegisterDataset", "x", b"", True),
        ("TestFail", "x", b"", True),
        ("NoSuchOp", "x", b"", False),
        ("Add", "x", b"file:", False),
    ],
)
def test_attrs_and_names(op: str, attr: str, value: bytes, expected: bool) -> None:
    assert refused(op, **{attr: value}) is expected
    assert not refused(op, OpPolicy(trust=True), **{attr: value})
    assert not refused(op, OpPolicy([op]), **{attr: value})
    assert refused(op, OpPolicy(["ReadFile"]), **{attr: value}) is expected


def posted(*, op: str, **attrs: Any) -> dict[str, str]:
    g = small_graph()
    g("f", op, "x", T=dtypes.float32, **attrs)
    # `TestFail` of the small graph itself is not what is asked about.
    kept = [node for node in g.graph_def.node if node.name != "fails"]
    del g.graph_def.node[:]
    g.graph_def.node.extend(kept)
    return {"graph_def": base64.b64encode(g.graph_def.SerializeToString()).decode()}


async def test_ops_of_the_program_are_for_its_own_graphs(start: Start) -> None:
    own = small_graph().graph()
    api = await start(allow_ops=[], graphs={"own": own})
    status, answer = await api.call("POST", "/v1/sessions", posted(op="TestFail"))
    assert (status, answer["code"], answer["node"], answer["op"]) == (403, "PERMISSION_DENIED", "f", "TestFail")
    assert "runs Python code of the server's program" in answer["error"]
    status, answer = await api.run("own", feeds={"x": [1]}, fetches=["fails"])
    assert answer["code"] != "PERMISSION_DENIED"


@pytest.mark.parametrize("settings", [{"allow_ops": ["TestFail"]}, {"allow_ops": [], "trust_graphs": True}])
async def test_refused_ops_can_be_allowed(start: Start, settings: dict[str, Any]) -> None:
    api = await start(**settings)
    assert (await api.call("POST", "/v1/sessions", posted(op="TestFail")))[0] == 201


def test_command_line_sets_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    configs: list[ServerConfig] = []
    monkeypatch.setattr("aexec_server.serve", lambda config, on_ready: configs.append(config))
    assert main(["serve", "--allow-ops", "ReadFile,WriteFile"]) == 0 and main(["serve", "--trust-graphs"]) == 0
    assert [(list(c.allow_ops), c.trust_graphs) for c in configs] == [(["ReadFile", "WriteFile"], False), ([], True)]
    assert main(["serve", "--allow-ops", "ReedFile"]) != 0 and len(configs) == 2


@pytest.mark.parametrize(("allowed", "words"), [(["Reedfile"], "'Reedfile'"), ("ReadFile", "names of ops")])
def test_allowed_names_must_be_ops(allowed: Any, words: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=words):
        ServerConfig(allow_ops=allowed)
