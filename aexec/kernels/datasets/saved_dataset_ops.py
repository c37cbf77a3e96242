"""Datasets that are saved in a folder, and loaded again, in TensorFlow's format.

The folder has a file `snapshot.metadata`, which names the run that is whole, and a folder for that run.  This has a
folder for each shard, with files of records: a TensorProto for each component of each element.  The file with the
metadata is written last, by one rename, so what is saved is there as a whole or not at all.
Next to read: `aexec/resources/datasets/written_elements.py`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import numpy as np

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.shape import PartialTensorShape
from aexec.framework.wire import tensor_codec
from aexec.io.files import make_directories, open_regular, reporting, text_path, write_atomically
from aexec.io.record import Compression, RecordReader, RecordWriter
from aexec.kernels.common.variants import boxed
from aexec.kernels.datasets.arguments import ONE_DATASET, Called, Made, integer, text
from aexec.kernels.datasets.function_dataset_ops import Call, OneByOne
from aexec.kernels.datasets.source_dataset_ops import Listed
from aexec.resources.datasets.dataset import Dataset, DatasetIterator, Element, Elements, Pass, Turns, dataset_of
from aexec.resources.datasets.file_elements import DEFAULT_PIECE, FileElements, Outcome
from aexec.resources.datasets.written_elements import ElementFiles, WrittenElements

_METADATA, _SHARD, _FILE = "snapshot.metadata", "{:08d}.shard", "{:08d}.snapshot"
# The version of the format with records of tensors.
_TFRECORDS = 2
# A file with metadata has some tens of bytes.
_MOST_METADATA = 1 << 20
# Each shard has a file that is open while elements are written.
_MOST_SHARDS = 256


def _compression(c: OpKernelConstruction) -> Compression:
    name = c.attr("compression")
    if name in (b"SNAPPY", b"AUTO"):
        raise errors.UnimplementedError(
            f"{c.op}: compression {name.decode()} is not supported; use GZIP, or none, which is ''"
        )
    return Compression.of(name)


def _folder(path: Any) -> str:
    return text_path(text(path, "path"))


# ---- Saving


class _Shards(ElementFiles):
    """The files of a dataset that is saved.  The first component of an element is the number of its shard."""

    def __init__(self, path: str, types: tuple[DType, ...], compression: Compression, graph_hash: str = "") -> None:
        super().__init__()
        self._path = path
        self._graph_hash = graph_hash
        self._types = types
        self._compression = compression
        self._run = str(secrets.randbits(64))
        self._writers: dict[int, RecordWriter] = {}
        self._number = 0
        # The folders and files of the run, with the functions that delete them.
        self._made: list[tuple[Callable[[str], None], str]] = []

    def append(self, elements: list[Element]) -> None:
        if not self._made:
            self._make_folder(os.path.join(self._path, self._run))
        for shard, *element in elements:
            writer = self._writer(int(shard))
            for component, dtype in zip(element, self._types, strict=True):
                message = tensor_codec.to_proto(component, dtype, compact=False, content_strings=True)
                # TensorFlow writes the field for the shape of a scalar, too.
                message.tensor_shape.SetInParent()
                writer.write(message.SerializeToString(deterministic=True))
            self._number += 1
            if self.is_closed:
                return

    def _writer(self, shard: int) -> RecordWriter:
        if shard not in self._writers:
            if not 0 <= shard < _MOST_SHARDS:
                raise errors.InvalidArgumentError(
                    f"The shard function must give numbers from 0 to {_MOST_SHARDS - 1}, got {shard}"
                )
            folder = os.path.join(self._path, self._run, _SHARD.format(shard))
            self._make_folder(folder)
            name = os.path.join(folder, _FILE.format(0))
            self._writers[shard] = RecordWriter(name, self._compression)
            self._made.append((os.unlink, name))
        return self._writers[shard]

    def _make_folder(self, path: str) -> None:
        make_directories(path)
        self._made.append((os.rmdir, path))

    def finish(self) -> None:
        while self._writers:
            self._writers.popitem()[1].close()
        metadata = proto.SnapshotMetadataRecord(
            graph_hash=self._graph_hash,
            run_id=self._run,
            creation_timestamp=int(time.time() * 1e6),
            version=_TFRECORDS,
            dtype=[dtype.enum for dtype in self._types],
            num_elements=self._number,
            finalized=True,
        )
        with write_atomically(os.path.join(self._path, _METADATA)) as file:
            file.write(metadata.SerializeToString(deterministic=True))

    def discard(self) -> None:
        while self._writers:
            self._writers.popitem()[1].close()
        while self._made:  # the last one first, so that folders are empty
            remove, path = self._made.pop()
            with contextlib.suppress(OSError):
                remove(path)


class _Sharded(OneByOne):
    """Each element after the number of its shard, which a function gives."""

    async def next(self, context: OpKernelContext) -> Element | None:
        element = await self.take(context)
        if element is None:
            return None
        results = await self.called(context, element)
        return (np.int64(integer(results[0], "The shard's number")), *element)


class _InOneShard(DatasetIterator):
    """Each element after the number 0 of its shard."""

    __slots__ = ("_source",)

    def __init__(self, source: DatasetIterator) -> None:
        self._source = source

    async def next(self, context: OpKernelContext) -> Element | None:
        element = await self._source.next(context)
        return None if element is None else (np.int64(0), *element)


class _WithoutShard(DatasetIterator):
    """Each element without the number of its shard."""

    __slots__ = ("_source",)

    def __init__(self, source: DatasetIterator) -> None:
        self._source = source

    async def next(self, context: OpKernelContext) -> Element | None:
        element = await self._source.next(context)
        return None if element is None else element[1:]


class _Save:
    """Makes iterators that save a dataset's elements, and give them."""

    def __init__(self, c: OpKernelConstruction, graph_hash: str = "") -> None:
        self._compression = _compression(c)
        self._graph_hash = graph_hash
        self._function = Called(c, "shard_func") if c.attrs.get("use_shard_func", True) else None

    def of(self, source: Dataset, folder: str, captured: Any) -> Any:
        """The function that makes an iterator, given the pass."""
        function = self._function
        call: Call | None = None if function is None else function.with_captured(source.types, captured)

        def make(one: Pass) -> DatasetIterator:
            begun = one.begin(source)
            numbered = _InOneShard(begun) if call is None else _Sharded(begun, call)
            files = _Shards(folder, source.types, self._compression, self._graph_hash)
            return _WithoutShard(one.adopt(WrittenElements(one, numbered, files)))

        return make


