"""Errors as calls of gRPC tell them: `google.rpc.Status` with an `ErrorInfo`, which also names the node.

A call that fails has a code and a message; this is the value of its trailing metadata `grpc-status-details-bin`, which
clients of many languages can read.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from aexec.framework import errors
from aexec.framework.errors import Code
from aexec.proto import rpc

__all__ = ["STATUS_DETAILS", "cut_text", "read_status", "status_details"]

STATUS_DETAILS = "grpc-status-details-bin"
_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
_DOMAIN = "aexec"
# Metadata is limited to some KiB: these are the most bytes of a message, and of a name.
_MAX_MESSAGE = 2048
_MAX_NAME = 512
_CUT = " … (cut off)"


def status_details(error: errors.OpError, reason: str = "") -> bytes:
    """An error's code, message, node and op.

    Args:
        reason: a word for programs that says more than the code; "" for none.
    """
    info = rpc.ErrorInfo(reason=reason, domain=_DOMAIN)
    for name, value in (("node", error.node), ("op", error.op_type)):
        if value is not None:
            info.metadata[name] = cut_text(value, _MAX_NAME)
    status = rpc.RpcStatus(code=int(error.code), message=cut_text(error.message, _MAX_MESSAGE))
    status.details.add(type_url=_ERROR_INFO, value=info.SerializeToString())
    return status.SerializeToString()


def read_status(code: int, message: str, details: bytes | None) -> tuple[errors.OpError, str]:
    """The error of a call that failed, and the word that `status_details` was given.

    Args:
        code: of the call's status, one of `Code`.
        message: of the call's status, for a server that gives no details, or unreadable ones.
        details: the value of `STATUS_DETAILS`; None if there is none.
    """
    try:
        status = None if details is None else rpc.RpcStatus.FromString(details)
        infos = [] if status is None else [one.value for one in status.details if one.type_url == _ERROR_INFO]
        info = rpc.ErrorInfo.FromString(infos[0]) if infos else rpc.ErrorInfo()
    except DecodeError:
        status, info = None, rpc.ErrorInfo()
    error = errors.from_code(Code(code), message if status is None else status.message)
    if info.domain != _DOMAIN:
        return error, ""
    if "node" in info.metadata:
        error.attach_node(info.metadata["node"], info.metadata.get("op"))
    return error, info.reason


def cut_text(text: str, most: int) -> str:
    """The text, cut to at most `most` bytes of UTF-8; a cut text ends with a mark that says so."""
    data = text.encode()
    if len(data) <= most:
        return text
    return data[: most - len(_CUT.encode())].decode(errors="ignore") + _CUT
