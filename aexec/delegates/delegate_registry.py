"""Delegates by name; the module that one needs is imported when it is first used."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Collection

from aexec.delegates.delegate import Delegate
from aexec.delegates.openvino_delegate import OpenVinoDelegate
from aexec.framework import errors

__all__ = [
    "delegate_names",
    "installed_delegate",
    "make_delegate",
    "register_delegate",
    "uninstalled_delegate",
    "unregister_delegate",
]

_makers: dict[str, Callable[[], Delegate]] = {}
_needs: dict[str, str] = {}
_made: dict[str, Delegate] = {}


def register_delegate(name: str, make: Callable[[], Delegate], *, needs: str = "") -> None:
    """Make a delegate available as `SessionConfig(delegates=[name])`, and to sessions that choose by themselves.

    Args:
        make: called when a session first needs it, in a thread.
        needs: the module that has to be installed for it.

    Raises:
        AlreadyExistsError: there is one of that name.
    """
    if name in _makers:
        raise errors.AlreadyExistsError(f"A delegate '{name}' is registered already")
    _makers[name] = make
    _needs[name] = needs


def unregister_delegate(name: str) -> None:
    """Remove a delegate; sessions keep those that they have.  Raises NotFoundError if there is none."""
    if _makers.pop(name, None) is None:
        raise errors.NotFoundError(f"No delegate '{name}' is registered")
    _made.pop(name, None)


def delegate_names() -> Collection[str]:
    """Names of all delegates, installed or not."""
    return tuple(_makers)


def installed_delegate(name: str) -> bool:
    """True if the module that this delegate needs is installed.  Reads the disk the first time."""
    needs = _needs[name]
    return not needs or importlib.util.find_spec(needs) is not None


def make_delegate(name: str) -> Delegate:
    """The delegate of this name: one for the process.

    Raises:
        FailedPreconditionError: the module that it needs is not installed.
    """
    if name not in _made:
        if not installed_delegate(name):
            raise errors.FailedPreconditionError(
                f"The delegate '{name}' needs {_needs[name]}: pip install 'aexec[{name}]'"
            )
        _made.setdefault(name, _makers[name]())
    return _made[name]


def uninstalled_delegate(name: str) -> Delegate | None:
    """The delegate of this name without the module that it needs: it can say which nodes it could run, but compiles
    nothing.  None if it cannot be made so.
    """
    try:
        return _makers[name]()
    except ImportError:
        return None


register_delegate("openvino", OpenVinoDelegate, needs="openvino")
