"""`tensorflow.examples.tutorials.mnist.input_data`: reads MNIST's files from a folder, and downloads none.

The folder has the four files of the data set, such as `train-images-idx3-ubyte.gz`.
"""

from __future__ import annotations

import gzip
import os
import struct
from typing import Any, NamedTuple

import numpy as np

__all__ = ["DataSet", "Datasets", "read_data_sets"]

_MOST = 1 << 30  # bytes that a file may unpack to
_FILES = "train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte t10k-labels-idx1-ubyte".split()


class DataSet:
    """Images and their labels, and batches of them in a new order in each epoch.

    Attributes:
        images: [examples, 784], or [examples, 28, 28, 1] if they are not reshaped; float32 from 0 to 1, or uint8.
        labels: uint8 [examples], or float64 [examples, 10] if they are one-hot.
        epochs_completed: how often all examples were given.
    """

    def __init__(self, images: Any, labels: Any, seed: int | None = None) -> None:
        self.images = images
        self.labels = labels
        self.num_examples = len(images)
        self.epochs_completed = 0
        self._next = 0
        self._random = np.random.RandomState(seed)

    def next_batch(self, batch_size: int, fake_data: bool = False, shuffle: bool = True) -> tuple[Any, Any]:
        """The next images and labels; a batch that ends an epoch goes on in the next one."""
        if fake_data:
            raise NotImplementedError("next_batch: there is no fake data")
        if shuffle and self._next == 0 and self.epochs_completed == 0:
            self._shuffle()
        begin, self._next = self._next, self._next + batch_size
        if self._next <= self.num_examples:
            return self.images[begin : self._next], self.labels[begin : self._next]
        rest = self.images[begin:], self.labels[begin:]
        self.epochs_completed += 1
        if shuffle:
            self._shuffle()
        self._next = batch_size - len(rest[0])
        images, labels = self.images[: self._next], self.labels[: self._next]
        return np.concatenate([rest[0], images]), np.concatenate([rest[1], labels])

    def _shuffle(self) -> None:
        order = self._random.permutation(self.num_examples)
        self.images, self.labels = self.images[order], self.labels[order]


class Datasets(NamedTuple):
    """The three parts of the data set."""

    train: DataSet
    validation: DataSet
    test: DataSet


def _read(folder: str, name: str, axes: int) -> Any:
    """An array of uint8 from a file in the IDX format, packed or not.

    Raises:
        FileNotFoundError: the folder does not have it.
        ValueError: it is no such file.
    """
    path = os.path.join(folder, name)
    packed = os.path.exists(f"{path}.gz")
    if not packed and not os.path.exists(path):
        raise FileNotFoundError(f"{path}.gz is not there; aexec downloads no data: put MNIST's four files there")
    with gzip.open(f"{path}.gz") if packed else open(path, "rb") as file:
        data = file.read(_MOST)
    head = 4 * (1 + axes)
    magic, *sizes = struct.unpack(f">{1 + axes}I", data[:head]) if len(data) >= head else (0,)
    if magic != 0x800 + axes or len(data) - head != int(np.prod(sizes, dtype=np.int64)):
        raise ValueError(f"{path} is no IDX file of {axes} axes")
    return np.frombuffer(data, np.uint8, offset=head).reshape(sizes)


def read_data_sets(
    train_dir: str,
    fake_data: bool = False,
    one_hot: bool = False,
    dtype: Any = "float32",
    reshape: bool = True,
    validation_size: int = 5000,
    seed: int | None = None,
    source_url: str | None = None,
) -> Datasets:
    """Read MNIST.

    Args:
        train_dir: the folder.
        fake_data: not supported.
        one_hot: True for labels of ten numbers.
        dtype: of images: float32, from 0 to 1, or uint8.
        reshape: True for images of one axis.
        validation_size: how many of the training examples are for validation.
        seed: of the order of batches.
        source_url: ignored.
    """
    if fake_data:
        raise NotImplementedError("read_data_sets: there is no fake data")
    wanted = np.dtype(getattr(dtype, "as_numpy_dtype", dtype))
    if wanted not in (np.float32, np.uint8):
        raise TypeError(f"Invalid image dtype {wanted}, expected uint8 or float32")

    def images(name: str) -> Any:
        found = _read(train_dir, name, 3)
        found = found.reshape(len(found), -1) if reshape else found[..., None]
        return found.astype(np.float32) * np.float32(1.0 / 255.0) if wanted == np.float32 else found

    def labels(name: str) -> Any:
        found = _read(train_dir, name, 1)
        return np.eye(10)[found] if one_hot else found

    x, y, test_x, test_y = images(_FILES[0]), labels(_FILES[1]), images(_FILES[2]), labels(_FILES[3])
    if not 0 <= validation_size <= len(x):
        raise ValueError(f"Validation size should be between 0 and {len(x)}. Received: {validation_size}.")
    cut = validation_size
    return Datasets(DataSet(x[cut:], y[cut:], seed), DataSet(x[:cut], y[:cut], seed), DataSet(test_x, test_y, seed))
