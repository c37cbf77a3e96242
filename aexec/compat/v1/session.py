"""`Session` and `AsyncSession`: sessions with TensorFlow's arguments, for scripts, and to be awaited.

::

    with tf.Session() as sess:
        sess.run(train, feed_dict={x: batch})

    async with tf.AsyncSession() as sess:
        await sess.run(train, feed_dict={x: batch})

Both are aexec's: a `SyncSession`, and a `Session`.  What takes a session here, `saver.save(sess, path)`, waits with the
one and is awaited with the other.  Next to read: `training.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np

from aexec import proto
from aexec.compat.v1.default_session import default_session, entered
from aexec.compat.v1.sparse import SparseTensor, SparseTensorValue
from aexec.compat.v1.tensors import get_default_graph
from aexec.graph.graph import Graph
from aexec.remote.blocking import SyncSession
from aexec.runtime.config import RunMetadata
from aexec.runtime.fetches import register_fetch_type
from aexec.runtime.loop_thread import LoopThread
from aexec.runtime.session import Session as _Session

__all__ = [
    "AsyncSession",
    "InteractiveSession",
    "Session",
    "in_session",
    "load",
    "waited",
]

register_fetch_type(SparseTensor, lambda sparse: sparse[:], lambda parts: SparseTensorValue(*parts))


def in_session(session: Any, function: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
    """Call an asynchronous function of ours with a session: its result, or with an `AsyncSession` what to await."""
    if isinstance(session, Session):
        return session.waiting.wait(function, *arguments, **settings)
    ours = session.awaitable if isinstance(session, AsyncSession) else session
    return function(ours, *arguments, **settings)


def waited(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine gives that needs no session, waited for: it runs on an event loop of its own."""
    thread = LoopThread("aexec.compat")
    try:
        return thread.wait(coroutine)
    finally:
        thread.stop()


def load(variable: Any, value: Any, session: Any = None) -> Any:
    """`Variable.load`: give it a value in a session."""
    initializer = variable.initializer
    source, slot = initializer.in_edges[1]
    given = initializer.graph.nodes[source].output(slot)
    return (session or default_session()).run(initializer, {given: value})


def _feeds(graph: Graph, feed_dict: Mapping[Any, Any] | None) -> dict[Any, Any]:
    """What is fed: of sparse tensors each part; numbers have the type of the tensor, as TensorFlow's feeds do."""
    feeds: dict[Any, Any] = {}
    for key, value in (feed_dict or {}).items():
        parts = zip(key, value, strict=True) if isinstance(key, SparseTensor) else [(key, value)]
        for tensor, part in parts:
            feeds[tensor] = _of_its_type(graph, tensor, part)
    return feeds