@kernel("SaveDataset", cost=0)
def save_dataset(c: OpKernelConstruction) -> Compute:
    save = _Save(c)
    c.need_context()

    async def compute(context: OpKernelContext, tensor: Any, path: Any, *captured: Any) -> None:
        make = save.of(dataset_of(tensor), _folder(path), captured)
        one, turns = Pass(c.name, context), Turns()
        try:
            elements = one.adopt(make(one))
            while await elements.next(context) is not None:
                await turns.take()
        finally:
            one.close()

    return compute


@kernel("SaveDatasetV2", cost=0)
def save_dataset_as_it_is_used(c: OpKernelConstruction) -> Compute:
    """The elements of the input, which are saved as they are taken; what is saved is there after the last one."""
    made, save = Made(c), _Save(c)

    def compute(tensor: Any, path: Any, *captured: Any) -> Any:
        source = dataset_of(tensor)
        return made.of(save.of(source, _folder(path), captured), source.cardinality())

    return compute


# ---- Loading


def _run_of(path: str) -> str:
    """The folder of the run that is whole.

    Raises:
        NotFoundError: nothing is saved there, or not as a whole.
        UnimplementedError: it was saved in an older format.
    """
    name = os.path.join(path, _METADATA)
    try:
        with reporting(name), open_regular(name) as file:
            data = file.read(_MOST_METADATA)
    except errors.NotFoundError:
        raise errors.NotFoundError(f"Could not find metadata file [{path}]") from None
    try:
        metadata = proto.SnapshotMetadataRecord.FromString(data)
    except Exception as error:  # protobuf's DecodeError differs between its implementations
        raise errors.DataLossError(f"{name} is corrupt") from error
    run, version = metadata.run_id, metadata.version
    if not (run.isascii() and run.isdigit()):
        raise errors.DataLossError(f"{name} is corrupt")
    if version != _TFRECORDS:
        raise errors.UnimplementedError(f"{name} has version {version} of the format, expected {_TFRECORDS}")
    if not metadata.finalized:
        raise errors.NotFoundError(f"{name} is not finalized: saving did not come to its end")
    return os.path.join(path, run)


def _files_of(folder: str) -> list[str]:
    """The files of a shard, in their order."""
    with reporting(folder):
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".snapshot")]


def _shards_of(path: str) -> list[list[str]]:
    run = _run_of(path)
    with reporting(run):
        names = sorted(name for name in os.listdir(run) if name.endswith(".shard"))
    return [_files_of(os.path.join(run, name)) for name in names]


def _elements(types: tuple[DType, ...], compression: Compression, path: str) -> Generator[Outcome, None, None]:
    with RecordReader(path, compression) as reader:
        records = iter(reader)
        for first in records:
            element = [_tensor(first, types[0], path)]
            for dtype in types[1:]:
                record = next(records, None)
                if record is None:
                    raise errors.DataLossError(f"{path} ends within an element")
                element.append(_tensor(record, dtype, path))
            yield tuple(element)


