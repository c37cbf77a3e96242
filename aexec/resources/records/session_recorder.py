"""`SessionRecorder`: tells what has changed in a session's state since it was written last.

It costs nothing while a session runs: it compares versions of resources when it is asked.  `restore_state` puts
recorded state into a new session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from aexec.framework import dtypes, errors
from aexec.framework.late_dataclass import dataclass
from aexec.framework.state.resource_manager import ResourceManager, node_of_private
from aexec.framework.state.session_state import DeviceTensor, SessionState
from aexec.framework.waiting.inline_call import InlineCallError
from aexec.resources.records.resource_record import ResourceRecord, adopt_record, record_of, version_of

__all__ = ["ResourceKey", "SessionChanges", "SessionRecorder", "restore_state"]

# Class, container and name of a resource.
ResourceKey = tuple[type, str, str]
# Runs a function in a thread.
InThread = Callable[[Callable[[], Any]], Awaitable[Any]]

_OBJECTS = (dtypes.resource, dtypes.variant)


@dataclass(frozen=True, slots=True)
class SessionChanges:
    """What has changed since the last `written`.

    Attributes:
        written: records of new and changed resources.
        dropped: (kind, container, name) of resources that are gone.
        kept: new kept tensors by handle.
        dropped_tensors: handles of kept tensors that are gone.
        next_tensor: number of the next kept tensor.
    """

    written: tuple[ResourceRecord, ...]
    dropped: tuple[tuple[str, str, str], ...]
    kept: Mapping[str, Any]
    dropped_tensors: tuple[str, ...]
    next_tensor: int
    _resources: Mapping[ResourceKey, tuple[str, Any]]
    _state: int
    _handles: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.written or self.dropped or self.kept or self.dropped_tensors)


class SessionRecorder:
    """Compares the state of a session with what was written last.

    Args:
        resources, state: the session's.
        in_thread: runs a function in a thread.
    """

    def __init__(self, resources: ResourceManager, state: SessionState, in_thread: InThread) -> None:
        self._manager = resources
        self._state = state
        self._in_thread = in_thread
        self._resources: Mapping[ResourceKey, tuple[str, Any]] = {}
        self._state_changes = -1
        self._handles: frozenset[str] = frozenset()

    async def look(self) -> SessionChanges:
        """What has changed since the last changes for which `written` was called.

        Each resource is recorded as it is at one moment; a run in flight may change another one meanwhile.  If an
        update is under way, or a table is large, this is done in a thread.

        Raises:
            UnimplementedError: something of the state cannot be recorded; the error names it.
        """
        quick = self.look_if_quick()
        if quick is not None:
            return quick
        changes: SessionChanges = await self._in_thread(self.look_at_once)
        return changes

    def look_if_quick(self) -> SessionChanges | None:
        """As `look`; None if this has to be done in a thread."""
        try:
            return self.look_at_once()
        except InlineCallError:
            return None

    def look_at_once(self) -> SessionChanges:
        """As `look`.  Raises PostponedError or NeedsThreadError on an event loop if it has to wait or takes long."""
        found: dict[ResourceKey, tuple[str, Any]] = {}
        written: list[ResourceRecord] = []
        for container, resource_type, name, resource in self._manager.lasting():
            key = resource_type, container, _lasting_name(name)
            if key in found:
                raise errors.UnimplementedError(
                    f"Several nodes '{node_of_private(name)}' have a {resource_type.__name__} each, in functions "
                    "perhaps: they can be recorded only if the nodes have a shared_name"
                )
            known = self._resources.get(key)
            if known is not None and known[1] == version_of(resource_type, resource):
                found[key] = known
            else:
                record = record_of(*key, resource)
                written.append(record)
                found[key] = record.kind, record.version
        dropped = tuple((kind, *key[1:]) for key, (kind, _) in self._resources.items() if key not in found)
        changes, next_tensor = self._state.changes, self._state.next_id
        if changes == self._state_changes:
            handles, kept = self._handles, {}
        else:
            tensors = self._state.tensors()
            handles = frozenset(tensors)
            kept = {h: _host_tensor(h, t) for h, t in tensors.items() if h not in self._handles}
        gone = tuple(self._handles - handles)
        return SessionChanges(tuple(written), dropped, kept, gone, next_tensor, found, changes, handles)

    def written(self, changes: SessionChanges) -> None:
        """Note that the changes, which are the last that `look` returned, have been written."""
        self._resources = changes._resources
        self._state_changes, self._handles = changes._state, changes._handles


def _lasting_name(name: str) -> str:
    """The name of a resource in records: that of a private one changes with the process."""
    node = node_of_private(name)
    return name if node is None else f"_0_{node}"


def _host_tensor(handle: str, tensor: Any) -> Any:
    if type(tensor) is DeviceTensor:
        raise errors.UnimplementedError(f"The tensor '{handle}' is in the memory of a device, and cannot be recorded")
    dtype = dtypes.from_numpy(tensor.dtype)
    if dtype in _OBJECTS or (tensor.dtype.hasobject and not all(type(item) is bytes for item in tensor.flat)):
        raise errors.UnimplementedError(f"The tensor '{handle}' holds handles or variants, which cannot be recorded")
    return tensor


def restore_state(
    resources: ResourceManager,
    state: SessionState,
    records: Iterable[ResourceRecord],
    kept: Mapping[str, Any],
    next_tensor: int,
) -> None:
    """Put recorded state into a session that has run nothing yet.

    Raises as `adopt_record`; the session has to be closed then.
    """
    for record in records:
        adopt_record(resources, record)
    if kept:
        state.add_tensors(dict(kept))
    state.begin_ids_at(next_tensor)
