"""Errors: one exception class per canonical status code.

Every error that leaves aexec is an `OpError`.  It has a canonical `code`, a `message`, and, if known, the node and op
that it comes from and the Python line that made the node.  `server/` maps codes to HTTP statuses in one table. The
codes and their numbers are those of google/rpc/code.proto.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from aexec.framework.abridged_text import MAX_MESSAGE, abridged

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "CancelledError",
    "Code",
    "DataLossError",
    "DeadlineExceededError",
    "DuplicateKeyError",
    "EmptyGraphError",
    "FailedPreconditionError",
    "InternalError",
    "InvalidArgumentError",
    "InvalidStateError",
    "InvalidTypeError",
    "InvalidValueError",
    "NoGradientError",
    "NoSessionError",
    "NotFoundError",
    "OpError",
    "OutOfRangeError",
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "UnknownError",
    "UnknownKeyError",
    "UnknownNameError",
    "UnknownOutputError",
    "UnsupportedError",
    "as_plain",
    "as_python",
    "error_class",
    "from_code",
]


class Code(enum.IntEnum):
    """Canonical status codes."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16

    @property
    def http_status(self) -> int:
        """The HTTP status, as google/rpc/code.proto maps it; 499 (client closed request) is nginx's."""
        return _HTTP_STATUS[self]


_HTTP_STATUS = {
    Code.OK: 200,
    Code.CANCELLED: 499,
    Code.UNKNOWN: 500,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.ABORTED: 409,
    Code.OUT_OF_RANGE: 400,
    Code.UNIMPLEMENTED: 501,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
    Code.DATA_LOSS: 500,
    Code.UNAUTHENTICATED: 401,
}


class OpError(Exception):
    """Base of all aexec errors.

    Args:
        message: the text; or TensorFlow's three arguments, `(node_def, op, message)`: the definition of the node that
            failed and its operation, each or None, and the text.

    Attributes:
        code: the canonical `Code`.
        message: the text: what was expected, what was given, and where; its middle is left out if it is very long.
        node: name of the node that failed, or None.
        op: op type of that node, or None; what a session of `aexec.compat.v1` raises has the operation itself.
        node_def: its definition, where that is known; else None.
        site: `file:line` of the Python statement that made the node, or None.
        origin: what the node was derived from, as `node 'n' of function 'F'`, or None.
        derived: True if the error only follows from another one of the same step
            (an aborted receive, a cancelled wait); such errors never hide the cause.
    """

    code: Code = Code.UNKNOWN

    def __init__(
        self,
        message: Any = "",
        *theirs: Any,
        node: str | None = None,
        op: Any = None,
        site: str | None = None,
        origin: str | None = None,
        derived: bool = False,
    ) -> None:
        self.node_def: Any = None
        if theirs:
            if len(theirs) != 2:
                raise TypeError(f"{type(self).__name__} takes a message, or node_def, op and message")
            node_def, (operation, message) = message, theirs
            if node_def is not None:
                node, op = node_def.name, node_def.op
                self.node_def = node_def
            op = operation if hasattr(operation, "op_def") else op
        self.message = message
        super().__init__(self.message)
        self.node = node
        self.op = op
        self.site = site
        self.origin = origin
        self.derived = derived

    @property
    def op_type(self) -> str | None:
        """The op type of the node that failed, whichever `op` is."""
        found: str | None = self.op if self.op is None or isinstance(self.op, str) else self.op.op_def.name
        return found

    @property
    def error_code(self) -> Code:
        """The canonical code, by TensorFlow's name."""
        return self.code

    @property
    def message(self) -> str:
        return self._message

    @message.setter
    def message(self, message: str) -> None:
        self._message = abridged(message, MAX_MESSAGE)

    def attach_node(self, node: str, op: str | None, site: str | None = None, origin: str | None = None) -> None:
        """Name the node that failed.  Only the first call counts: the innermost node is the cause."""
        if self.node is None:
            self.node, self.op, self.site, self.origin = node, op, site, origin

    def fresh(self) -> OpError:
        """A copy without a traceback, which would keep the objects of its frames alive."""
        return _rebuild(*self.__reduce__()[1])

    def __str__(self) -> str:
        # TensorFlow's node suffix, which log-scraping tools match on.
        where = "" if self.node is None else f"\n\t [[{{{{node {abridged(self.node)}}}}}]]"
        derived = "" if self.origin is None else f"\n\t derived from {self.origin}"
        made = "" if self.site is None else f"\n\t made at {self.site}"
        return f"{self.message}{where}{derived}{made}"

    def __reduce__(self) -> tuple[Callable[..., OpError], tuple[Any, ...]]:
        return (_rebuild, (type(self), self.message, self.node, self.op_type, self.site, self.origin, self.derived))


def _rebuild(
    cls: type[OpError],
    message: str,
    node: str | None,
    op: str | None,
    site: str | None,
    origin: str | None,
    derived: bool,
) -> OpError:
    return cls(message, node=node, op=op, site=site, origin=origin, derived=derived)


class CancelledError(OpError):
    """The step was cancelled: by its caller, by `close`, or by a gone client."""

    code = Code.CANCELLED