def _tensor(record: bytes, dtype: DType, path: str) -> Any:
    try:
        message = proto.TensorProto.FromString(record)
    except Exception as error:  # protobuf's DecodeError differs between its implementations
        raise errors.DataLossError(f"{path} has a record that is no tensor") from error
    if message.dtype != dtype.enum:
        raise errors.InvalidArgumentError(
            f"Data type mismatch: expected {dtype} but got {dtypes.as_dtype(message.dtype)} in {path}"
        )
    return tensor_codec.from_proto(message)


class _Loaded(DatasetIterator):
    """The elements of the dataset that a function makes of the dataset of all shards."""

    __slots__ = ("_call", "_chosen", "_compression", "_made", "_pass", "_path")

    def __init__(self, one: Pass, made: Made, path: str, compression: Compression, call: Call) -> None:
        self._pass = one
        self._made = made
        self._path = path
        self._compression = compression
        self._call = call
        self._chosen: DatasetIterator | None = None

    async def next(self, context: OpKernelContext) -> Element | None:
        if self._chosen is None:
            shards = await context.worker_pool.run(_shards_of, self._path)
            (tensor,) = await self._call(context, (boxed(self._dataset_of(shards)),))
            source = dataset_of(tensor)
            self._made.check(source)
            self._chosen = self._pass.begin(source)
        return await self._chosen.next(context)

    def _dataset_of(self, shards: list[list[str]]) -> Dataset:
        elements = [(boxed(self._shard(number, files)),) for number, files in enumerate(shards)]
        scalar = (PartialTensorShape([]),)
        return Elements(
            f"{self._made.name}/shards", ONE_DATASET, scalar, lambda _: Listed(iter(elements)), len(elements)
        )

    def _shard(self, number: int, files: list[str]) -> Dataset:
        made, compression = self._made, self._compression
        opened = [partial(_elements, made.types, compression, name) for name in files]
        return Elements(
            f"{made.name}/shard_{number}",
            made.types,
            made.shapes,
            lambda one: FileElements(one, iter(opened), DEFAULT_PIECE),
        )


@kernel("LoadDataset", cost=0)
def load_dataset(c: OpKernelConstruction) -> Compute:
    made, compression, function = Made(c), _compression(c), Called(c, "reader_func", ONE_DATASET)

    def compute(path: Any, *captured: Any) -> Any:
        folder = _folder(path)
        call = function.with_captured(ONE_DATASET, captured)
        return made.of(lambda one: _Loaded(one, made, folder, compression, call))

    return compute


# ---- Snapshots


class _Snapshot(DatasetIterator):
    """The elements that are saved as a whole; if there are none, those of the input, which are saved as they are taken.

    Args:
        load, save: make the iterators.
    """

    __slots__ = ("_chosen", "_folder", "_load", "_pass", "_save")

    def __init__(
        self,
        one: Pass,
        folder: str,
        load: Callable[[Pass], DatasetIterator],
        save: Callable[[Pass], DatasetIterator],
    ) -> None:
        self._pass = one
        self._folder = folder
        self._load = load
        self._save = save
        self._chosen: DatasetIterator | None = None

    async def next(self, context: OpKernelContext) -> Element | None:
        if self._chosen is None:
            make = self._load if await context.worker_pool.run(_is_whole, self._folder) else self._save
            self._chosen = self._pass.adopt(make(self._pass))
        return await self._chosen.next(context)


def _is_whole(path: str) -> bool:
    """True if a run is saved there as a whole.  Raises OpError if that cannot be told."""
    try:
        _run_of(path)
    except errors.NotFoundError:
        return False
    return True


@kernel("SnapshotDatasetV2", cost=0)
def snapshot_dataset(c: OpKernelConstruction) -> Compute:
    for name in ("reader_prefix", "writer_prefix"):
        if c.attr(name):
            raise errors.UnimplementedError(f"{c.op}: {name} is not supported; put it before the path")
    if not c.attr("hash_valid"):
        raise errors.UnimplementedError(
            f"{c.op}: the hash of the pipeline is not given, and is not computed here; set `hash` and `hash_valid`"
        )
    graph_hash = str(c.attr("hash") % 2**64)
    made, compression, save = Made(c), _compression(c), _Save(c, graph_hash)
    reader, (start, stop) = Called(c, "reader_func", ONE_DATASET), c.input_range("reader_func_other_args")

    def compute(tensor: Any, path: Any, *captured: Any) -> Any:
        source, folder = dataset_of(tensor), os.path.join(_folder(path), graph_hash)
        made.check(source)
        call = reader.with_captured(ONE_DATASET, captured[: stop - start])
        saving = save.of(source, folder, captured[stop - start :])

        def load(one: Pass) -> DatasetIterator:
            return _Loaded(one, made, folder, compression, call)

        return made.of(lambda one: _Snapshot(one, folder, load, saving), source.cardinality())

    return compute
