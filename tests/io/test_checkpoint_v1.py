from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec import errors, proto
from aexec.framework import dtypes
from aexec.io.checkpoint_v1 import CheckpointV1Reader, CheckpointV1Writer
from aexec.io.table import Table, TableBuilder
from aexec.io.tensor_slice import TensorSlice
from tests.support.crashes import crash_at_every_write

# SaveSlices of TensorFlow: p in two slices of [5, 4], and one tensor of each of these types.
FILE = Path(__file__).parent / "data" / "checkpoints" / "format_v1"
P = np.vstack([np.arange(8, dtype=np.float32).reshape(2, 4), np.arange(12, dtype=np.float32).reshape(3, 4)])
OTHERS: dict[str, Any] = {
    "q": np.array([1, 2, -3], np.int32),
    "s": np.array([b"x", b"yy"], object),
    "h": np.array([1, 2], np.float16),
    "b": np.array([True, False]),
    "c": np.array([1 + 2j], np.complex64),
    "u8": np.array([1, 255], np.uint8),
}


def write_all(path: Path) -> None:
    writer = CheckpointV1Writer(str(path))
    for text in ("0,2:-", "2,3:-"):
        box = TensorSlice.parse(text)
        writer.add("p", P[box.within(P.shape)], dtypes.float32, P.shape, box)
    for name, value in OTHERS.items():
        writer.add(name, value, dtypes.from_numpy(value.dtype))
    writer.finish()


def test_checkpoint_that_tensorflow_wrote() -> None:
    reader = CheckpointV1Reader(str(FILE))
    assert reader.keys() == sorted(["p", *OTHERS])
    for name, value in (OTHERS | {"p": P}).items():
        assert name in reader
        got = reader.read(name)
        assert (got.dtype, got.tolist()) == (value.dtype, value.tolist())
        assert reader.dtype_and_shape(name) == (dtypes.from_numpy(value.dtype), value.shape)


def test_written_as_tensorflow_writes(tmp_path: Path) -> None:
    write_all(tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == FILE.read_bytes()


@given(st.data())
def test_slices_against_numpy(data: st.DataObject) -> None:
    start, column = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 3))
    box = TensorSlice(((start, data.draw(st.integers(1, 5 - start))), (column, data.draw(st.integers(1, 4 - column)))))
    assert CheckpointV1Reader(str(FILE)).read("p", box).tolist() == P[box.within(P.shape)].tolist()


def test_several_files(tmp_path: Path) -> None:
    for number, text in enumerate(("0,2:-", "2,3:-")):
        box = TensorSlice.parse(text)
        writer = CheckpointV1Writer(str(tmp_path / f"c-{number}"))
        writer.add("p", P[box.within(P.shape)], dtypes.float32, P.shape, box)
        writer.finish()
    assert CheckpointV1Reader(str(tmp_path / "c-?")).read("p").tolist() == P.tolist()
    reader = CheckpointV1Reader(str(tmp_path / "c-1"))
    with pytest.raises(errors.InvalidArgumentError, match="Not all of slice -:- of p"):
        reader.read("p")
    with pytest.raises(errors.InvalidArgumentError, match="Not all of slice 1,2:- of p"):
        reader.read("p", TensorSlice.parse("1,2:-"))


def test_missing_files_and_tensors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match="Failed to find any matching files for"):
        CheckpointV1Reader(str(tmp_path / "no"))
    with pytest.raises(errors.NotFoundError, match='Tensor name "x" not found in checkpoint files'):
        CheckpointV1Reader(str(FILE)).read("x")
    (tmp_path / "f").write_bytes(b"garbage" * 10)
    with pytest.raises(
        errors.DataLossError, match=r"DATA_LOSS: not an sstable \(bad magic number\): perhaps your file"
    ):
        CheckpointV1Reader(str(tmp_path / "f"))


def edited(path: Path, change: Any) -> str:
    builder = TableBuilder()
    for key, value in Table(FILE.read_bytes()).items():
        message = proto.SavedTensorSlices.FromString(value)
        if change(key, message) is not False:
            builder.add(key, message.SerializeToString())
    path.write_bytes(builder.finish())
    return str(path)


