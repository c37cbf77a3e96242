"""`Dataset`: an input pipeline in a graph being built, and its iterators."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from aexec.data.copied import as_graph
from aexec.data.dataset_base import building
from aexec.data.element_spec import Dialect
from aexec.data.element_structure import flattened
from aexec.data.iterator import Iterator, initializable_iterator, one_shot_iterator
from aexec.data.python_sources import PythonSources
from aexec.framework import errors
from aexec.framework.sparse_tensor import SparseTensor
from aexec.runtime.session.session import Session

__all__ = ["Dataset"]


class Dataset(PythonSources):
    """A sequence of elements, each a tensor or a structure of tensors: tuples, named tuples and dicts.

    ::

        numbers = Dataset.range(100).map(lambda x: x * x).batch(10)

    A transformation returns a new dataset and leaves this one unchanged.  Datasets are built in the current graph; if
    there is none, each source creates its own graph.
    """

    def make_one_shot_iterator(self) -> Iterator:
        """An iterator that needs no initialisation, and makes one pass through the dataset per session.

        Raises:
            InvalidArgumentError: the dataset uses variables, placeholders or other state of its graph.
        """
        with building(self.graph):
            made: Iterator = one_shot_iterator(self)
            return made

    def make_initializable_iterator(self, shared_name: str | None = None) -> Iterator:
        """An iterator whose `initializer` starts a new pass through the dataset each time it is run.

        Args:
            shared_name: iterators with the same shared name are one iterator in a session.
        """
        with building(self.graph):
            made: Iterator = initializable_iterator(self, shared_name)
            return made

    async def __aiter__(self) -> AsyncIterator[Any]:
        """Iterate over the elements, as structures of arrays, in a session that closes with the loop.

        ::

            async for x in dataset:
                ...

        If the loop is left early, the session closes when the event loop collects the generator; with
        `contextlib.aclosing` it closes at once.

        Raises:
            InvalidArgumentError: the dataset uses variables, placeholders or other state of its graph.
        """
        graph, variant = as_graph(self.graph, self.variant)
        with graph:
            iterator = initializable_iterator(type(self).dialect.dataset(variant, self.spec_here), None)
            following = iterator.get_next()
        async with Session(graph) as session:
            await session.run([], targets=[iterator.initializer])
            take = session.make_callable(following)
            while True:
                try:
                    element = await take()
                except errors.OutOfRangeError:
                    return
                yield element

    async def feed(self, queue: Any) -> None:
        """Put all elements into a queue of a session, and close it.

        An error also closes the queue, so that consumers do not wait forever.  Cancellation leaves the queue open.

        Args:
            queue: from `session.queue`, here or in a server; its components are the parts of an element, in order.

        Raises:
            OpError: an element cannot be computed, does not fit the queue, or the queue is closed.
        """
        try:
            async with aclosing(aiter(self)) as elements:  # type: ignore[type-var]
                async for element in elements:
                    parts = flattened(element)
                    await queue.put(parts[0] if len(parts) == 1 else tuple(parts))
        except errors.OpError:
            await queue.close(cancel_pending=True)
            raise
        await queue.close()


Dataset.dialect = Iterator.dialect = Dialect(Dataset, Dataset, Iterator, SparseTensor, lambda shape: shape)
