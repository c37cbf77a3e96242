"""`Session` and `AsyncSession`: sessions with TensorFlow's arguments, for scripts, and to be awaited.

::

    with tf.Session() as sess:
        sess.run(train, feed_dict={x: batch})

    async with tf.AsyncSession() as sess:
        await sess.run(train, feed_dict={x: batch})

They are an aexec `SyncSession` and `Session`.  Functions that take a session here, such as `saver.save(sess, path)`,
block with the one and are awaited with the other.  Next to read: `training.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, cast

import numpy as np

from aexec import proto
from aexec.compat.v1.running.results import writable
from aexec.compat.v1.values.default_session import default_session, entered
from aexec.compat.v1.values.shapes import TensorShape
from aexec.compat.v1.values.sparse import SparseTensor, SparseTensorValue
from aexec.compat.v1.values.tensors import get_default_graph
from aexec.framework import errors
from aexec.graph.graph import Graph
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.tensor_proxy import TensorProxy
from aexec.remote.blocking import SyncSession
from aexec.runtime.config import RunMetadata
from aexec.runtime.feeding.fetches import FetchMapper, flat_feeds, register_fetch_type
from aexec.runtime.feeding.nested_lists import num_leaves
from aexec.runtime.session.session import Session as _Session
from aexec.runtime.threads.loop_thread import LoopThread
from aexec.variables.variable import Variable

__all__ = [
    "AsyncSession",
    "DeviceAttributes",
    "InteractiveSession",
    "Session",
    "in_session",
    "name_operation",
    "waited",
]

register_fetch_type(SparseTensor, lambda sparse: sparse[:], lambda parts: SparseTensorValue(*parts), list)


def in_session(session: Any, function: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
    """Call an asynchronous function of aexec with a session; return its result, or an awaitable with an
    `AsyncSession`.
    """
    if isinstance(session, Session):
        return session.waiting.wait(function, *arguments, **settings)
    ours = session.awaitable if isinstance(session, AsyncSession) else session
    return function(ours, *arguments, **settings)


def waited(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that needs no session on an event loop of its own, and return its result."""
    thread = LoopThread("aexec.compat")
    try:
        return thread.wait(coroutine)
    finally:
        thread.stop()


def _load(variable: Any, value: Any, session: Any = None) -> Any:
    """`Variable.load`: assign a value in a session."""
    initializer = variable.initializer
    source, slot = initializer.in_edges[1]
    given = initializer.graph.nodes[source].output(slot)
    return (session or default_session()).run(initializer, {given: value})


if not hasattr(Variable, "load"):
    # `load` needs a session, so it is added where sessions are, and to the variables of all modules.
    Variable.load = _load  # type: ignore[attr-defined]


def _feeds(graph: Graph, feed_dict: Mapping[Any, Any] | None) -> dict[Any, Any]:
    """The fed values by tensor, as TensorFlow takes them.

    Raises:
        TypeError: a key is not a tensor of the graph, or a number does not fit the tensor's type.
        ValueError: a value does not have its tensor's shape, or a structure not the form of its key.
    """
    if not feed_dict:
        return {}
    if not isinstance(feed_dict, Mapping):
        raise errors.InvalidTypeError(f"feed_dict must be a dictionary, got {type(feed_dict).__name__}")
    return {key: _fed(_fed_tensor(graph, key), value) for key, value in flat_feeds(feed_dict).items()}


def _fed_tensor(graph: Graph, key: Any) -> Tensor:
    try:
        found: Any = graph.as_graph_element(key, allow_operation=False)
    except errors.OpError as error:
        raise errors.InvalidTypeError(f"Cannot interpret feed_dict key as Tensor: {error.message}") from None
    return cast(Tensor, found)


# Longer lists are converted in a thread, and their numbers must fit the type without truncation.
_MAX_LEAVES = 10_000


def _fed(tensor: Tensor, value: Any) -> Any:
    """A value in the tensor's type and shape; fractions are truncated if the type has none."""
    if isinstance(value, Tensor | Node | TensorProxy):
        raise errors.InvalidTypeError(
            f"The value of a feed cannot be a tf.Tensor object: feed an array, a number or a list for {tensor.name}"
        )
    wanted = tensor.dtype.base.np
    if wanted.kind in "biufc" and _has_another_type(value, wanted):
        value = _cast(tensor, value, wanted)
    if tensor.node.op != "Placeholder" and isinstance(value, np.ndarray | np.generic | int | float | complex):
        shape = tensor.static_shape
        if not shape.is_compatible_with(np.shape(value)):
            raise errors.InvalidValueError(
                f"Cannot feed value of shape {np.shape(value)} for Tensor {tensor.name}, "
                f"which has shape {TensorShape(shape)}"
            )
    return value


def _has_another_type(value: Any, wanted: np.dtype[Any]) -> bool:
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind in "biufc" and value.dtype.kind != wanted.kind
    if isinstance(value, list | tuple):
        return num_leaves(value) <= _MAX_LEAVES
    return isinstance(value, int | float | complex)


def _cast(tensor: Tensor, value: Any, wanted: np.dtype[Any]) -> Any:
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # imaginary parts are dropped, too
            made = np.asarray(value).astype(wanted)
    except (ValueError, TypeError, OverflowError):
        return value  # The session raises the error.
    if isinstance(value, int) and made.item() != value:
        raise errors.InvalidTypeError(
            f"Type of feed value {value} with type {type(value)} is not compatible with Tensor type {wanted} of "
            f"{tensor.name}."
        )
    return made


