"""`status_message`: the text of the status with which a call ends, as TensorFlow's clients expect it."""

from __future__ import annotations

from aexec import errors
from aexec_server.requests.protobuf import error_text

__all__ = ["status_message"]

# Most bytes of a status message; TensorFlow's own server cuts here too, because messages travel as metadata.
_MAX_MESSAGE = 3072
_CUT = " … (cut off)"


def status_message(error: errors.OpError) -> str:
    """Return the text of an error with its node, at most 3 KiB."""
    text = error_text(error)
    data = text.encode()
    if len(data) <= _MAX_MESSAGE:
        return text
    return data[: _MAX_MESSAGE - len(_CUT.encode())].decode(errors="ignore") + _CUT
