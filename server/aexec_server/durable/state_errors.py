"""Errors of the store of durable sessions."""

from __future__ import annotations

from aexec import errors
from aexec_server.http.error_responses import HasHeaders

__all__ = ["NotDurableError", "StateLimitError", "StateStoreError", "StoreInUseError", "write_error_of"]


class NotDurableError(HasHeaders, errors.DataLossError):
    """What a request has changed could not be written: its disk is full, read-only or broken."""

    status = 507
    reason = "not_durable"


class StateLimitError(HasHeaders, errors.ResourceExhaustedError):
    """What a session keeps would be larger than a limit of the store."""

    status = 507
    reason = "state_limit"


class StateStoreError(errors.FailedPreconditionError):
    """The store cannot be opened: it is damaged, from a newer version, in use, or something else."""


class StoreInUseError(StateStoreError):
    """Another server uses the store."""


def write_error_of(error: BaseException) -> errors.OpError:
    """The error, or the one that tells of it if it is unforeseen."""
    if isinstance(error, errors.OpError):
        return error
    wrapped = errors.InternalError(f"what has changed cannot be written: {error}")
    wrapped.__cause__ = error
    return wrapped
