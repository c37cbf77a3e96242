from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework.memory.allocator import watching
from aexec.framework.memory.memory_account import CallMemory, MemoryAccount
from tests.kernels import harness
from tests.kernels.harness import in_tensorflow, ops_of, registered, strings

V1 = Path(__file__).parents[2] / "io" / "data" / "checkpoints" / "format_v1"
A, B = np.float32([[1, 2], [3, 4], [5, 6]]), np.int64(7)


def run_op(op: str, inputs: list[Any], **attrs: Any) -> Any:
    """As the harness's, but text stands for its bytes, and the kernel runs just once (a context says so)."""
    return harness.run_op(op, [i.encode() if isinstance(i, str) else i for i in inputs], context=(), **attrs)


def save(prefix: Any, **tensors: Any) -> str:
    names = strings(*tensors)
    run_op("SaveV2", [str(prefix), names, strings(*[""] * len(tensors)), list(tensors.values())])
    return str(prefix)


def restore(prefix: Any, names: list[str], specs: list[str], types: list[str]) -> Any:
    return run_op("RestoreV2", [str(prefix), strings(*names), strings(*specs)], dtypes=types)


@pytest.mark.parametrize("op", ops_of("io.save_restore_ops", "io.file_ops"))
def test_registrations_are_tensorflows(op: str) -> None:
    assert registered(op) == in_tensorflow(op)


def test_save_and_restore(tmp_path: Path) -> None:
    prefix = save(tmp_path / "new" / "c", a=A, b=B, s=strings("x", "yy"))
    a, b, s, part = restore(
        prefix, ["a", "b", "s", "a"], ["", "", "", "3 2 1,2:1,1"], ["float", "int64", "string", "float"]
    )
    assert (a.tolist(), int(b), s.tolist()) == (A.tolist(), 7, [b"x", b"yy"])
    assert part.tolist() == [[4], [6]]


def test_slices(tmp_path: Path) -> None:
    run_op("SaveV2", [str(tmp_path / "c"), strings("t", "t"), strings("3 2 0,1:-", "3 2 1,2:-"), [A[:1], A[1:]]])
    assert restore(tmp_path / "c", ["t"], [""], ["float"]).tolist() == A.tolist()
    assert restore(tmp_path / "c", ["t"], ["3 2 1,2:-"], ["float"]).tolist() == A[1:].tolist()


def test_restore_v2_reads_format_v1() -> None:
    p, q = restore(V1, ["p", "q"], ["5 4 1,2:-", ""], ["float", "int32"])
    assert p.tolist() == [[4, 5, 6, 7], [0, 1, 2, 3]]
    assert q.tolist() == [1, 2, -3]


@pytest.mark.parametrize(
    ("names", "specs", "types", "error", "message"),
    [
        (["a", "no"], ["", ""], ["float"] * 2, errors.NotFoundError, "Key no not found in checkpoint"),
        (
            ["a", "b"],
            ["", ""],
            ["half"] * 2,
            errors.InvalidArgumentError,
            "tensor_name = a; expected dtype half does not equal original dtype float\n"
            "tensor_name = b; expected dtype half does not equal original dtype int64",
        ),
        (["a"], ["", ""], ["float"], errors.InvalidArgumentError, "have different number of elements: 1 vs. 2"),
        (["a", "b"], ["", ""], ["float"], errors.InvalidArgumentError, "Got 2 tensor names but 1 tensors"),
        (
            ["a"],
            ["3 0,2"],
            ["float"],
            errors.InvalidArgumentError,
            r"tensor_name = a; shape in shape_and_slice spec \[3\] does not match the shape stored in checkpoint: "
            r"\[3,2\]",
        ),
        (["a"], ["x 0,2"], ["float"], errors.InvalidArgumentError, "Non numerical dimension"),
    ],
)
def test_restore_errors(
    tmp_path: Path, names: list[str], specs: list[str], types: list[str], error: type[Exception], message: str
) -> None:
    prefix = save(tmp_path / "c", a=A, b=B)
    with pytest.raises(error, match=message):
        restore(prefix, names, specs, types)


