"""`first_text`: the text in the first field of a request, which says which session or service it is for.

A front chooses the process that answers by it, without decoding the rest.
"""

from __future__ import annotations

from itertools import islice

from google.protobuf.message import DecodeError

from aexec import errors
from aexec.hosting import wire_format

__all__ = ["LOOKED_AT", "first_text"]

# Of a request's fields so many are looked at: clients write the first field first, and a request of very many fields
# would hold the loop.
LOOKED_AT = 16
_FIRST_TEXT = 1 << 3 | wire_format.LENGTH


def first_text(data: bytes) -> str:
    """Return the text in the first field of a request; "" without one.

    Raises:
        InvalidArgumentError: the request is no message.
    """
    try:
        for tag, _, start, end in islice(wire_format.fields(data, 0, len(data)), LOOKED_AT):
            if tag == _FIRST_TEXT:
                return data[start:end].decode()
    except (DecodeError, IndexError, UnicodeDecodeError):
        raise errors.InvalidArgumentError("The request is no message of its method's kind") from None
    return ""