def name_operation(error: errors.OpError, graph: Graph) -> None:
    """Give an error the operation that failed, and its definition, if the graph has it."""
    operation = None if error.node is None else graph.find(error.node)
    if operation is not None:
        error.op, error.node_def = operation, operation.node_def


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


# Steps name the node in errors with these codes.
_OF_ARGUMENTS = (errors.Code.INVALID_ARGUMENT, errors.Code.NOT_FOUND)


def _can_be_fetched(fetches: Any) -> bool:
    try:
        FetchMapper(fetches)
    except errors.OpError:
        return False
    return True


class _Entering:
    """The part that both kinds share: they become the default session, and their graph the current one."""

    graph: Graph
    sess_str: str
    _closed = False

    @property
    def graph_def(self) -> proto.GraphDef:
        """The graph as a message."""
        return self.graph.to_graph_def()

    @property
    def closed(self) -> bool:
        """True once `close` was called."""
        return self._closed

    @contextmanager
    def _call(self, fetches: Any) -> Iterator[None]:
        """Context manager around a call: errors before a step begins are Python's own exceptions, too.

        Raises:
            InvalidStateError: the session is closed.
            EmptyGraphError: there is nothing to run.
        """
        if self._closed:
            raise errors.InvalidStateError("Attempted to use a closed Session.")
        if not len(self.graph):
            raise errors.EmptyGraphError(
                "The Session graph is empty. Add operations to the graph before calling run()."
            )
        try:
            yield
        except errors.OpError as error:
            if error.node is None and error.code in _OF_ARGUMENTS and not isinstance(error, ValueError | TypeError):
                errors.as_python(error, ValueError if _can_be_fetched(fetches) else TypeError)
            name_operation(error, self.graph)
            raise

    @contextmanager
    def as_default(self) -> Iterator[Any]:
        """Context manager: it is the default session inside; it stays open afterwards."""
        with entered(self), self.graph:
            yield self


class Session(_Entering):
    """A session whose methods block: `aexec.SyncSession` with TensorFlow's arguments.

    It is open when it is made.  Leave its `with` block, or call `close`.

    Args:
        target: as of `aexec.Session`.
        graph: by default the current one.
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
        """Like `aexec.Session.run`.

        Args:
            options: a `tf.RunOptions`.
            run_metadata: a `tf.RunMetadata`, which is filled.
        """
        metadata = _metadata(run_metadata)
        with self._call(fetches):
            found = self.waiting.run(fetches, _feeds(self.graph, feed_dict), options=options, metadata=metadata)
        _report(metadata, run_metadata)
        return writable(found)

    def make_callable(self, fetches: Any, feed_list: Sequence[Any] = (), accept_options: bool = False) -> Any:
        """A function of the fed values."""
        with self._call(fetches):
            call = self.waiting.make_callable(fetches, feed_list)

        def run(*values: Any) -> Any:
            with self._call(fetches):
                return writable(call(*values))

        return run

    def partial_run_setup(self, fetches: Any, feeds: Sequence[Any] = ()) -> Any:
        """Begin a run that is fed and fetched in parts; return a handle for `partial_run`."""
        with self._call(fetches):
            return self.waiting.partial_run_setup(fetches, feeds).handle

    def partial_run(self, handle: str, fetches: Any, feed_dict: Mapping[Any, Any] | None = None) -> Any:
        """Continue a partial run."""
        with self._call(fetches):
            return writable(self.waiting.partial_run(handle, fetches, _feeds(self.graph, feed_dict)))

    def list_devices(self) -> list[DeviceAttributes]:
        """The devices."""
        return _described(self.waiting.devices())

    def close(self) -> None:
        """Cancel all runs, and close.  Idempotent."""
        self._closed = True
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
        """Like `Session.run`, awaited."""
        metadata = _metadata(run_metadata)
        with self._call(fetches):
            found = await self.awaitable.run(fetches, _feeds(self.graph, feed_dict), options=options, metadata=metadata)
        _report(metadata, run_metadata)
        return writable(found)

    def make_callable(self, fetches: Any, feed_list: Iterable[Any] = (), accept_options: bool = False) -> Any:
        """A coroutine function of the fed values."""
        with self._call(fetches):
            call = self.awaitable.make_callable(fetches, feed_list)

        async def run(*values: Any) -> Any:
            with self._call(fetches):
                return writable(await call(*values))

        return run

    async def partial_run_setup(self, fetches: Any, feeds: Sequence[Any] = ()) -> Any:
        """Like `Session.partial_run_setup`, awaited."""
        with self._call(fetches):
            return (await self.awaitable.partial_run_setup(fetches, feeds)).handle

    async def partial_run(self, handle: str, fetches: Any, feed_dict: Mapping[Any, Any] | None = None) -> Any:
        """Like `Session.partial_run`, awaited."""
        with self._call(fetches):
            return writable(await self.awaitable.partial_run(handle, fetches, _feeds(self.graph, feed_dict)))

    def list_devices(self) -> list[DeviceAttributes]:
        """The devices."""
        return _described(self.awaitable.devices())

    async def close(self) -> None:
        """Cancel all runs, and close.  Idempotent."""
        self._closed = True
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