def test_files_that_lie(tmp_path: Path) -> None:
    def huge(key: bytes, message: Any) -> None:
        for tensor in message.meta.tensor:
            tensor.shape.dim[0].size = 2**40

    with pytest.raises((errors.InvalidArgumentError, errors.DataLossError)):
        CheckpointV1Reader(edited(tmp_path / "f", huge)).read("p")
    with pytest.raises((errors.InvalidArgumentError, errors.DataLossError)):
        CheckpointV1Reader(str(tmp_path / "f")).read("q")

    def untyped(key: bytes, message: Any) -> None:
        for tensor in message.meta.tensor:
            tensor.type = 77

    with pytest.raises(errors.DataLossError, match="impossible type"):
        CheckpointV1Reader(edited(tmp_path / "f", untyped))

    def emptied(key: bytes, message: Any) -> None:
        message.data.data.Clear()

    with pytest.raises(errors.DataLossError, match="corrupt"):
        CheckpointV1Reader(edited(tmp_path / "f", emptied)).read("q")

    path = edited(tmp_path / "f", lambda key, message: not key)
    with pytest.raises(errors.DataLossError, match="missing"):
        CheckpointV1Reader(path).read("q")

    builder = TableBuilder()
    builder.add(b"", b"\xff")
    (tmp_path / "f").write_bytes(builder.finish())
    with pytest.raises(errors.DataLossError, match="no SavedTensorSlices"):
        CheckpointV1Reader(str(tmp_path / "f"))


def test_files_that_disagree(tmp_path: Path) -> None:
    for number, value in enumerate((np.float32([1]), np.float32([1, 2]))):
        writer = CheckpointV1Writer(str(tmp_path / f"c-{number}"))
        writer.add("p", value, dtypes.float32)
        writer.finish()
    with pytest.raises(errors.DataLossError, match="disagree"):
        CheckpointV1Reader(str(tmp_path / "c-?"))


def test_invalid_tensors_are_not_written(tmp_path: Path) -> None:
    writer = CheckpointV1Writer(str(tmp_path / "f"))
    one = np.zeros(1, np.float32)
    writer.add("a", one, dtypes.float32, [4], TensorSlice.parse("0,1"))
    for kwargs, message in (
        ({"whole": [4], "box": TensorSlice.parse("0,1")}, "saved twice"),
        ({"whole": [5], "box": TensorSlice.parse("0,1")}, "disagree"),
        ({"whole": [4], "box": TensorSlice.parse("0,2")}, "another shape"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=message):
            writer.add("a", one, dtypes.float32, **kwargs)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgumentError, match="UTF-8"):
        writer.add("\udcff", one, dtypes.float32)
    with pytest.raises(errors.UnimplementedError, match="Saving data type variant not yet supported"):
        writer.add("v", np.zeros(1, object), dtypes.variant)
    with pytest.raises(errors.NotFoundError):
        CheckpointV1Writer(str(tmp_path / "no" / "f")).finish()


@pytest.mark.parametrize(
    ("dtype", "size"), [("float32", 2**29), ("int32", 2**28), ("uint8", 2**30), ("complex128", 2**27), ("half", 2**30)]
)
def test_slice_larger_than_a_message_is_refused_at_once(tmp_path: Path, dtype: str, size: int) -> None:
    kind = dtypes.as_dtype(dtype)
    array = np.broadcast_to(np.zeros((), kind.np), (size,))  # takes no memory
    with pytest.raises(errors.InvalidArgumentError, match="w: Tensor slice is too large to serialize"):
        CheckpointV1Writer(str(tmp_path / "f")).add("w", array, kind)


def test_strings_larger_than_a_message_are_refused_at_once(tmp_path: Path) -> None:
    array = np.empty(2048, object)
    array.fill(b"x" * (1 << 20))  # one object; `np.full` would make 2048 of them
    with pytest.raises(errors.InvalidArgumentError, match="w: Tensor slice is too large to serialize"):
        CheckpointV1Writer(str(tmp_path / "f")).add("w", array, dtypes.string)


def test_crash_while_replacing_leaves_the_old_or_the_new_file(tmp_path: Path) -> None:
    path = tmp_path / "f"

    def write(number: int) -> None:
        writer = CheckpointV1Writer(str(path))
        writer.add("a", np.int32(number), dtypes.int32)
        writer.finish()

    write(1)
    for _ in crash_at_every_write(lambda: write(2)):
        assert CheckpointV1Reader(str(path)).read("a") in (1, 2)
        write(1)
    assert CheckpointV1Reader(str(path)).read("a") == 2
