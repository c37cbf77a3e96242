"""`aexec state`: looks at the store of durable sessions, and changes it while no server uses it."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from aexec import errors
from aexec_server.durable.state_archive import export_session, import_session
from aexec_server.durable.state_database import DATABASE
from aexec_server.durable.state_store import StateLimits, StateStore

__all__ = ["add_state_commands"]

_UNLIMITED = StateLimits(sys.maxsize, sys.maxsize, sys.maxsize)


def add_state_commands(commands: argparse.ArgumentParser) -> None:
    """Add the subcommands."""
    each = commands.add_subparsers(metavar="ACTION", required=True)
    for name, action, what, more in (
        ("ls", _list, "list the sessions: handle, size, owner, when it was made, durability", ()),
        ("show", _show, "show what is kept of a session", ("HANDLE",)),
        ("export", _export, "write a session to a new file", ("HANDLE", "FILE")),
        ("import", _import, "put the session of an exported file into the store", ("FILE",)),
        ("drop", _drop, "delete sessions", ("HANDLE",)),
        ("compact", _compact, "give back the space of what was deleted", ()),
    ):
        ends = "" if action in (_list, _show, _export) else "  No server may use the store meanwhile."
        parser = each.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.{ends}")
        parser.add_argument("folder", metavar="DIR", type=Path, help="the folder of `aexec serve --state DIR`")
        for argument in more:
            many = "+" if action is _drop else None
            parser.add_argument(argument.lower(), metavar=argument, nargs=many, help=_HELP[argument])
        if action is _import:
            parser.add_argument("--handle", help="the session's handle from now on (default: the one that it had)")
        parser.set_defaults(command=action)


_HELP = {"HANDLE": "of a session, as `ls` lists it", "FILE": "the file of the session"}


@contextlib.contextmanager
def _opened(folder: Path, *, changes: bool) -> Iterator[StateStore]:
    """Context manager: a store that exists.  Raises NotFoundError, StateStoreError."""
    if not (folder / DATABASE).exists():
        raise errors.NotFoundError(f"There is no store in {folder}")
    store = StateStore(folder, _UNLIMITED, is_owner=changes)
    store.open_here()
    try:
        yield store
    finally:
        store.close_here()


def _list(arguments: argparse.Namespace) -> None:
    with _opened(arguments.folder, changes=False) as store:
        for size, described in store.ask("SELECT size, facts FROM sessions ORDER BY id"):
            facts = json.loads(described)
            made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(facts["created"]))
            kind = "relaxed" if facts["relaxed"] else "strict"
            print(f"{facts['handle']}  {size:>12,} bytes  {facts['owner'] or '-'}  {made}  {kind}")


def _show(arguments: argparse.Namespace) -> None:
    with _opened(arguments.folder, changes=False) as store:
        stored = store.load_here(arguments.handle)
        print(json.dumps({"handle": stored.facts.handle, "owner": stored.facts.owner, "ttl_s": stored.facts.ttl}))
        print(f"graph: {len(stored.graphs[0]):,} bytes, {len(stored.graphs) - 1} extensions")
        for record in sorted(stored.records, key=lambda record: (record.kind, record.container, record.name)):
            print(
                f"{record.kind} {record.container}/{record.name}: {_contents(record.tensors.values(), record.elements)}"
            )
        for handle, tensor in stored.kept.items():
            print(f"kept tensor {handle}: {_shape(tensor)}")


def _contents(tensors: Iterable[Any], elements: Sequence[object] | None) -> str:
    if elements is not None:
        return f"{len(elements)} elements"
    return ", ".join(map(_shape, tensors)) or "no value"


def _shape(tensor: Any) -> str:
    return f"{tensor.dtype}{list(tensor.shape)}"


def _export(arguments: argparse.Namespace) -> None:
    with _opened(arguments.folder, changes=False) as store:
        export_session(store.ask, store.files, arguments.handle, Path(arguments.file))


def _import(arguments: argparse.Namespace) -> None:
    with _opened(arguments.folder, changes=True) as store:
        print(import_session(store.ask, store.files, Path(arguments.file), arguments.handle))


def _drop(arguments: argparse.Namespace) -> None:
    with _opened(arguments.folder, changes=True) as store:
        for handle in arguments.handle:
            if handle not in store.facts:
                raise errors.NotFoundError(f"Session '{handle[:80]}' is not in the store")
        store.drop_here(arguments.handle)


def _compact(arguments: argparse.Namespace) -> None:
    with _opened(arguments.folder, changes=True) as store:
        store.ask("VACUUM")
        store.ask("PRAGMA wal_checkpoint(TRUNCATE)")