class UnknownError(OpError):
    """An exception without a canonical code, as a user's own kernel may raise."""

    code = Code.UNKNOWN


class InvalidArgumentError(OpError):
    """The caller passed a wrong argument, whatever the state of the session."""

    code = Code.INVALID_ARGUMENT


class DeadlineExceededError(OpError):
    """The deadline passed before the step ended."""

    code = Code.DEADLINE_EXCEEDED


class NotFoundError(OpError):
    """A node, file, resource or registration that was named does not exist."""

    code = Code.NOT_FOUND


class AlreadyExistsError(OpError):
    """Something that was to be created exists already."""

    code = Code.ALREADY_EXISTS


class PermissionDeniedError(OpError):
    """The caller may not do this."""

    code = Code.PERMISSION_DENIED


class ResourceExhaustedError(OpError):
    """Memory, a quota or a bounded table is full."""

    code = Code.RESOURCE_EXHAUSTED


class FailedPreconditionError(OpError):
    """The session is not in the state that the request needs, e.g. an uninitialised variable."""

    code = Code.FAILED_PRECONDITION


class AbortedError(OpError):
    """The operation lost a race, e.g. against another extension of the same graph."""

    code = Code.ABORTED


class OutOfRangeError(OpError):
    """Past the valid range, e.g. the end of a closed queue or of a file."""

    code = Code.OUT_OF_RANGE


class UnimplementedError(OpError):
    """Not supported by this version."""

    code = Code.UNIMPLEMENTED


class InternalError(OpError):
    """An invariant of aexec or of a kernel was broken: a bug."""

    code = Code.INTERNAL


class UnavailableError(OpError):
    """Not available now; a retry may succeed."""

    code = Code.UNAVAILABLE


class DataLossError(OpError):
    """Stored data is corrupt."""

    code = Code.DATA_LOSS


class UnauthenticatedError(OpError):
    """No valid credentials."""

    code = Code.UNAUTHENTICATED


# Errors of Python functions that build graphs and check arguments, before anything runs.  They are also of Python's own
# # classes, those that TensorFlow's Python raises.  Steps raise the errors above.


class InvalidValueError(InvalidArgumentError, ValueError):
    """An argument of the right type has a wrong value."""


class InvalidTypeError(InvalidArgumentError, TypeError):
    """An argument is of a wrong type."""


class UnknownNameError(NotFoundError, ValueError):
    """An argument names something that does not exist."""


class UnknownKeyError(NotFoundError, KeyError):
    """A lookup by a name that does not exist."""


class EmptyGraphError(InvalidArgumentError, RuntimeError):
    """The graph to run is empty."""


class UnknownOutputError(OutOfRangeError, KeyError):
    """A node has no output of that number."""


class NoGradientError(NotFoundError, LookupError):
    """An op has no gradient function."""


class DuplicateKeyError(AlreadyExistsError, KeyError):
    """Something is registered under this name already."""


class InvalidStateError(FailedPreconditionError, RuntimeError):
    """The call is not allowed in this state: the session is closed, the graph finalized."""


class NoSessionError(FailedPreconditionError, ValueError):
    """There is no session to run in."""


class UnsupportedError(UnimplementedError, NotImplementedError):
    """An argument that this version does not support."""


_PYTHON = {
    (Code.INVALID_ARGUMENT, ValueError): InvalidValueError,
    (Code.INVALID_ARGUMENT, TypeError): InvalidTypeError,
    (Code.NOT_FOUND, ValueError): UnknownNameError,
    (Code.OUT_OF_RANGE, KeyError): UnknownOutputError,
    (Code.NOT_FOUND, KeyError): UnknownKeyError,
    (Code.FAILED_PRECONDITION, RuntimeError): InvalidStateError,
    (Code.UNIMPLEMENTED, NotImplementedError): UnsupportedError,
}


# Code → the default of `as_python`.
_KINDS: dict[Code, type[Exception]] = dict(reversed(_PYTHON))
_PLAIN = frozenset(OpError.__subclasses__())


def as_python(error: OpError, kind: type[Exception] | None = None) -> OpError:
    """Make the error one of Python's classes, too; unchanged if its code has no such class.  Returns it.

    Args:
        kind: Python's class; by default the one that belongs to the code, unless the error has one already.
    """
    if kind is not None or type(error) in _PLAIN:
        error.__class__ = _PYTHON.get((error.code, kind or _KINDS.get(error.code, ValueError)), type(error))
    return error


def as_plain(error: OpError) -> OpError:
    """Make the error one that a step raises, without a class of Python's.  Returns it."""
    if type(error) not in _PLAIN and issubclass(type(error), _PYTHONS_OWN):
        error.__class__ = _CLASSES[error.code]
    return error


_PYTHONS_OWN = (ValueError, TypeError, KeyError, LookupError, RuntimeError)
_CLASSES: dict[Code, type[OpError]] = {cls.code: cls for cls in _PLAIN}


def error_class(code: Code | int) -> type[OpError]:
    """The exception class of a canonical code.  Raises KeyError for OK, which has none."""
    return _CLASSES[Code(code)]


def from_code(code: Code | int, message: str) -> OpError:
    """An error of the class that belongs to `code`."""
    return error_class(code)(message)
