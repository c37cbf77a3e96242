"""The errors that aexec raises: one class per canonical code, all of them `OpError`s; and the codes as numbers."""

from typing import Any

from aexec.framework.errors import *  # noqa: F403
from aexec.framework.errors import Code
from aexec.framework.errors import __all__ as __all__


def __getattr__(name: str) -> Any:
    if name in Code.__members__:
        return int(Code[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
