"""The errors that aexec raises: one class per canonical code, all of them `OpError`s."""

from aexec.framework.errors import *  # noqa: F403
from aexec.framework.errors import __all__  # noqa: F401
