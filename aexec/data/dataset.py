"""`Dataset`: a recipe for elements, in a graph being built; and its iterators."""

from __future__ import annotations

from aexec.data.dataset_base import building
from aexec.data.element_spec import Dialect
from aexec.data.file_names import FileNames
from aexec.data.iterator import Iterator, initializable_iterator, one_shot_iterator
from aexec.framework.sparse_tensor import SparseTensor

__all__ = ["Dataset"]


class Dataset(FileNames):
    """A recipe for elements, each a tensor or a structure of tensors: tuples, named tuples and dicts.

    ::

        numbers = Dataset.range(100).map(lambda x: x * x).batch(10)

    A transformation leaves the dataset as it is, and makes a new one.  Datasets are made in the current graph; outside
    of all graphs, each source has a graph of its own.
    """

    def make_one_shot_iterator(self) -> Iterator:
        """An iterator that needs no initialisation, and goes through the dataset once in each session.

        Raises:
            InvalidArgumentError: the dataset uses variables, placeholders or other state of its graph.
        """
        with building(self.graph):
            made: Iterator = one_shot_iterator(self)
            return made

    def make_initializable_iterator(self, shared_name: str | None = None) -> Iterator:
        """An iterator that begins when its `initializer` runs, and begins anew when that runs again.

        Args:
            shared_name: iterators with one name are one in a session.
        """
        with building(self.graph):
            made: Iterator = initializable_iterator(self, shared_name)
            return made


Dataset.dialect = Iterator.dialect = Dialect(Dataset, Dataset, Iterator, SparseTensor, lambda shape: shape)
