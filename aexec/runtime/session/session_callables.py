"""`SessionCallables`: resolves requests to callables.

`find` caches the callables of `Session.run`, so that names are resolved once; `make` makes one that its caller keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from aexec.framework.device_contract.device import Device
from aexec.graph.nodes.node import Node
from aexec.runtime.config import RunOptions
from aexec.runtime.feeding.device_ends import DeviceEnds, resolve_devices
from aexec.runtime.feeding.fetches import FetchMapper, flat_feeds
from aexec.runtime.session.callable import Request, SessionCallable, canonical_name
from aexec.runtime.session.callable_cache import CallableCache
from aexec.runtime.session.session_life import SessionLife
from aexec.runtime.session.session_steps import SessionSteps

__all__ = ["SessionCallables"]


class SessionCallables:
    """The callables of one session.

    Args:
        steps: the session's steps; begins the runs of the callables.
        life: whether the session is open.
        devices: the session's devices.
        check_shapes: whether a fed value must match the shape of its tensor.
    """

    __slots__ = ("_check_shapes", "_devices", "_known", "_life", "_steps")

    def __init__(
        self, steps: SessionSteps, life: SessionLife, devices: Sequence[Device], *, check_shapes: bool
    ) -> None:
        self._steps = steps
        self._life = life
        self._devices = devices
        self._check_shapes = check_shapes
        self._known: CallableCache[SessionCallable] = CallableCache()

    def find(
        self, fetches: Any, feeds: Mapping[Any, Any] | None, targets: Any
    ) -> tuple[SessionCallable, Callable[[Sequence[Any]], Any], Mapping[Any, Any] | None]:
        """Return the callable of a request of `run`, the function that builds its result, and the flattened feeds."""
        kind = type(fetches)
        key = (
            kind,
            tuple(fetches) if kind is list else fetches,
            tuple(feeds) if feeds else (),
            targets if type(targets) is tuple or isinstance(targets, str | Node) else tuple(targets),
        )
        try:
            call = self._known[key]
        except (KeyError, TypeError):  # a new request, or one with an unhashable part
            pass
        else:
            return call, call.build, feeds
        self._life.check_open()
        if feeds and (flat := flat_feeds(feeds)) is not feeds:
            return self.find(fetches, flat, targets)
        mapper = FetchMapper(fetches)
        request = Request(self._steps.graph, mapper, key[2], key[3])
        if mapper.flat:
            call = self._resolved(mapper, request, answer_fed=True)
            return self._known.remember(key, call), call.build, feeds
        # The parts of a structure are looked up as a list.
        names = (list, request.fetches, request.feeds, request.targets)
        known = self._known.get(names)
        if known is None:
            known = self._known.remember(names, self._resolved(mapper, request, answer_fed=True))
        return known, mapper.build, feeds

    def make(
        self,
        fetches: Any,
        feeds: Iterable[Any],
        targets: Iterable[Any],
        options: RunOptions | None = None,
        connections: Iterable[tuple[Any, Any]] = (),
    ) -> SessionCallable:
        """A callable that is not cached.  Arguments and errors as those of `Session.make_callable`."""
        self._life.check_open()
        mapper = FetchMapper(fetches)
        return self._resolved(
            mapper, Request(self._steps.graph, mapper, feeds, targets), options, connections=connections
        )

    def _resolved(
        self, mapper: FetchMapper, request: Request, options: RunOptions | None = None, **settings: Any
    ) -> SessionCallable:
        return SessionCallable(self._steps, mapper, request, options, check_shapes=self._check_shapes, **settings)

    def on_devices(
        self,
        call: SessionCallable,
        feed_devices: Mapping[Any, str] | None,
        fetch_devices: Mapping[Any, str] | None,
        *,
        skip_sync: bool = False,
    ) -> SessionCallable:
        """The callable with its values on the named devices."""
        feeds = dict(zip(map(canonical_name, call.feeds), call.feed_dtypes, strict=True))
        fetches = dict(zip(map(canonical_name, call.fetches), call.fetch_dtypes, strict=True))
        fed_on, fetched_on = [
            resolve_devices(self._devices, tensors, {canonical_name(key): name for key, name in (wanted or {}).items()})
            for tensors, wanted in ((feeds, feed_devices), (fetches, fetch_devices))
        ]
        return call.with_ends(DeviceEnds(fed_on, fetched_on, skip_sync and any(fetched_on)))

    def clear(self) -> None:
        """Forget the cached callables."""
        self._known.clear()