def _of_its_type(graph: Graph, tensor: Any, value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
        wanted = graph.tensor(tensor).dtype.np if isinstance(tensor, str) else tensor.dtype.np
        if wanted.kind in "biuf" and wanted.kind != value.dtype.kind:
            return value.astype(wanted)
    return value


def _metadata(message: Any) -> RunMetadata | None:
    return RunMetadata() if isinstance(message, proto.RunMetadata) else message


def _report(metadata: RunMetadata | None, message: Any) -> None:
    if isinstance(message, proto.RunMetadata) and metadata is not None:
        message.CopyFrom(metadata.to_proto())


class DeviceAttributes(NamedTuple):
    """A device of a session."""

    name: str
    device_type: str


def _described(devices: Iterable[Any]) -> list[DeviceAttributes]:
    return [DeviceAttributes(device.name, device.type) for device in devices]


class _Entering:
    """What both kinds have: they become the default session, and their graph the one that is being built."""

    graph: Graph
    sess_str: str

    @property
    def graph_def(self) -> proto.GraphDef:
        """The graph as a message."""
        return self.graph.to_graph_def()

    @contextmanager
    def as_default(self) -> Iterator[Any]:
        """Be the default session; it stays open afterwards."""
        with entered(self), self.graph:
            yield self


class Session(_Entering):
    """A session whose methods wait: `aexec.SyncSession` with TensorFlow's arguments.

    It is open when it is made.  Leave its `with` block, or call `close`.

    Args:
        target: as of `aexec.Session`.
        graph: by default the one being built.
        config: a `tf.ConfigProto`.

    Attributes:
        waiting: the `aexec.SyncSession`.
    """

    def __init__(self, target: str = "", graph: Graph | None = None, config: Any = None) -> None:
        self.graph = get_default_graph() if graph is None else graph
        self.sess_str = target
        self.waiting = SyncSession(self.graph, target, config)
        self._blocks: list[ExitStack] = []

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
    ) -> Any:
        """As `aexec.Session.run`.

        Args:
            options: a `tf.RunOptions`.
            run_metadata: a `tf.RunMetadata`, which is filled.
        """
        metadata = _metadata(run_metadata)
        found = self.waiting.run(fetches, _feeds(self.graph, feed_dict), options=options, metadata=metadata)
        _report(metadata, run_metadata)
        return found

    def make_callable(self, fetches: Any, feed_list: Sequence[Any] = (), accept_options: bool = False) -> Any:
        """A function of the values fed."""
        return self.waiting.make_callable(fetches, feed_list)

    def partial_run_setup(self, fetches: Any, feeds: Sequence[Any] = ()) -> Any:
        """Begin a run that is fed and fetched in parts; a handle for `partial_run`."""
        return self.waiting.partial_run_setup(fetches, feeds).handle

    def partial_run(self, handle: str, fetches: Any, feed_dict: Mapping[Any, Any] | None = None) -> Any:
        """Go on with it."""
        return self.waiting.partial_run(handle, fetches, _feeds(self.graph, feed_dict))

    def list_devices(self) -> list[DeviceAttributes]:
        """The devices."""
        return _described(self.waiting.devices())

    def close(self) -> None:
        """Cancel what runs, and close.  Idempotent."""
        self.waiting.close()

    def __enter__(self) -> Session:
        stack = ExitStack()
        stack.enter_context(self.as_default())
        self._blocks.append(stack)
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            self._blocks.pop().close()
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"<tf.Session: {self.waiting!r}>"


class InteractiveSession(Session):
    """A session that is the default one until it is closed, in the context that made it."""

    def __init__(self, target: str = "", graph: Graph | None = None, config: Any = None) -> None:
        super().__init__(target, graph, config)
        self._default = ExitStack()
        self._default.enter_context(self.as_default())

    def close(self) -> None:
        """No longer be the default session, and close.  Idempotent."""
        self._default.close()
        super().close()


class AsyncSession(_Entering):
    """A session whose methods are awaited: `aexec.Session` with TensorFlow's arguments.

    Arguments as of `Session`.

    Attributes:
        awaitable: the `aexec.Session`.
    """

    def __init__(self, target: str = "", graph: Graph | None = None, config: Any = None) -> None:
        self.graph = get_default_graph() if graph is None else graph
        self.sess_str = target
        self.awaitable: Any = _Session(self.graph, target, config)
        self._blocks: list[ExitStack] = []

    async def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
    ) -> Any:
        """As `Session.run`, awaited."""
        metadata = _metadata(run_metadata)
        found = await self.awaitable.run(fetches, _feeds(self.graph, feed_dict), options=options, metadata=metadata)
        _report(metadata, run_metadata)
        return found

    def make_callable(self, fetches: Any, feed_list: Iterable[Any] = (), accept_options: bool = False) -> Any:
        """A coroutine function of the values fed."""
        return self.awaitable.make_callable(fetches, feed_list)

    def list_devices(self) -> list[DeviceAttributes]:
        """The devices."""
        return _described(self.awaitable.devices())

    async def close(self) -> None:
        """Cancel what runs, and close.  Idempotent."""
        await self.awaitable.close()

    async def __aenter__(self) -> AsyncSession:
        await self.awaitable.__aenter__()
        stack = ExitStack()
        stack.enter_context(self.as_default())
        self._blocks.append(stack)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        try:
            self._blocks.pop().close()
        finally:
            await self.close()

    def __repr__(self) -> str:
        return f"<tf.AsyncSession: {self.awaitable!r}>"