def test_files_that_are_missing_or_garbage(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match="Unsuccessful TensorSliceReader constructor: Failed to find any"):
        restore(tmp_path / "no", ["a"], [""], ["float"])
    (tmp_path / "g").write_bytes(b"garbage" * 20)
    (tmp_path / "h.index").write_bytes(b"garbage" * 20)
    for name in "gh":
        with pytest.raises(errors.DataLossError, match="not an sstable"):
            restore(tmp_path / name, ["a"], [""], ["float"])


def test_save_errors(tmp_path: Path) -> None:
    one = np.int32([1])
    with pytest.raises(errors.InvalidArgumentError, match="Input prefix should have a single element, got 2 instead"):
        run_op("SaveV2", [strings("a", "b"), strings("a"), strings(""), [one]])
    with pytest.raises(errors.InvalidArgumentError, match=r"should be an 1-D tensors, got \[1,1\] and \[1\] instead"):
        run_op("SaveV2", ["x", strings("a", shape=(1, 1)), strings(""), [one]])
    with pytest.raises(errors.InvalidArgumentError, match="Adding duplicate key: a"):
        run_op("SaveV2", [str(tmp_path / "c"), strings("a", "a"), strings("", ""), [one, one]])
    with pytest.raises(
        errors.InvalidArgumentError, match=r"does not match the shape of the tensor to  save: 3 0,2, tensor: \[1\]"
    ):
        run_op("SaveV2", [str(tmp_path / "c"), strings("a"), strings("3 0,2"), [one]])
    assert not list(tmp_path.iterdir())


