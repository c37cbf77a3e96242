"""`status_message`: the text of the status with which a call ends, as TensorFlow's clients expect it."""

from __future__ import annotations

from aexec import errors
from aexec.hosting import cut_text, status_details
from aexec_server.http.error_responses import HasHeaders
from aexec_server.requests.protobuf import error_text

__all__ = ["error_details", "status_message"]

# Most bytes of a status message; TensorFlow's own server cuts here too, because messages travel as metadata.
_MAX_MESSAGE = 3072


def status_message(error: errors.OpError) -> str:
    """The words of an error with its node, at most 3 KiB of them."""
    return cut_text(error_text(error), _MAX_MESSAGE)


def error_details(error: errors.OpError) -> bytes:
    """What aexec's own clients are told besides: the value of the trailing metadata `grpc-status-details-bin`."""
    return status_details(error, error.reason if isinstance(error, HasHeaders) else "")