def test_merge(tmp_path: Path) -> None:
    parts = [save(tmp_path / "temp" / f"{i}", **{name: B}) for i, name in enumerate("ab")]
    run_op("MergeV2Checkpoints", [strings(*parts), str(tmp_path / "c")])
    assert restore(tmp_path / "c", ["a", "b"], ["", ""], ["int64"] * 2) == (7, 7)
    assert not (tmp_path / "temp").exists()
    for prefixes, destination, message in (
        (parts[0], "c", r"checkpoint_prefixes should be an 1-D tensor, got \[\] instead"),
        (strings(), strings("c"), r"destination_prefix should be a scalar tensor, got \[1\] instead"),
        (strings(parts[0]), "c", "allow_missing_files was set to false"),
        (strings(), "c", "At least one prefix checkpoint file must exist"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=message):
            run_op("MergeV2Checkpoints", [prefixes, destination])


def test_format_v1(tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    run_op("Save", [path, strings("a", "b"), [A, B]])
    assert run_op("Restore", [path, "a"], dt="float").tolist() == A.tolist()
    assert run_op("RestoreSlice", [path, "a", "3 2 1,1:-"], dt="float").tolist() == [[3, 4]]
    assert run_op("RestoreSlice", [path, "b", ""], dt="int64") == 7
    run_op("SaveSlices", [path, strings("a", "b"), strings("3 4 -:0,2", ""), [A, B]])
    assert run_op("RestoreSlice", [path, "a", "3 4 0,1:1,1"], dt="float").tolist() == [[2]]


def test_errors_of_format_v1(tmp_path: Path) -> None:
    path, one = str(tmp_path / "f"), np.int32([1])
    cases: list[tuple[str, list[Any], dict[str, Any], str]] = [
        ("Save", [strings("a", "b"), strings("a"), [one]], {}, "Input 0 .filename. must be a string scalar"),
        ("Save", [path, strings("a", "b"), [one]], {}, "Expected totally 4 inputs .* but received 3 inputs"),
        ("SaveSlices", [path, strings("a"), strings("", ""), [one]], {}, "Expected 1 elements .* but got 2"),
        ("Restore", [strings("a", "b"), "a"], {"dt": "float"}, "must be a string scalar; got a tensor of 2 elements"),
        ("Restore", [str(V1), "p"], {"dt": "int32"}, "restore a tensor of type int32, got a tensor of type float"),
        ("RestoreSlice", [str(V1), "p", "5 5 -:-"], {"dt": "float"}, r"in the save file: \[5,5\], .*: \[5,4\]"),
    ]
    for op, inputs, attrs, message in cases:
        with pytest.raises(errors.InvalidArgumentError, match=message):
            run_op(op, inputs, **attrs)
    with pytest.raises(errors.NotFoundError, match='Tensor name "no" not found in checkpoint files'):
        run_op("Restore", [str(V1), "no"], dt="float")


def test_names_of_files() -> None:
    assert run_op("ShardedFilename", ["a", 1, 2]).item() == b"a-00001-of-00002"
    assert run_op("ShardedFilename", ["a", 100000, -2]).item() == b"a-100000-of--0002"
    assert run_op("ShardedFilespec", ["a", 2]).item() == b"a-?????-of-00002"
    for op, inputs, message in (
        ("ShardedFilename", [strings("a"), 1, 2], r"basename must be a scalar, got shape \[1\]"),
        ("ShardedFilename", ["a", [1], 2], r"shard must be a scalar, got shape \[1\]"),
        ("ShardedFilename", ["a", 1, [2]], r"num_shards must be a scalar, got shape \[1\]"),
        ("ShardedFilespec", ["a", [2]], r"num_shards must be a scalar"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=message):
            run_op(op, inputs)


def test_whole_files(tmp_path: Path) -> None:
    path = str(tmp_path / "new" / "f")
    run_op("WriteFile", [path, b"\0data"])
    assert run_op("ReadFile", [path]).item() == b"\0data"
    assert run_op("MatchingFiles", [strings(path, f"{tmp_path}/n*")]).tolist() == [
        f"{tmp_path}/new".encode(),
        path.encode(),
    ]
    assert run_op("MatchingFiles", [str(tmp_path / "no*")]).tolist() == []
    cases: list[tuple[str, list[Any], type[Exception], str]] = [
        ("ReadFile", [str(tmp_path / "no")], errors.NotFoundError, "no; No such file or directory"),
        ("ReadFile", [str(tmp_path)], errors.FailedPreconditionError, "Is a directory"),
        ("ReadFile", ["/dev/null"], errors.FailedPreconditionError, "Not a regular file"),
        ("ReadFile", [strings("a")], errors.InvalidArgumentError, r"must be scalar, but had shape: \[1\]"),
        ("WriteFile", [f"{path}/x/y", "d"], errors.FailedPreconditionError, "not a directory|Not a directory"),
        ("WriteFile", ["", "d"], errors.NotFoundError, "; No such file or directory"),
        ("WriteFile", [strings("a"), "d"], errors.InvalidArgumentError, "Input filename tensor must be scalar"),
        ("WriteFile", ["a", strings("d")], errors.InvalidArgumentError, "Contents tensor must be scalar"),
        ("MatchingFiles", [strings("a", shape=(1, 1))], errors.InvalidArgumentError, "scalar or vector"),
    ]
    for op, inputs, error, message in cases:
        with pytest.raises(error, match=message):
            run_op(op, inputs)


def test_names_of_files_count_as_they_are_found(tmp_path: Path) -> None:
    for i in range(100):
        (tmp_path / f"{i:0>200}").touch()
    patterns = strings(*[str(tmp_path / "*")] * 60)
    call = CallMemory(MemoryAccount("step", "limit", 1_000_000), "n")
    with watching(call), pytest.raises(errors.ResourceExhaustedError, match="more would exceed the 1000000 of limit"):
        run_op("MatchingFiles", [patterns])
    call.end()


async def test_files_never_hold_up_the_loop(tmp_path: Path) -> None:
    """The tests' guard against blocking calls raises if the kernel runs on the loop."""
    with aexec.Graph() as graph:
        written = aexec.ops.write_file(str(tmp_path / "f"), "contents", name="write")
        with aexec.control_dependencies([written]):
            aexec.ops.read_file(str(tmp_path / "f"), name="read")
    async with aexec.Session(graph) as session:
        for _ in range(50):  # measured times must not bring it back
            assert await session.run("read:0") == b"contents"
